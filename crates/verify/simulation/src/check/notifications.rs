//! Who hears of what is published.

use everfresh_core::domain::version::Version;
use serde_json::Value;

use super::reader_requests::{key, page_of};
use super::requests::request_of_commit;
use super::{Actor, Checker, Property};
use crate::queues::Message;
use crate::rows::text;

/// What the CDN and the subscribers have to hear of.
#[derive(Clone, Debug)]
pub(super) struct Notifications {
    version: Version,
    /// The request whose commit it was: who is to tell. None after an operator's verb: anybody is.
    request: Option<String>,
    /// When.
    at_ms: u64,
    /// Whether a worker had that request in hand beside the one that published for it.
    in_other_hands: bool,
}

impl Checker {
    /// A version with another body is news. What another language publishes is nobody's here.
    pub(super) fn is_news(&self, actor: Actor, page: &str, request: &Value, old: Option<&Value>, new: &Value) {
        let content = |meta: &Value| (text(meta, "s3_key"), meta["tombstone"]["BOOL"].as_bool().unwrap_or(false));
        let changed = old.is_none_or(|old| content(old) != content(new));
        let request = request_of_commit(request);
        let of_it = |message: &Message| page_of(message).as_deref() == Some(page) && request == Some(sk(message));
        let in_other_hands = self.queues.in_hands(of_it) > 1;
        let at_ms = self.store.now_ms();
        let version = text(new, "version").parse().ok();
        let news = |version| Notifications { version, request: request.clone(), at_ms, in_other_hands };
        let mut state = self.state();
        let history = state.histories.entry(page.to_owned()).or_default();
        match actor {
            Actor::Worker | Actor::Operator if changed => history.news = version.map(news),
            // With the old body it is none, but takes over what nobody was told of before.
            Actor::Worker => history.news = history.news.take().map(|untold| news(untold.version)),
            Actor::Foreign => history.news = None,
            Actor::Server | Actor::Operator | Actor::Producer | Actor::ObjectLoss => {}
        }
    }

    /// A message is about to be forgotten. If the page's news falls to its request, and no other message of that request is left,
    /// everybody has heard. Only a worker that had it in hand already when another published for it cannot know; then the mark that the
    /// other left is enough.
    pub(super) fn tells_before_it_is_acked(&self, message: &Message) {
        let Some(page) = page_of(message) else { return };
        let Some(news) = self.news_of(&page) else { return };
        let is_other = |other: &Message| {
            other.number != message.number && page_of(other).as_ref() == Some(&page) && sk(other) == sk(message)
        };
        let cannot_know = news.in_other_hands && message.received_ms <= news.at_ms && self.is_marked(&page);
        let is_letter = |letter: &Message| page_of(letter).as_ref() == Some(&page) && sk(letter) == sk(message);
        let rejected = self.queues.letters_ever().iter().any(is_letter);
        let excused = cannot_know || rejected || self.queues.waiting().iter().any(is_other);
        let falls_to_it = match &news.request {
            Some(request) => *request == sk(message),
            // An operator's falls to whoever comes next.
            None => message.received_ms > news.at_ms,
        };
        if falls_to_it && !excused {
            self.has_been_told(&page, &news);
        }
    }

    /// In the end, everybody has heard of each page's newest content.
    pub fn everybody_knows(&self) {
        for (page, _) in self.pages.all() {
            if let Some(news) = self.news_of(page) {
                self.has_been_told(page, &news);
            }
        }
        for event in self.store.subscribers().events() {
            self.was_published(&event.detail);
        }
    }

    /// Nobody hears of what was never published.
    fn was_published(&self, detail: &Value) {
        self.checked(Property::Notifications);
        let word = |name: &str| detail[name].as_str().unwrap_or_default();
        let page = format!("{}{}", word("tenant"), word("path"));
        let known = self.state().histories.get(&page).is_some_and(|history| history.versions.contains(word("version")));
        if !known {
            self.violated(
                Property::Notifications,
                format!("somebody has heard of {detail}, which was never published"),
            );
        }
    }

    fn news_of(&self, page: &str) -> Option<Notifications> {
        self.state().histories.get(page)?.news.clone()
    }

    fn is_marked(&self, page: &str) -> bool {
        let state = self.state();
        let rows = self.pages.all().find(|(name, _)| *name == page).and_then(|(_, pk)| state.partitions.get(pk));
        rows.and_then(|rows| rows.get("META")).is_some_and(|meta| meta["pending_notification"].is_object())
    }

    /// Under that version or a later one; and the CDN has forgotten what the subscribers have heard of.
    fn has_been_told(&self, page: &str, news: &Notifications) {
        self.checked(Property::Notifications);
        let subscribers = self.store.subscribers();
        let forgotten = subscribers.invalidations();
        let tells = |detail: &Value| {
            let word = |name: &str| detail[name].as_str().unwrap_or_default();
            let of_page = format!("{}{}", word("tenant"), word("path")) == page;
            let new_enough = word("version").parse::<Version>().is_ok_and(|version| version >= news.version);
            of_page && new_enough && forgotten.contains_key(word("id"))
        };
        if !subscribers.events().iter().any(|event| tells(&event.detail)) {
            self.violated(Property::Notifications, format!("nobody has heard of {news:?} of {page}"));
        }
    }
}

/// The sort key of a message's record.
fn sk(message: &Message) -> String {
    format!("REQ#{}", key(message))
}

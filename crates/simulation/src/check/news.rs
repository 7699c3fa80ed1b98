//! Who hears of what is published.

use everfresh_core::domain::version::Version;
use serde_json::Value;

use super::requests::request_of_commit;
use super::wishes::{key, page_of};
use super::{Actor, Checker, Property};
use crate::queues::Message;
use crate::rows::text;

/// What the CDN and the listeners have to hear of.
#[derive(Clone, Debug)]
pub(super) struct News {
    version: Version,
    /// The request whose commit it was: who is to tell.
    request: Option<String>,
}

impl Checker {
    /// A worker's version with another body is news. What another language publishes is nobody's here, and an operator leaves it to
    /// whoever comes next.
    pub(super) fn is_news(&self, actor: Actor, page: &str, request: &Value, old: Option<&Value>, new: &Value) {
        let changed = old.is_none_or(|old| text(old, "s3_key") != text(new, "s3_key"));
        let news = || {
            let version = text(new, "version").parse().ok()?;
            Some(News { version, request: request_of_commit(request) })
        };
        let mut state = self.state();
        let history = state.histories.entry(page.to_owned()).or_default();
        match actor {
            Actor::Worker if changed => history.news = news(),
            // With the old body it is none, but takes over what nobody was told of before.
            Actor::Worker => {
                if let Some(news) = &mut history.news {
                    news.request = request_of_commit(request);
                }
            }
            Actor::Foreign => history.news = None,
            Actor::Server | Actor::Operator | Actor::Producer => {}
        }
    }

    /// A message is about to be forgotten. If its request's commit is the page's news, and no other message of that request is left,
    /// everybody has heard. If another worker may have the same message, the mark that it leaves is enough: whoever comes next tells.
    pub(super) fn tells_before_it_is_acked(&self, message: &Message) {
        let Some(page) = page_of(message) else { return };
        let Some(news) = self.news_of(&page) else { return };
        let key_of_it = key(message);
        let is_other = |other: &Message| {
            other.number != message.number && page_of(other).as_ref() == Some(&page) && key(other) == key_of_it
        };
        let excused = self.queues.was_handed_out_again(message.number) && self.is_marked(&page)
            || self.queues.waiting().iter().any(is_other);
        if news.request == Some(format!("REQ#{key_of_it}")) && !excused {
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
    }

    fn news_of(&self, page: &str) -> Option<News> {
        self.state().histories.get(page)?.news.clone()
    }

    fn is_marked(&self, page: &str) -> bool {
        let state = self.state();
        let rows = self.pages.all().find(|(name, _)| *name == page).and_then(|(_, pk)| state.partitions.get(pk));
        rows.and_then(|rows| rows.get("META")).is_some_and(|meta| meta["downstream_due"].is_object())
    }

    /// Under that version or a later one; and the CDN has forgotten what the listeners have heard of. A dead letter excuses.
    fn has_been_told(&self, page: &str, news: &News) {
        self.checked(Property::News);
        let listeners = self.store.listeners();
        let forgotten = listeners.invalidations();
        let tells = |detail: &Value| {
            let word = |name: &str| detail[name].as_str().unwrap_or_default();
            let of_page = format!("{}{}", word("tenant"), word("path")) == page;
            let new_enough = word("version").parse::<Version>().is_ok_and(|version| version >= news.version);
            of_page && new_enough && forgotten.contains_key(word("id"))
        };
        let heard = listeners.events().iter().any(|event| tells(&event.detail));
        let about_it = |letter: &Message| page_of(letter).as_deref() == Some(page);
        if !heard && !self.queues.letters_ever().iter().any(about_it) {
            self.violated(Property::News, format!("nobody has heard of {news:?} of {page}"));
        }
    }
}

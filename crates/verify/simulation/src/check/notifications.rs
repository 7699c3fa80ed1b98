//! Notifications of published versions.

use everfresh_core::domain::page::PendingNotification;
use everfresh_core::domain::version::Version;
use serde_json::Value;

use super::coverage::{key, page_of};
use super::requests::request_of_commit;
use super::{Actor, Checker, Property};
use crate::queues::Message;
use crate::rows::{is_bypass, text};

/// A notification that CDN and subscribers must receive.
#[derive(Clone, Debug)]
pub(super) struct ExpectedNotification {
    version: Version,
    /// The request that committed the version and sends the notification. `None` after an
    /// operator's command: the next request sends it.
    request: Option<String>,
    at_ms: u64,
    /// Whether another worker had received a message of that request when it was committed.
    also_in_flight: bool,
}

impl Checker {
    /// A version with new content needs a notification, except that of a foreign writer.
    pub(super) fn expect_notification(
        &self,
        actor: Actor,
        page: &str,
        request: &Value,
        old: Option<&Value>,
        new: &Value,
    ) {
        let tombstone = |meta: &Value| meta["tombstone"]["BOOL"].as_bool().unwrap_or(false);
        let content = |meta: &Value| match is_bypass(meta) {
            true => ("bypass".to_owned(), false),
            false => (text(meta, "s3_key"), tombstone(meta)),
        };
        // No cache has a copy of a page that never had one, nor of one that was purged.
        let had_copy = |old: &Value| !is_bypass(old) && !tombstone(old);
        let changed = match old {
            Some(old) => content(old) != content(new) && (!is_bypass(new) || had_copy(old)),
            None => !is_bypass(new),
        };
        let request = request_of_commit(request);
        let of_it = |message: &Message| page_of(message).as_deref() == Some(page) && request == Some(sk(message));
        let also_in_flight = self.queues.in_flight(of_it) > 1;
        let at_ms = self.store.now_ms();
        let version = text(new, "version").parse().ok();
        let expect = |version| ExpectedNotification { version, request: request.clone(), at_ms, also_in_flight };
        let mut state = self.state();
        let history = state.histories.entry(page.to_owned()).or_default();
        match actor {
            Actor::Worker | Actor::Operator if changed => history.notification = version.map(expect),
            // Unchanged content needs none, but takes over a pending one.
            Actor::Worker => {
                history.notification = history.notification.take().map(|pending| expect(pending.version));
            }
            Actor::Foreign => history.notification = None,
            Actor::Server | Actor::Operator | Actor::Producer | Actor::ObjectLoss => {}
        }
    }

    /// When the last message of a request is acked, the notification that the request has to send
    /// was sent. Exception: a worker that received the message before another worker committed the
    /// request cannot see that; then `pending_notification` on META is enough.
    pub(super) fn check_notified_before_ack(&self, message: &Message) {
        let Some(page) = page_of(message) else { return };
        let Some(expected) = self.notification_of(&page) else { return };
        let is_other = |other: &Message| {
            other.number != message.number && page_of(other).as_ref() == Some(&page) && sk(other) == sk(message)
        };
        let received_before = expected.also_in_flight && message.received_ms <= expected.at_ms;
        let cannot_know = received_before && self.pending(&page).is_some();
        let is_dead_letter =
            |dead_letter: &Message| page_of(dead_letter).as_ref() == Some(&page) && sk(dead_letter) == sk(message);
        let rejected = self.queues.all_dead_letters().iter().any(is_dead_letter);
        let excused = cannot_know || rejected || self.queues.waiting().iter().any(is_other);
        let is_responsible = match &expected.request {
            Some(request) => *request == sk(message),
            // After an operator's command: every later request.
            None => message.received_ms > expected.at_ms,
        };
        if is_responsible && !excused {
            self.check_notified(&page, &expected);
        }
    }

    /// Whether the message's request has published a version whose notification is pending.
    pub fn is_published_unnotified(&self, message: &Message) -> bool {
        page_of(message).and_then(|page| self.pending(&page)).is_some_and(|mark| mark == key(message))
    }

    /// At the end: CDN and subscribers were notified of the newest content of every page.
    pub fn check_all_notified(&self) {
        for (page, _) in self.pages.all() {
            if let Some(expected) = self.notification_of(page) {
                self.check_notified(page, &expected);
            }
        }
        for event in self.store.subscribers().events() {
            self.check_was_published(&event.detail);
        }
    }

    /// A notification names a published version.
    fn check_was_published(&self, detail: &Value) {
        self.checked(Property::Notifications);
        let field = |name: &str| detail[name].as_str().unwrap_or_default();
        let page = format!("{}{}", field("tenant"), field("path"));
        let known = self
            .state()
            .histories
            .get(&page)
            .is_some_and(|history| history.versions.iter().any(|known| known == field("version")));
        if !known {
            self.violated(
                Property::Notifications,
                format!("notification {detail} of a version that was never published"),
            );
        }
    }

    fn notification_of(&self, page: &str) -> Option<ExpectedNotification> {
        self.state().histories.get(page)?.notification.clone()
    }

    /// The mark on the page's META.
    fn pending(&self, page: &str) -> Option<String> {
        let state = self.state();
        let (_, pk) = self.pages.all().find(|(name, _)| *name == page)?;
        let mark = &state.partitions.get(pk)?.get("META")?["pending_notification"];
        mark.is_object().then(|| PendingNotification::parse(mark["S"].as_str().unwrap_or_default()).key)
    }

    /// Subscribers received that version or a later one, and the CDN its invalidation.
    fn check_notified(&self, page: &str, expected: &ExpectedNotification) {
        self.checked(Property::Notifications);
        let subscribers = self.store.subscribers();
        let invalidations = subscribers.invalidations();
        let notifies = |detail: &Value| {
            let field = |name: &str| detail[name].as_str().unwrap_or_default();
            let of_page = format!("{}{}", field("tenant"), field("path")) == page;
            let new_enough = field("version").parse::<Version>().is_ok_and(|version| version >= expected.version);
            of_page && new_enough && invalidations.contains_key(field("id"))
        };
        if !subscribers.events().iter().any(|event| notifies(&event.detail)) {
            self.violated(Property::Notifications, format!("no notification of {expected:?} of {page}"));
        }
    }
}

/// The sort key of the REQ row of a message.
fn sk(message: &Message) -> String {
    format!("REQ#{}", key(message))
}

//! The bodies that META points at (I4). One that the bucket has lost is no fault of the code; what it does about that is.

use everfresh_core::domain::digest::Digest;
use everfresh_enqueue::attributes;
use serde_json::Value;

use super::reader_requests::{key, page_of};
use super::requests::request_of_commit;
use super::{Actor, Checker, Property};
use crate::queues::Message;
use crate::rows::{meta_of, number, text};
use crate::site;

impl Checker {
    /// Checks the object that META points at, and returns the revision it shows.
    pub(super) fn body_is_there(&self, page: &str, meta: &Value) -> Option<u64> {
        let key = text(meta, "s3_key");
        self.checked(Property::I7);
        let tenant = page.split('/').next().unwrap_or_default();
        if !key.starts_with(&format!("{tenant}/")) {
            self.violated(Property::I7, format!("META of {page} points at {key}"));
        }
        self.checked(Property::I4);
        let Some(body) = self.store.object(&key) else {
            self.violated(Property::I4, format!("META of {page} points at {key}, which is not there"));
            return None;
        };
        let digest = text(meta, "body_digest");
        if !digest.is_empty() && digest != Digest::of(body.as_bytes()).to_string() {
            self.violated(Property::I4, format!("{key} is not the body that was committed for {page}"));
        }
        match site::read(&body) {
            Some((shown, revision)) if shown == page => Some(revision),
            other => {
                self.violated(Property::I7, format!("META of {page} shows {other:?}"));
                None
            }
        }
    }

    /// Nobody deletes a body but the bucket itself.
    pub fn deleted(&self, actor: Actor, path: &str) {
        self.checked(Property::I4);
        if actor != Actor::ObjectLoss {
            self.violated(Property::I4, format!("{path} was deleted by {actor:?}"));
        }
    }

    /// A worker that was told that a body is missing does not publish it again.
    pub(super) fn is_not_lost_again(
        &self,
        actor: Actor,
        page: &str,
        request: &Value,
        old: Option<&Value>,
        new: &Value,
    ) {
        let published = text(new, "s3_key");
        if old.is_none_or(|old| text(old, "s3_key") != published) {
            let now_ms = self.store.now_ms();
            self.state().histories.entry(page.to_owned()).or_default().pointed_since_ms = now_ms;
            return;
        }
        let Some(request) = request_of_commit(request).filter(|_| actor == Actor::Worker) else { return };
        let names_it = |message: &Message| {
            page_of(message).as_deref() == Some(page)
                && request == format!("REQ#{}", key(message))
                && message.attributes.get(attributes::LOST) == Some(&published)
        };
        if self.queues.all().iter().any(names_it) {
            self.violated(
                Property::I4,
                format!("{request} of {page} names {published} as lost and publishes it again"),
            );
        }
    }

    /// A message that names a missing body is about to be acked: META points at another one by now. A pinned page waits.
    pub(super) fn is_replaced_before_it_is_acked(&self, message: &Message) {
        let Some(lost) = message.attributes.get(attributes::LOST) else { return };
        let Some(page) = page_of(message) else { return };
        self.checked(Property::I4);
        let state = self.state();
        let rows = self.pages.all().find(|(name, _)| **name == page).and_then(|(_, pk)| state.partitions.get(pk));
        let Some(rows) = rows else { return };
        let pinned = rows.get("HEALTH").is_some_and(|health| number(health, "pinned_at_ms").is_some());
        let tombstone = |meta: &Value| meta["tombstone"]["BOOL"].as_bool().unwrap_or(false);
        let still = meta_of(rows).is_some_and(|meta| text(&meta, "s3_key") == *lost && !tombstone(&meta));
        // What an operator has brought back since is another matter, and so is a page that was pinned: unpinning renders it.
        let all_the_time = state
            .histories
            .get(&page)
            .is_some_and(|history| history.pointed_since_ms <= message.sent_ms && history.wanted_ms < message.sent_ms);
        drop(state);
        let is_letter = |letter: &Message| key(letter) == key(message) && page_of(letter) == Some(page.clone());
        let rejected = self.queues.letters_ever().iter().any(is_letter);
        if still && all_the_time && !pinned && !rejected {
            self.violated(Property::I4, format!("{} was acked, and {page} still points at {lost}", message.id()));
        }
    }

    /// The object that META of this page points at.
    pub(crate) fn published_key(&self, page: &str) -> Option<String> {
        let state = self.state();
        let (_, pk) = self.pages.all().find(|(name, _)| *name == page)?;
        let meta = meta_of(state.partitions.get(pk)?)?;
        Some(text(&meta, "s3_key")).filter(|key| self.store.object(key).is_some())
    }
}

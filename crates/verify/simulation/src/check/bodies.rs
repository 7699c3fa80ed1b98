//! The bodies that META references (I4). A body that the bucket lost is no violation, but the
//! worker must replace it.

use everfresh_core::domain::digest::Digest;
use everfresh_enqueue::attributes;
use serde_json::Value;

use super::coverage::{key, page_of};
use super::requests::request_of_commit;
use super::{Actor, Checker, Property};
use crate::queues::Message;
use crate::rows::{meta_of, number, text};
use crate::site;

impl Checker {
    /// Checks the object that META references, and returns its revision.
    pub(super) fn check_body(&self, page: &str, meta: &Value) -> Option<u64> {
        let key = text(meta, "s3_key");
        self.checked(Property::I7);
        let tenant = page.split('/').next().unwrap_or_default();
        if !key.starts_with(&format!("{tenant}/")) {
            self.violated(Property::I7, format!("META of {page} references {key}"));
        }
        self.checked(Property::I4);
        let Some(body) = self.store.object(&key) else {
            self.violated(Property::I4, format!("META of {page} references {key}, which does not exist"));
            return None;
        };
        if self.store.is_swept(&key) {
            self.violated(Property::I4, format!("META of {page} references {key}, which the sweep has deleted"));
        }
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

    /// A bypass references no object, and covers what was requested before its render.
    pub(super) fn check_bypass(&self, page: &str, meta: &Value) {
        self.checked(Property::I4);
        let key = text(meta, "s3_key");
        if self.store.object(&key).is_some() {
            self.violated(Property::I4, format!("the bypass of {page} references {key}, which exists"));
        }
        let rendered_ms = number(meta, "source_ms").unwrap_or_default();
        let mut state = self.state();
        let history = state.histories.entry(page.to_owned()).or_default();
        history.bypassed_ms = history.bypassed_ms.max(rendered_ms);
    }

    /// Called after a delete: only the sweep deletes bodies, and none that a row still needs.
    pub fn deleted(&self, actor: Actor, path: &str) {
        self.checked(Property::I4);
        match actor {
            Actor::ObjectLoss => {}
            Actor::Maintenance => {
                self.store.sweep(path);
                if let Some(row) = self.row_that_needs(path) {
                    self.violated(Property::I4, format!("the sweep deleted {path}, which {row} needs"));
                }
            }
            Actor::Worker | Actor::Server | Actor::Operator | Actor::Foreign | Actor::Producer => {
                self.violated(Property::I4, format!("{path} was deleted by {actor:?}"));
            }
        }
    }

    /// The version row, or META of a page that is not purged, which references the object.
    fn row_that_needs(&self, path: &str) -> Option<String> {
        let references = |row: &Value| {
            let key = text(row, "s3_key");
            !key.is_empty() && path.ends_with(&key) && !row["tombstone"]["BOOL"].as_bool().unwrap_or(false)
        };
        let state = self.state();
        let rows = state.partitions.iter().flat_map(|(pk, rows)| rows.iter().map(move |(sk, row)| (pk, sk, row)));
        let mut needing = rows.filter(|(_, sk, row)| (*sk == "META" || sk.starts_with("VER#")) && references(row));
        needing.next().map(|(pk, sk, _)| format!("{sk} of {pk}"))
    }

    /// A worker does not publish a body again that its message reports as lost.
    pub(super) fn check_lost_body_not_republished(
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
                format!("{request} of {page} reports {published} as lost and publishes it again"),
            );
        }
    }

    /// When a message that reports a lost body is acked, META references another one, unless the
    /// page is pinned.
    pub(super) fn check_lost_body_replaced(&self, message: &Message) {
        let Some(lost) = message.attributes.get(attributes::LOST) else { return };
        let Some(page) = page_of(message) else { return };
        self.checked(Property::I4);
        let state = self.state();
        let rows = self.pages.all().find(|(name, _)| **name == page).and_then(|(_, pk)| state.partitions.get(pk));
        let Some(rows) = rows else { return };
        let pinned = rows.get("HEALTH").is_some_and(|health| number(health, "pinned_at_ms").is_some());
        let tombstone = |meta: &Value| meta["tombstone"]["BOOL"].as_bool().unwrap_or(false);
        let still = meta_of(rows).is_some_and(|meta| text(&meta, "s3_key") == *lost && !tombstone(&meta));
        // Not if an operator has published that body again since, or the page was pinned: unpin
        // renders it.
        let all_the_time = state
            .histories
            .get(&page)
            .is_some_and(|history| history.pointed_since_ms <= message.sent_ms && history.wanted_ms < message.sent_ms);
        drop(state);
        let is_dead_letter =
            |dead_letter: &Message| key(dead_letter) == key(message) && page_of(dead_letter) == Some(page.clone());
        let rejected = self.queues.all_dead_letters().iter().any(is_dead_letter);
        if still && all_the_time && !pinned && !rejected {
            self.violated(Property::I4, format!("{} was acked, and {page} still references {lost}", message.id()));
        }
    }

    /// The key of the object that META of this page references.
    pub(crate) fn published_key(&self, page: &str) -> Option<String> {
        let state = self.state();
        let (_, pk) = self.pages.all().find(|(name, _)| *name == page)?;
        let meta = meta_of(state.partitions.get(pk)?)?;
        Some(text(&meta, "s3_key")).filter(|key| self.store.object(key).is_some())
    }
}

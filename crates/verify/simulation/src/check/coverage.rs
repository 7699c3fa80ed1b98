//! Coverage of requests (I1): covered when their message is acked, and visible at the end.

use everfresh_core::domain::request::IdempotencyKey;
use serde_json::Value;

use super::{Checker, Property};
use crate::queues::Message;
use crate::rows::{is_bypass, meta_of, number, text};

/// The workers' own allowance for clocks.
const EPSILON_MS: u64 = 2_000;

/// What a message requests.
#[derive(Clone, Debug)]
pub(super) enum Need {
    Revision { page: String, revision: u64, sent_ms: u64 },
    Watermark { tenant: String, tag: String, sent_ms: u64 },
}

impl Checker {
    /// Called when a queue has accepted a message.
    pub fn sent(&self, message: &Message) {
        let Ok(body) = serde_json::from_str::<Value>(&message.body) else { return };
        let tenant = body["tenant"].as_str().unwrap_or_default().to_owned();
        if message.attributes.contains_key("reason") {
            return;
        }
        let need = match (body["path"].as_str(), body["tag"].as_str(), body["reason"].as_str()) {
            (Some(path), _, None | Some("changed")) => {
                let page = format!("{tenant}{path}");
                let revision = self.sites.revision(&page);
                Need::Revision { page, revision, sent_ms: message.sent_ms }
            }
            (None, Some(tag), _) => Need::Watermark { tenant, tag: tag.to_owned(), sent_ms: message.sent_ms },
            _ => return,
        };
        let mut state = self.state();
        // The same body with the same key is the same request, made when it was first sent.
        let need = match body["idempotency_key"].as_str() {
            Some(_) => state.keyed_needs.entry(message.body.clone()).or_insert(need).clone(),
            None => need,
        };
        state.needs.insert(message.number, need);
    }

    /// A redriven dead letter has another number and the same request.
    pub fn redriven(&self, message: &Message) {
        let first = message.attributes.get("everfresh-key").and_then(|key| key.strip_prefix("m-")?.parse::<u64>().ok());
        let mut state = self.state();
        let need = first.and_then(|number| state.needs.get(&number).cloned());
        if let Some(need) = need.or_else(|| state.keyed_needs.get(&message.body).cloned()) {
            state.needs.insert(message.number, need);
        }
    }

    /// Whether a message with that key is queued.
    pub fn has_message(&self, key: &str) -> bool {
        self.queues.waiting().iter().any(|message| self::key(message) == key)
    }

    /// Called before a message is deleted.
    pub fn acked(&self, message: &Message) {
        self.check_notified_before_ack(message);
        self.check_lost_body_replaced(message);
        let Some(need) = self.state().needs.get(&message.number).cloned() else { return };
        self.checked(Property::I1);
        let covered = match &need {
            Need::Revision { page, revision, sent_ms } => {
                let state = self.state();
                state.histories.get(page).is_some_and(|history| {
                    history.published.last().is_some_and(|newest| newest >= revision)
                        || history.wanted_ms.max(history.purged_ms) >= *sent_ms
                        || history.bypassed_ms.saturating_add(EPSILON_MS) >= *sent_ms
                })
            }
            Need::Watermark { tenant, tag, sent_ms } => {
                let state = self.state();
                let rows = state.partitions.get(&format!("TENANT#{tenant}#INVAL"));
                let row = rows.and_then(|rows| rows.get(&format!("TAG#{tag}")));
                row.and_then(|row| number(row, "watermark_ms")) >= Some(*sent_ms)
            }
        };
        // Its own dead letter: same body and key, and not the one that it was redriven from.
        let is_dead_letter = |dead_letter: &Message| {
            let same = key(dead_letter) == key(message) && dead_letter.body == message.body;
            dead_letter.number == message.number || (same && dead_letter.sent_ms >= message.sent_ms)
        };
        if !covered && !self.queues.all_dead_letters().iter().any(is_dead_letter) {
            self.violated(Property::I1, format!("{} was acked, and {need:?} is not covered", message.id()));
        }
    }

    /// At the end: a page that is not pinned shows the newest requested revision, or has a dead
    /// letter.
    pub fn check_up_to_date(&self) {
        let partitions = self.state().partitions.clone();
        for (page, pk) in self.pages.all() {
            let Some(rows) = partitions.get(pk) else { continue };
            let pinned = rows.get("HEALTH").is_some_and(|health| number(health, "pinned_at_ms").is_some());
            let Some(meta) = meta_of(rows).filter(|_| !pinned) else { continue };
            self.checked(Property::I1);
            if is_bypass(&meta) {
                self.check_bypass_is_up_to_date(page, &meta);
                continue;
            }
            let shown = self.store.revision(&text(&meta, "s3_key"));
            let needed = self
                .state()
                .needs
                .values()
                .filter_map(|need| match need {
                    Need::Revision { page: of, revision, .. } if of == page => Some(*revision),
                    Need::Revision { .. } | Need::Watermark { .. } => None,
                })
                .max();
            let about_it = |dead_letter: &Message| page_of(dead_letter).as_ref() == Some(page);
            let excused = self.queues.dead_letters().iter().any(about_it);
            if shown < needed && !excused {
                self.violated(Property::I1, format!("{page} shows {shown:?} at the end, but {needed:?} was requested"));
            }
        }
    }
}

impl Checker {
    /// A page whose last render was not stored: that render began after the last request.
    fn check_bypass_is_up_to_date(&self, page: &str, meta: &Value) {
        let rendered_ms = number(meta, "source_ms").unwrap_or_default();
        let last_ms = self
            .state()
            .needs
            .values()
            .filter_map(|need| match need {
                Need::Revision { page: of, sent_ms, .. } if of == page => Some(*sent_ms),
                Need::Revision { .. } | Need::Watermark { .. } => None,
            })
            .max();
        let about_it = |dead_letter: &Message| page_of(dead_letter).as_deref() == Some(page);
        let excused = self.queues.dead_letters().iter().any(about_it);
        if last_ms.is_some_and(|last_ms| rendered_ms.saturating_add(EPSILON_MS) < last_ms) && !excused {
            let what = format!("{page} is a bypass of {rendered_ms} at the end, but was requested at {last_ms:?}");
            self.violated(Property::I1, what);
        }
    }
}

/// The idempotency key of a message: its own, the one that a rejection attached, or its id.
pub(crate) fn key(message: &Message) -> String {
    let body: Value = serde_json::from_str(&message.body).unwrap_or_default();
    let own = body["idempotency_key"].as_str().filter(|key| IdempotencyKey::parse(key).is_ok());
    let attached = message.attributes.get("everfresh-key").map(String::as_str);
    own.or(attached).map_or_else(|| message.id(), str::to_owned)
}

/// The page of a message.
pub(super) fn page_of(message: &Message) -> Option<String> {
    let body: Value = serde_json::from_str(&message.body).ok()?;
    Some(format!("{}{}", body["tenant"].as_str()?, body["path"].as_str()?))
}

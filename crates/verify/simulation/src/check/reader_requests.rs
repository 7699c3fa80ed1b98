//! What was wished for: granted when it is acked, and shown in the end.

use everfresh_core::domain::request::IdempotencyKey;
use serde_json::Value;

use super::{Checker, Property};
use crate::queues::Message;
use crate::rows::{meta_of, number, text};

/// What a message asks for.
#[derive(Clone, Debug)]
pub(super) enum Need {
    Revision { page: String, revision: u64, sent_ms: u64 },
    Watermark { tenant: String, tag: String, sent_ms: u64 },
}

impl Checker {
    /// A message was taken by a queue.
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
        // The same words under the same key are the same wish, and it was made when they were first said.
        let need = match body["idempotency_key"].as_str() {
            Some(_) => state.wishes.entry(message.body.clone()).or_insert(need).clone(),
            None => need,
        };
        state.needs.insert(message.number, need);
    }

    /// A dead letter was sent back under another number: it wants what it wanted.
    pub fn redriven(&self, message: &Message) {
        let first = message.attributes.get("everfresh-key").and_then(|key| key.strip_prefix("m-")?.parse::<u64>().ok());
        let mut state = self.state();
        let need = first.and_then(|number| state.needs.get(&number).cloned());
        if let Some(need) = need.or_else(|| state.wishes.get(&message.body).cloned()) {
            state.needs.insert(message.number, need);
        }
    }

    /// Whether a message with that key is left.
    pub fn has_message(&self, key: &str) -> bool {
        self.queues.waiting().iter().any(|message| self::key(message) == key)
    }

    /// A message is about to be forgotten by its queue.
    pub fn acked(&self, message: &Message) {
        self.tells_before_it_is_acked(message);
        self.is_replaced_before_it_is_acked(message);
        let Some(need) = self.state().needs.get(&message.number).cloned() else { return };
        self.checked(Property::I1);
        let granted = match &need {
            Need::Revision { page, revision, sent_ms } => {
                let state = self.state();
                state.histories.get(page).is_some_and(|history| {
                    history.published.last().is_some_and(|newest| newest >= revision)
                        || history.wanted_ms.max(history.purged_ms) >= *sent_ms
                })
            }
            Need::Watermark { tenant, tag, sent_ms } => {
                let state = self.state();
                let rows = state.partitions.get(&format!("TENANT#{tenant}#INVAL"));
                let row = rows.and_then(|rows| rows.get(&format!("TAG#{tag}")));
                row.and_then(|row| number(row, "watermark_ms")) >= Some(*sent_ms)
            }
        };
        // Its own letter: of the same words under the same key, and not one that it was sent back from.
        let is_letter = |letter: &Message| {
            let same = key(letter) == key(message) && letter.body == message.body;
            letter.number == message.number || (same && letter.sent_ms >= message.sent_ms)
        };
        if !granted && !self.queues.letters_ever().iter().any(is_letter) {
            self.violated(Property::I1, format!("{} was acked, and {need:?} is not granted", message.id()));
        }
    }

    /// At the end, what is not pinned shows the newest revision, or a letter says why not.
    pub fn up_to_date(&self) {
        let partitions = self.state().partitions.clone();
        for (page, pk) in self.pages.all() {
            let Some(rows) = partitions.get(pk) else { continue };
            let pinned = rows.get("HEALTH").is_some_and(|health| number(health, "pinned_at_ms").is_some());
            let Some(meta) = meta_of(rows).filter(|_| !pinned) else { continue };
            self.checked(Property::I1);
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
            let about_it = |letter: &Message| page_of(letter).as_ref() == Some(page);
            let excused = self.queues.dead_letters().iter().any(about_it);
            if shown < needed && !excused {
                self.violated(
                    Property::I1,
                    format!("{page} shows {shown:?} in the end, and {needed:?} was wished for"),
                );
            }
        }
    }
}

/// The key that a message is handled under: its own, the one that a rejection attached, or its id.
pub(super) fn key(message: &Message) -> String {
    let body: Value = serde_json::from_str(&message.body).unwrap_or_default();
    let own = body["idempotency_key"].as_str().filter(|key| IdempotencyKey::parse(key).is_ok());
    let attached = message.attributes.get("everfresh-key").map(String::as_str);
    own.or(attached).map_or_else(|| message.id(), str::to_owned)
}

/// The page that a message is about.
pub(super) fn page_of(message: &Message) -> Option<String> {
    let body: Value = serde_json::from_str(&message.body).ok()?;
    Some(format!("{}{}", body["tenant"].as_str()?, body["path"].as_str()?))
}

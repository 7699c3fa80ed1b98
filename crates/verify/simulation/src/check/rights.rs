//! Rights: a claim is changed by its owner, a lease by its holder. Another worker may take it only
//! after it expired, by a write that names the previous holder.

use everfresh_core::config::Ladder;
use serde_json::Value;

use super::requests::operations_on;
use super::{Actor, Checker, Property};
use crate::rows::{Rows, number, text};

impl Checker {
    /// Checks a worker's write against the holders before it.
    pub(super) fn check_rights(&self, actor: Actor, page: &str, request: &Value, before: &Rows, after: &Rows) {
        if actor == Actor::Operator {
            return self.check_deleted_records(page, before, after);
        }
        if actor != Actor::Worker {
            return;
        }
        for (sk, was) in before.iter().filter(|(sk, _)| sk.starts_with("REQ#")) {
            let owner = text(was, "owner");
            let touched = after.get(sk).is_some_and(|is| owned(is) != owned(was));
            let taken = after.get(sk).map(|is| text(is, "owner")).filter(|is| !is.is_empty() && *is != owner);
            if !owner.is_empty() && text(was, "status") == "STARTED" && taken.is_some() {
                self.check_expired(page, sk, number(was, "claim_expires_ms").unwrap_or_default());
            }
            match text(was, "status").as_str() {
                // A record without an owner may be taken by any worker.
                "STARTED" if touched && !owner.is_empty() => self.check_names_holder(page, request, sk, &owner),
                "COMPLETED" if touched => {
                    self.violated(Property::Rights, format!("{sk} of {page} was changed after COMPLETED"));
                }
                _ => {}
            }
        }
        match (before.get("LOCK"), after.get("LOCK")) {
            // Committed or released.
            (Some(was), None) => self.check_names_holder(page, request, "LOCK", &text(was, "lease_token")),
            (Some(was), Some(is)) if text(was, "lease_token") != text(is, "lease_token") => {
                self.check_expired(page, "LOCK", number(was, "lease_expires_at").unwrap_or_default() * 1000);
            }
            (Some(_), Some(_)) | (None, _) => {}
        }
    }

    /// An operator deletes only records whose claims have expired.
    fn check_deleted_records(&self, page: &str, before: &Rows, after: &Rows) {
        for (sk, was) in before.iter().filter(|(sk, _)| sk.starts_with("REQ#") && !after.contains_key(*sk)) {
            self.check_expired(page, sk, number(was, "claim_expires_ms").unwrap_or_default());
        }
    }

    /// With a tolerance of epsilon for the clock error that remains after correction. A worker
    /// whose wall clock steps during its first call cannot correct it and may take a right early;
    /// that costs a render, and the conditions protect the rest.
    fn check_expired(&self, page: &str, sk: &str, expires_ms: u64) {
        self.checked(Property::Rights);
        if self.clocks_are_set {
            return;
        }
        let now_ms = self.store.now_ms();
        if expires_ms > now_ms + Ladder::default().epsilon_ms {
            let left_ms = expires_ms - now_ms;
            self.violated(Property::Rights, format!("{sk} of {page} was taken {left_ms} ms before its expiry"));
        }
    }

    fn check_names_holder(&self, page: &str, request: &Value, sk: &str, holder: &str) {
        self.checked(Property::Rights);
        let names = |operation: &Value| {
            let values = operation["ExpressionAttributeValues"].as_object();
            values.is_some_and(|values| values.values().any(|value| value["S"] == holder))
        };
        if !operations_on(request, sk).into_iter().any(names) {
            self.violated(
                Property::Rights,
                format!("{sk} of {page} is held by {holder} and was changed by another worker"),
            );
        }
    }
}

/// Owner, status and expiry of a claim.
fn owned(record: &Value) -> (String, String, Value) {
    (text(record, "owner"), text(record, "status"), record["claim_expires_ms"].clone())
}

//! Who may change what: a claim its owner, a lease its holder. Others only once it has run out, by a write that names whom they take it
//! from.

use everfresh_core::config::Ladder;
use serde_json::Value;

use super::requests::operations_on;
use super::{Actor, Checker, Property};
use crate::rows::{Rows, number, text};

impl Checker {
    /// Judges a worker's write by whose the rows were before it.
    pub(super) fn rights_are_kept(&self, actor: Actor, page: &str, request: &Value, before: &Rows, after: &Rows) {
        if actor != Actor::Worker {
            return;
        }
        for (sk, was) in before.iter().filter(|(sk, _)| sk.starts_with("REQ#")) {
            let owner = text(was, "owner");
            let touched = after.get(sk).is_some_and(|is| owned(is) != owned(was));
            let taken = after.get(sk).map(|is| text(is, "owner")).filter(|is| !is.is_empty() && *is != owner);
            if !owner.is_empty() && text(was, "status") == "STARTED" && taken.is_some() {
                self.has_run_out(page, sk, number(was, "claim_expires_ms").unwrap_or_default());
            }
            match text(was, "status").as_str() {
                // A record that nobody is at may be taken by anybody.
                "STARTED" if touched && !owner.is_empty() => self.is_named(page, request, sk, &owner),
                "COMPLETED" if touched => {
                    self.violated(Property::Rights, format!("{sk} of {page} was COMPLETED, and changed after that"));
                }
                _ => {}
            }
        }
        match (before.get("LOCK"), after.get("LOCK")) {
            // Spent or dropped.
            (Some(was), None) => self.is_named(page, request, "LOCK", &text(was, "lease_token")),
            (Some(was), Some(is)) if text(was, "lease_token") != text(is, "lease_token") => {
                self.has_run_out(page, "LOCK", number(was, "lease_expires_at").unwrap_or_default() * 1000);
            }
            (Some(_), Some(_)) | (None, _) => {}
        }
    }

    /// Within what is left of a clock's error after it was corrected. A worker whose wall clock is set during its first call has nothing to
    /// correct it by, and may take something early; that costs a render, and conditions keep the rest.
    fn has_run_out(&self, page: &str, sk: &str, expires_ms: u64) {
        self.checked(Property::Rights);
        if self.clocks_are_set {
            return;
        }
        let now_ms = self.store.now_ms();
        if expires_ms > now_ms + Ladder::default().epsilon_ms {
            let left_ms = expires_ms - now_ms;
            self.violated(Property::Rights, format!("{sk} of {page} was taken {left_ms} ms before it ran out"));
        }
    }

    fn is_named(&self, page: &str, request: &Value, sk: &str, holder: &str) {
        self.checked(Property::Rights);
        let names = |operation: &Value| {
            let values = operation["ExpressionAttributeValues"].as_object();
            values.is_some_and(|values| values.values().any(|value| value["S"] == holder))
        };
        if !operations_on(request, sk).into_iter().any(names) {
            self.violated(Property::Rights, format!("{sk} of {page} was {holder}'s, and somebody else changed it"));
        }
    }
}

/// What a claim consists of.
fn owned(record: &Value) -> (String, String, Value) {
    (text(record, "owner"), text(record, "status"), record["claim_expires_ms"].clone())
}

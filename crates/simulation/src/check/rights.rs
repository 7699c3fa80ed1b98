//! Who may change what: a claim its owner, a lease its holder. Others only by a write that names whom they take it from.

use serde_json::Value;

use super::requests::operations_on;
use super::{Actor, Checker, Property};
use crate::rows::{Rows, text};

impl Checker {
    /// Judges a worker's write by whose the rows were before it.
    pub(super) fn rights_are_kept(&self, actor: Actor, page: &str, request: &Value, before: &Rows, after: &Rows) {
        if actor != Actor::Worker {
            return;
        }
        for (sk, was) in before.iter().filter(|(sk, _)| sk.starts_with("REQ#")) {
            let owner = text(was, "owner");
            let touched = after.get(sk).is_some_and(|is| owned(is) != owned(was));
            match text(was, "status").as_str() {
                // A record that nobody is at may be taken by anybody.
                "STARTED" if touched && !owner.is_empty() => self.is_named(page, request, sk, &owner),
                "COMPLETED" if touched => {
                    self.violated(Property::Rights, format!("{sk} of {page} was COMPLETED, and changed after that"));
                }
                _ => {}
            }
        }
        // At the end of its life a lease may be taken by anybody; spent and dropped it is by its holder only.
        if let (Some(was), None) = (before.get("LOCK"), after.get("LOCK")) {
            self.is_named(page, request, "LOCK", &text(was, "lease_token"));
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

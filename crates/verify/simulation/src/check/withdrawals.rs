//! Pages that are taken down: how many, and that their bodies are not served again.

use std::collections::BTreeSet;

use serde_json::Value;

use super::coverage::{key, page_of};
use super::requests::{operations_on, request_of_commit};
use super::{Actor, Checker, Property};
use crate::invocation_trace::Refusal;
use crate::queues::Message;
use crate::rows::{Rows, is_bypass, number, text};

/// The number of the event `bypassed` within an attempt.
const BYPASSED: u64 = 63;

impl Checker {
    /// Called after a version was published: notes what was taken down, and checks the limit.
    pub(super) fn check_withdrawal(
        &self,
        actor: Actor,
        page: &str,
        request: &Value,
        old: Option<&Value>,
        new: &Value,
        after: &Rows,
    ) {
        let version = text(new, "version");
        let mut state = self.state();
        let history = state.histories.entry(page.to_owned()).or_default();
        if actor == Actor::Foreign {
            // A foreign writer that moves only the pointer leaves our version next to its content.
            history.bypasses.clear();
            return;
        }
        // A 404 has a body, and takes the page down all the same.
        let withdraws = old.is_some_and(is_good_page) && !is_good_page(new);
        let expired = std::mem::take(&mut history.expired);
        if withdraws || expired || old.is_some_and(|old| is_tombstone(old) || is_bypass(old)) {
            history.shown_since = history.versions.len() - 1;
        }
        history.shown_since_of.insert(version.clone(), history.shown_since);
        let request_row = request_of_commit(request).and_then(|sk| after.get(&sk));
        if request_row.is_some_and(|row| last_event(row) == Some(BYPASSED)) {
            history.bypasses.insert(version);
        }
        drop(state);
        if actor != Actor::Worker {
            return;
        }
        self.checked(Property::Withdrawals);
        if old.is_some_and(is_good_page) && !is_good_page(new) {
            self.check_limit(page, request);
        }
    }

    /// The worker has taken the page down.
    fn check_limit(&self, page: &str, request: &Value) {
        let tenant = page.split('/').next().unwrap_or_default();
        let counted = operations_on(request, "WITHDRAWN#");
        let Some(row) = counted.first().and_then(|update| update["Key"]["sk"]["S"].as_str()) else {
            self.violated(Property::Withdrawals, format!("{page} was taken down, and that was not counted"));
            return;
        };
        let limit = self.pages.withdrawals(tenant);
        let mut state = self.state();
        let count = state.withdrawals.entry((tenant.to_owned(), row.to_owned())).or_default();
        *count += 1;
        let count = *count;
        drop(state);
        if count > limit {
            let what =
                format!("{page} is page {count} of {tenant} that was taken down in {row}, and the limit is {limit}");
            self.violated(Property::Withdrawals, what);
        }
    }

    /// Called when DynamoDB has refused a withdrawal because the tenant has none left.
    pub(crate) fn withdrawal_refused(&self, refusal: Refusal) {
        let mut state = self.state();
        let record = state.partitions.get(&refusal.pk).and_then(|rows| rows.get(&refusal.sk));
        // Not of a late copy of the commit.
        if record.is_some_and(|record| text(record, "owner") == refusal.owner) {
            state.refused.insert(refusal.owner);
        }
    }

    /// Whether the claim of that owner is still held, after its withdrawal was refused.
    pub(crate) fn is_refused(&self, owner: &str) -> bool {
        self.state().refused.contains(owner)
    }

    /// Whether it is a message of the refused request.
    pub(crate) fn is_of(&self, message: &Message, refusal: &Refusal) -> bool {
        let page = page_of(message);
        let pk = self.pages.all().find(|(name, _)| Some(*name) == page.as_ref()).map(|(_, pk)| pk);
        pk == Some(&refusal.pk) && refusal.sk == format!("REQ#{}", key(message))
    }

    pub(super) fn note_returned_claims(&self, before: &Rows, after: &Rows) {
        let mut state = self.state();
        if state.refused.is_empty() {
            return;
        }
        for (sk, was) in before.iter().filter(|(sk, _)| sk.starts_with("REQ#")) {
            let owner = text(was, "owner");
            if after.get(sk).is_none_or(|is| text(is, "owner") != owner) {
                state.refused.remove(&owner);
            }
        }
    }

    /// Called when an invocation with these refused withdrawals has reported one at least as
    /// refused: then it has given that claim back, so that it does not count as an attempt.
    pub(crate) fn check_given_back(&self, refused: &[Refusal]) {
        self.checked(Property::Withdrawals);
        if !refused.is_empty() && refused.iter().all(|refusal| self.is_refused(&refusal.owner)) {
            let what = format!("a worker reported {refused:?}, and has kept its claim");
            self.violated(Property::Withdrawals, what);
        }
    }

    /// Called after a page of `version` was served by an instance that has seen it taken down after
    /// it had served `before`.
    pub fn served_after_withdrawal(&self, page: &str, version: &str, before: &str) {
        self.checked(Property::Withdrawn);
        if version <= before {
            let what = format!("{page} was taken down after {before}, and an instance that saw it serves {version}");
            self.violated(Property::Withdrawn, what);
        }
    }

    /// Called after a page of `version` was served by an instance that has requested the bodies of
    /// the versions in `seen`: it knows that these were published.
    pub fn served(&self, page: &str, version: &str, seen: &BTreeSet<String>) {
        self.checked(Property::Withdrawn);
        let state = self.state();
        let Some(history) = state.histories.get(page) else { return };
        let place = history.versions.iter().position(|published| published == version);
        let newer = seen.iter().find(|seen| history.shown_since_of.get(*seen).copied() > place);
        let newer = newer.filter(|_| place.is_some()).cloned();
        let is_bypass = history.bypasses.contains(version);
        drop(state);
        if let Some(newer) = newer {
            let what = format!("{page} was taken down before {newer}, and an instance that saw that serves {version}");
            self.violated(Property::Withdrawn, what);
        }
        if is_bypass {
            let what = format!("a reader of {page} got a stored page under {version}, which is a bypass");
            self.violated(Property::Readers, what);
        }
    }
}

pub(super) fn is_tombstone(meta: &Value) -> bool {
    meta["tombstone"]["BOOL"].as_bool().unwrap_or(false)
}

/// A page that readers would miss. A foreign row has no status.
fn is_good_page(meta: &Value) -> bool {
    let stored = !text(meta, "s3_key").is_empty() && !is_tombstone(meta) && !is_bypass(meta);
    stored && number(meta, "status").unwrap_or(200) == 200
}

/// The number of a request's newest event, within its attempt.
fn last_event(row: &Value) -> Option<u64> {
    let events = row["events"]["L"].as_array()?;
    let numbers = events.iter().filter_map(|event| event["M"]["seq"]["N"].as_str()?.parse::<u64>().ok());
    numbers.max().map(|number| number % 100)
}

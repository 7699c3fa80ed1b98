//! Published versions: linear commits, one per request, each with its body.

use everfresh_core::domain::version::Version;
use serde_json::Value;

use super::requests::{SeenMeta, request_of_commit};
use super::{Actor, Checker, Property};
use crate::rows::{Rows, is_bypass, meta_of, number, some_text, text};

impl Checker {
    pub(super) fn page_changed(&self, actor: Actor, page: &str, request: &Value, before: &Rows, after: &Rows) {
        let (old, new) = (meta_of(before), meta_of(after));
        let (old, new) = (old.as_ref(), new.as_ref());
        if let (Some(old), None) = (old, new) {
            self.check_expiry(actor, page, old, before, after);
        }
        if let Some(new) = new
            && old.is_none_or(|old| published(old) != published(new))
        {
            self.published(actor, page, request, old, new, before);
            self.check_withdrawal(actor, page, request, old, new, after);
        }
        self.check_rights(actor, page, request, before, after);
        self.note_returned_claims(before, after);
        let is_completed = |row: &Value| text(row, "status") == "COMPLETED";
        for (sk, _) in before.iter().filter(|(sk, row)| sk.starts_with("REQ#") && is_completed(row)) {
            self.checked(Property::I5);
            if !after.get(sk).is_some_and(is_completed) {
                let now = after.get(sk).map(|row| text(row, "status"));
                self.violated(Property::I5, format!("{sk} of {page} went from COMPLETED to {now:?}"));
            }
        }
        if let Some(health) = after.get("HEALTH") {
            let wanted_ms = number(health, "wanted_at_ms").unwrap_or_default();
            let mut state = self.state();
            let history = state.histories.entry(page.to_owned()).or_default();
            history.wanted_ms = history.wanted_ms.max(wanted_ms);
        }
    }

    /// META has another version or another body.
    fn published(&self, actor: Actor, page: &str, request: &Value, old: Option<&Value>, new: &Value, before: &Rows) {
        let mut state = self.state();
        state.commits += 1;
        state.histories.entry(page.to_owned()).or_default().versions.push(text(new, "version"));
        drop(state);
        self.check_linear(actor, page, request, old, new);
        self.expect_notification(actor, page, request, old, new);
        self.check_one_commit(page, request);
        self.check_lost_body_not_republished(actor, page, request, old, new);
        let tombstone = new["tombstone"]["BOOL"].as_bool().unwrap_or(false);
        if tombstone {
            let purged_ms = number(new, "source_ms").unwrap_or_default();
            self.state().histories.entry(page.to_owned()).or_default().purged_ms = purged_ms;
        }
        if is_bypass(new) {
            self.check_bypass(page, new);
        }
        let shown = if tombstone || is_bypass(new) { None } else { self.check_body(page, new) };
        self.checked(Property::Pin);
        let pinned = before.get("HEALTH").is_some_and(|health| number(health, "pinned_at_ms").is_some());
        if pinned && actor == Actor::Worker {
            self.violated(Property::Pin, format!("a worker published {page} while it is pinned"));
        }
        if let Some(revision) = shown {
            let mut state = self.state();
            let history = state.histories.entry(page.to_owned()).or_default();
            let newest = history.published.last().copied();
            history.published.insert(revision);
            drop(state);
            // An operator may publish an older revision, a worker may not. The comparison is with
            // the replaced version: after a foreign row or a rollback the newest revision is not
            // published.
            let old_revision = old.and_then(|old| self.store.revision(&text(old, "s3_key")));
            if actor == Actor::Worker && old_revision.is_some_and(|old| old > revision) {
                let what = format!("{page} went from revision {old_revision:?} back to {revision} (newest {newest:?})");
                self.violated(Property::I2, what);
            }
        }
    }

    fn check_linear(&self, actor: Actor, page: &str, request: &Value, old: Option<&Value>, new: &Value) {
        self.checked(Property::I2);
        let version = |row: &Value| text(row, "version").parse::<Version>().ok();
        let (old_version, new_version) = (old.and_then(version), version(new));
        // Foreign rows have no version of ours.
        if actor == Actor::Foreign {
            return;
        }
        if let (Some(old), Some(new)) = (old_version, new_version)
            && old >= new
        {
            self.violated(Property::I2, format!("{page}: version {new} follows {old}"));
        }
        let seen = SeenMeta::of(request);
        let saw_it = match old {
            None => seen == SeenMeta::default(),
            Some(old) => match &seen.key {
                Some(key) => old_version.is_none() && text(old, "s3_key") == *key,
                None => seen.version == some_text(old, "version") && seen.sk == some_text(old, "current_sk"),
            },
        };
        if !saw_it {
            let old = old.map(|old| (text(old, "version"), text(old, "s3_key")));
            self.violated(Property::I2, format!("{page}: a commit that saw {seen:?} replaced {old:?}"));
        }
    }

    fn check_one_commit(&self, page: &str, request: &Value) {
        let Some(key) = request_of_commit(request) else { return };
        self.checked(Property::I3);
        let mut state = self.state();
        let commits = state.histories.entry(page.to_owned()).or_default().commits.entry(key.clone()).or_default();
        *commits += 1;
        let commits = *commits;
        drop(state);
        if commits > 1 {
            self.violated(Property::I3, format!("{key} of {page} was committed {commits} times"));
        }
    }

    pub(super) fn watermarks_changed(&self, pk: &str, before: &Rows, after: &Rows) {
        for (sk, row) in after {
            let was = before.get(sk).and_then(|row| number(row, "watermark_ms"));
            self.checked(Property::I1);
            if number(row, "watermark_ms") < was {
                self.violated(Property::I1, format!("the watermark {sk} of {pk} went back"));
            }
        }
    }
}

/// The part of META that identifies the published content. An invalidation does not change it.
fn published(meta: &Value) -> (String, String, bool) {
    (text(meta, "version"), text(meta, "s3_key"), meta["tombstone"]["BOOL"].as_bool().unwrap_or(false))
}

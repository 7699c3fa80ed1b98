//! Pages that the sweep removes because they were not regenerated any more.

use serde_json::Value;

use super::withdrawals::is_tombstone;
use super::{Actor, Checker, Property};
use crate::rows::{Rows, number, some_text};

impl Checker {
    /// Called when META of the page is gone: only the sweep removes it, with HEALTH, and only if no
    /// rule of the page's keeps it.
    pub(super) fn check_expiry(&self, actor: Actor, page: &str, old: &Value, before: &Rows, after: &Rows) {
        self.checked(Property::I2);
        let life_s = number(old, "revalidate_seconds").unwrap_or_default() + self.expire_after_s;
        let ends_s = number(old, "generated_at").unwrap_or_default() + life_s;
        let pinned = before.get("HEALTH").is_some_and(|health| number(health, "pinned_at_ms").is_some());
        let kept_by = [
            (actor != Actor::Maintenance, "it was no sweep"),
            (!self.pages.may_expire(page), "its route keeps it"),
            (some_text(old, "version").is_none(), "it is a foreign row"),
            (is_tombstone(old), "it is purged"),
            (pinned, "it is pinned"),
            (old["pending_notification"].is_object(), "a notification is pending"),
            // With the allowance for clocks.
            (ends_s > self.store.now_ms() / 1_000 + 2, "its life is not over"),
            (after.contains_key("HEALTH"), "HEALTH stays"),
        ];
        if let Some((_, why)) = kept_by.into_iter().find(|(keeps, _)| *keeps) {
            self.violated(Property::I2, format!("META of {page} vanished, and {why}"));
        }
        self.state().histories.entry(page.to_owned()).or_default().expired = true;
    }
}

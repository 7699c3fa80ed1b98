//! When a reader's visit asks for a regeneration, and when it does not.
//!
//! A thousand readers of one stale page are one wish. Having asked, an instance does not ask again about the same version for a
//! window that doubles each time; it is never closed for good, for the regeneration may have failed. And a crawler that walks
//! through every page of a tenant cannot start more than the tenant's budget.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use everfresh_core::domain::page::Seen;
use everfresh_core::domain::page_key::{PageKey, Tenant};
use everfresh_core::domain::request::Reason;
use lru::LruCache;

/// How long after the first wish about a version the same instance stays quiet.
const FIRST_WINDOW_MS: u64 = 5_000;
const LONGEST_WINDOW_MS: u64 = 300_000;

/// Pages that are remembered. One that is forgotten may be asked for again, which is no harm.
const MOST_PAGES: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// What a wish is about: another version, or another reason, is another wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) seen: Seen,
    pub(crate) reason: Reason,
    /// The body is gone.
    pub(crate) lost: bool,
}

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Ask.
    Ask,
    /// This instance has asked a moment ago.
    Suppressed,
    /// The tenant's readers have asked for too much.
    OverBudget,
}

/// The wishes of one instance.
#[derive(Debug)]
pub(crate) struct Asks {
    asked: LruCache<PageKey, Asked>,
    budgets: HashMap<Tenant, Budget>,
    per_minute: u32,
}

#[derive(Debug)]
struct Asked {
    about: About,
    at_ms: u64,
    window_ms: u64,
}

/// A bucket of wishes that fills evenly, in thousandths.
#[derive(Debug)]
struct Budget {
    left: u64,
    at_ms: u64,
}

impl Asks {
    /// A tenant's readers may start `per_minute` regenerations a minute through this instance, and as many at once.
    pub(crate) fn new(per_minute: u32) -> Self {
        Self { asked: LruCache::new(MOST_PAGES), budgets: HashMap::new(), per_minute }
    }

    /// Whether to ask. Who is told to must do so, or say that it failed.
    pub(crate) fn decide(&mut self, page: &PageKey, about: About, now_ms: u64) -> Decision {
        let before = self.asked.get(page).filter(|asked| asked.about == about);
        // A clock that jumped back must not keep a page quiet for longer than its window.
        if before.is_some_and(|asked| now_ms.abs_diff(asked.at_ms) < asked.window_ms) {
            return Decision::Suppressed;
        }
        let window_ms = before.map_or(FIRST_WINDOW_MS, |asked| (asked.window_ms * 2).min(LONGEST_WINDOW_MS));
        if !self.spend(page.tenant(), now_ms) {
            return Decision::OverBudget;
        }
        self.asked.put(page.clone(), Asked { about, at_ms: now_ms, window_ms });
        Decision::Ask
    }

    /// The wish did not reach the queue: the next reader may try again.
    pub(crate) fn failed(&mut self, page: &PageKey) {
        self.asked.pop(page);
    }

    fn spend(&mut self, tenant: &Tenant, now_ms: u64) -> bool {
        let full = u64::from(self.per_minute) * 1000;
        if !self.budgets.contains_key(tenant) {
            self.budgets.insert(tenant.clone(), Budget { left: full, at_ms: now_ms });
        }
        let Some(budget) = self.budgets.get_mut(tenant) else { return false };
        let passed_ms = now_ms.saturating_sub(budget.at_ms);
        budget.left = (budget.left + passed_ms.saturating_mul(u64::from(self.per_minute)) / 60).min(full);
        budget.at_ms = now_ms;
        let enough = budget.left >= 1000;
        if enough {
            budget.left -= 1000;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::domain::page_key::CanonicalPath;
    use everfresh_core::domain::version::Version;
    use proptest::prelude::*;

    fn page(tenant: &str, path: &str) -> PageKey {
        PageKey::new(Tenant::parse(tenant).unwrap(), CanonicalPath::stored(path).unwrap())
    }

    fn about(version: u64, reason: Reason) -> About {
        let seen = Seen::Version { version: Version::next(version, None, None, 0), current_sk: None };
        About { seen, reason, lost: false }
    }

    #[test]
    fn one_wish_per_version_and_window_and_the_window_doubles() {
        let mut asks = Asks::new(1000);
        let (page, about) = (page("acme", "/a"), about(1, Reason::Expired));
        let mut asked_at = Vec::new();
        for now_ms in (0..200_000).step_by(1000) {
            if asks.decide(&page, about.clone(), now_ms) == Decision::Ask {
                asked_at.push(now_ms / 1000);
            }
        }
        assert_eq!(asked_at, [0, 5, 15, 35, 75, 155]);
    }

    #[test]
    fn another_version_or_reason_is_another_wish() {
        let mut asks = Asks::new(1000);
        let page = page("acme", "/a");
        for wish in [about(1, Reason::Expired), about(2, Reason::Expired), about(2, Reason::Changed)] {
            assert_eq!(asks.decide(&page, wish.clone(), 0), Decision::Ask);
            assert_eq!(asks.decide(&page, wish, 1), Decision::Suppressed);
        }
        let lost = About { lost: true, ..about(2, Reason::Changed) };
        assert_eq!(asks.decide(&page, lost, 1), Decision::Ask);
    }

    #[test]
    fn a_failed_send_lifts_the_suppression() {
        let mut asks = Asks::new(1000);
        let (page, wish) = (page("acme", "/a"), about(1, Reason::Expired));
        asks.decide(&page, wish.clone(), 0);
        asks.failed(&page);
        assert_eq!(asks.decide(&page, wish, 1), Decision::Ask);
    }

    #[test]
    fn a_crawler_spends_its_tenants_budget_and_nobody_elses() {
        let mut asks = Asks::new(60);
        let wish = || about(1, Reason::Expired);
        let started = |asks: &mut Asks, tenant: &str, from: u32, now_ms| {
            let ask = |n| asks.decide(&page(tenant, &format!("/{n}")), wish(), now_ms) == Decision::Ask;
            (from..from + 500).map(ask).filter(|asked| *asked).count()
        };
        assert_eq!(started(&mut asks, "acme", 0, 0), 60);
        assert_eq!(started(&mut asks, "globex", 0, 0), 60);
        assert_eq!(started(&mut asks, "acme", 1000, 10_000), 10, "one a second comes back");
        assert_eq!(started(&mut asks, "acme", 2000, 10_000_000), 60, "and never more than a minute's worth");
    }

    #[test]
    fn a_clock_that_jumps_back_silences_nobody_for_long() {
        let mut asks = Asks::new(60);
        let (page, wish) = (page("acme", "/a"), about(1, Reason::Expired));
        asks.decide(&page, wish.clone(), 10_000_000);
        assert_eq!(asks.decide(&page, wish, 1_000), Decision::Ask);
    }

    proptest! {
        #[test]
        fn the_budget_holds_whatever_the_clock_does(times in prop::collection::vec(0u64..120_000, 1..300)) {
            let mut asks = Asks::new(30);
            let asked = times.iter().enumerate().filter(|(n, now_ms)| {
                asks.decide(&page("acme", &format!("/{n}")), about(1, Reason::Expired), **now_ms) == Decision::Ask
            });
            // At most the bucket and what every forward step of the clock brings.
            let count = asked.count() as u64;
            let forward: u64 = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).sum();
            prop_assert!(count <= 30 + forward * 30 / 60_000 + 1);
        }
    }
}

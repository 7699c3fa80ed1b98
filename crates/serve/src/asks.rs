//! When a reader's visit asks for a regeneration, and when it does not.
//!
//! A thousand readers of one stale page are one wish. Having asked, an instance does not ask again about the same version for a
//! window that doubles each time; it is never closed for good, for the regeneration may have failed. And a crawler that walks
//! through every page of a tenant cannot start more than the tenant's budget. Where there is no page, or only the word that there is none,
//! a budget of its own is spent: whoever invents addresses keeps no page from being refreshed. What does not reach the queue costs nothing.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::{PageKey, Tenant};
use everfresh_core::domain::request::Reason;
use everfresh_core::ledger::Seen;
use lru::LruCache;

use crate::budget::TokenBucket;

/// How long after the first wish about a version the same instance stays quiet.
const FIRST_WINDOW_MS: u64 = 5_000;
const LONGEST_WINDOW_MS: u64 = 300_000;

/// Wishes that are remembered. One that is forgotten may be made again, which is no harm.
const MOST_WISHES: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// What a wish is about. Another reason is another wish with a window of its own: two that take turns do not open each other's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct About {
    pub(crate) page: PageKey,
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
    RateLimited,
}

/// The wishes of one instance.
#[derive(Debug)]
pub(crate) struct EnqueueLimiter {
    asked: LruCache<About, Asked>,
    budgets: HashMap<(Tenant, Share), TokenBucket>,
    per_minute: u32,
}

/// Which of a tenant's two budgets a wish is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Share {
    Pages,
    /// Nothing is published there, or a 404, or a redirect: what an invented address gets.
    Nothing,
}

impl Share {
    fn of(meta: Option<&Meta>) -> Self {
        // Another language's row tells no status, and is a page.
        match meta.map(|meta| meta.status.unwrap_or(200)) {
            Some(200) => Share::Pages,
            Some(_) | None => Share::Nothing,
        }
    }
}

#[derive(Debug)]
struct Asked {
    /// The version it was made about.
    seen: Seen,
    share: Share,
    at_ms: u64,
    window_ms: u64,
}

impl EnqueueLimiter {
    /// A tenant's readers may start `per_minute` regenerations a minute through this instance, and as many at once; and as many again
    /// where there is no page.
    pub(crate) fn new(per_minute: u32) -> Self {
        Self { asked: LruCache::new(MOST_WISHES), budgets: HashMap::new(), per_minute }
    }

    /// Whether to ask, about what is published now. Who is told to must do so, or say that it failed.
    pub(crate) fn decide(&mut self, about: About, meta: Option<&Meta>, now_ms: u64) -> Decision {
        let (seen, share) = (Seen::of(meta), Share::of(meta));
        let before = self.asked.get(&about).filter(|asked| asked.seen == seen);
        // A clock that jumped back must not keep a page quiet for longer than its window.
        if before.is_some_and(|asked| now_ms.abs_diff(asked.at_ms) < asked.window_ms) {
            return Decision::Suppressed;
        }
        let window_ms = before.map_or(FIRST_WINDOW_MS, |asked| (asked.window_ms * 2).min(LONGEST_WINDOW_MS));
        if !self.spend((about.page.tenant().clone(), share), now_ms) {
            return Decision::RateLimited;
        }
        self.asked.put(about, Asked { seen, share, at_ms: now_ms, window_ms });
        Decision::Ask
    }

    /// The wish did not reach the queue: the next reader may try again, and the tenant has its share of the budget back.
    pub(crate) fn failed(&mut self, about: &About) {
        let Some(asked) = self.asked.pop(about) else { return };
        if let Some(budget) = self.budgets.get_mut(&(about.page.tenant().clone(), asked.share)) {
            budget.give_back();
        }
    }

    fn spend(&mut self, share: (Tenant, Share), now_ms: u64) -> bool {
        self.budgets.entry(share).or_insert_with(|| TokenBucket::new(self.per_minute, now_ms)).spend(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::domain::page_key::CanonicalPath;
    use everfresh_core::domain::version::Version;
    use proptest::prelude::*;

    fn about(tenant: &str, path: &str, reason: Reason) -> About {
        let page = PageKey::new(Tenant::parse(tenant).unwrap(), CanonicalPath::stored(path).unwrap());
        About { page, reason, lost: false }
    }

    fn version(number: u64) -> Option<&'static Meta> {
        with_status(number, Some(200))
    }

    fn with_status(number: u64, status: Option<u16>) -> Option<&'static Meta> {
        let version = Some(Version::next(number, None, None, 0));
        Some(Box::leak(Box::new(Meta { version, status, ..Meta::default() })))
    }

    #[test]
    fn one_wish_per_version_and_window_and_the_window_doubles() {
        let mut asks = EnqueueLimiter::new(1000);
        let about = about("acme", "/a", Reason::Expired);
        let mut asked_at = Vec::new();
        for now_ms in (0..200_000).step_by(1000) {
            if asks.decide(about.clone(), version(1), now_ms) == Decision::Ask {
                asked_at.push(now_ms / 1000);
            }
        }
        assert_eq!(asked_at, [0, 5, 15, 35, 75, 155]);
    }

    #[test]
    fn another_version_or_reason_is_another_wish() {
        let mut asks = EnqueueLimiter::new(1000);
        for (seen, reason) in [(1, Reason::Expired), (2, Reason::Expired), (2, Reason::Changed)] {
            let about = about("acme", "/a", reason);
            assert_eq!(asks.decide(about.clone(), version(seen), 0), Decision::Ask);
            assert_eq!(asks.decide(about, version(seen), 1), Decision::Suppressed);
        }
        let lost = About { lost: true, ..about("acme", "/a", Reason::Changed) };
        assert_eq!(asks.decide(lost, version(2), 1), Decision::Ask);
    }

    #[test]
    fn wishes_of_one_page_that_take_turns_do_not_open_each_others_windows() {
        let mut asks = EnqueueLimiter::new(1000);
        let lost = About { lost: true, ..about("acme", "/a", Reason::Changed) };
        let all = [about("acme", "/a", Reason::Expired), about("acme", "/a", Reason::Changed), lost];
        let mut asked = 0;
        for now_ms in (0..200_000).step_by(1000) {
            let ask = |about: &About| asks.decide(about.clone(), version(1), now_ms) == Decision::Ask;
            asked += all.iter().map(ask).filter(|asked| *asked).count();
        }
        assert_eq!(asked, 3 * 6, "as often as each would alone");
    }

    #[test]
    fn a_failed_send_lifts_the_suppression() {
        let mut asks = EnqueueLimiter::new(1000);
        let about = about("acme", "/a", Reason::Expired);
        asks.decide(about.clone(), version(1), 0);
        asks.failed(&about);
        assert_eq!(asks.decide(about, version(1), 1), Decision::Ask);
    }

    #[test]
    fn a_failed_send_costs_the_tenant_nothing() {
        let mut asks = EnqueueLimiter::new(1);
        let about = about("acme", "/a", Reason::Expired);
        for _ in 0..100 {
            assert_eq!(asks.decide(about.clone(), version(1), 0), Decision::Ask);
            asks.failed(&about);
        }
        asks.failed(&about);
        assert_eq!(asks.decide(about.clone(), version(1), 0), Decision::Ask);
        assert_eq!(asks.decide(about, version(2), 0), Decision::RateLimited, "and never gives it more than it has");
    }

    #[test]
    fn a_crawler_spends_its_tenants_budget_and_nobody_elses() {
        let mut asks = EnqueueLimiter::new(60);
        let started = |asks: &mut EnqueueLimiter, tenant: &str, from: u32, now_ms| {
            let about = |n| about(tenant, &format!("/{n}"), Reason::Expired);
            let ask = |n| asks.decide(about(n), version(1), now_ms) == Decision::Ask;
            (from..from + 500).map(ask).filter(|asked| *asked).count()
        };
        assert_eq!(started(&mut asks, "acme", 0, 0), 60);
        assert_eq!(started(&mut asks, "globex", 0, 0), 60);
        assert_eq!(started(&mut asks, "acme", 1000, 10_000), 10, "one a second comes back");
        assert_eq!(started(&mut asks, "acme", 2000, 10_000_000), 60, "and never more than a minute's worth");
    }

    #[test]
    fn invented_addresses_keep_no_published_page_from_being_refreshed() {
        let mut asks = EnqueueLimiter::new(60);
        let invented = |n| about("acme", &format!("/{n}"), Reason::Expired);
        let asked = (0..500).filter(|n| asks.decide(invented(*n), None, 0) == Decision::Ask).count();
        assert_eq!(asked, 60);
        // By now some of them are known not to exist, or to be elsewhere.
        for status in [301, 308, 404, 410] {
            assert_eq!(asks.decide(invented(2000), with_status(1, Some(status)), 0), Decision::RateLimited, "{status}");
        }
        for (path, status) in [("/a", Some(200)), ("/others", None)] {
            let published = about("acme", path, Reason::Expired);
            assert_eq!(asks.decide(published, with_status(1, status), 0), Decision::Ask, "{path}");
        }
        // What did not reach the queue comes back to where it was taken from.
        asks.failed(&invented(0));
        assert_eq!(asks.decide(invented(1000), None, 0), Decision::Ask);
        assert_eq!(asks.decide(invented(1001), None, 0), Decision::RateLimited);
    }

    #[test]
    fn a_clock_that_jumps_back_silences_nobody_for_long() {
        let mut asks = EnqueueLimiter::new(60);
        let about = about("acme", "/a", Reason::Expired);
        asks.decide(about.clone(), version(1), 10_000_000);
        assert_eq!(asks.decide(about, version(1), 1_000), Decision::Ask);
    }

    proptest! {
        #[test]
        fn the_budget_holds_whatever_the_clock_does(times in prop::collection::vec(0u64..120_000, 1..300)) {
            let mut asks = EnqueueLimiter::new(30);
            let asked = times.iter().enumerate().filter(|(n, now_ms)| {
                let about = about("acme", &format!("/{n}"), Reason::Expired);
                asks.decide(about, version(1), **now_ms) == Decision::Ask
            });
            // At most the bucket and what every forward step of the clock brings.
            let count = asked.count() as u64;
            let forward: u64 = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).sum();
            prop_assert!(count <= 30 + forward * 30 / 60_000 + 1);
        }
    }
}

//! How long others may keep an answer.
//!
//! Browsers keep nothing without asking (`max-age=0`); shared caches keep a page for what is left of its life, so no `Age` is needed.
//! `s-maxage` forbids a strict cache to serve the page stale, so the same is said once more in `CDN-Cache-Control` (RFC 9213).

use everfresh_core::domain::freshness::{Freshness, Policy};

/// The longest that a copy may be served while a newer one is fetched. Browsers obey it too, so it is short.
pub const MOST_WHILE_REVALIDATE: u64 = 60;

/// How long a copy may be served while nothing newer can be had, unless the route says how stale its pages may become.
pub const STALE_IF_ERROR: u64 = 86_400;

/// How long a shared cache keeps a page that is stale already: long enough to take the load of a crowd, far too short to hide the
/// new one.
pub const STALE_SHARED: u64 = 2;

/// How long a shared cache keeps a refusal or a tombstone.
pub const REFUSED_SHARED: u64 = 10;

/// What others may do with an answer, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Shared caches keep it so long.
    pub shared: u64,
    /// Then they may serve it so much longer while they fetch a new one.
    pub while_revalidate: u64,
    /// Or so much longer while no new one can be had.
    pub if_error: u64,
}

/// What others may do with a page of this freshness that has been stale for `stale_ms`.
///
/// Nobody serves it beyond `max_stale` while a new one can be had. That nothing can be had is another matter: then everybody, this
/// side included, serves what there is.
pub fn keeping(freshness: &Freshness, policy: &Policy, stale_ms: u64, now_ms: u64) -> Keeping {
    let shared = match freshness {
        // Whole seconds, rounded up. Rounded down, the last second would be 0, which Varnish takes for a page that cannot be kept: for
        // two minutes it hands every reader on, one by one, and forgets the copy that it has.
        Freshness::Fresh { until_ms } => until_ms.saturating_sub(now_ms).div_ceil(1000),
        Freshness::Stale { .. } => STALE_SHARED,
        // Somebody waits for a new one at this very moment.
        Freshness::Expired { .. } => 0,
        Freshness::Missing | Freshness::Gone => REFUSED_SHARED,
    };
    let if_error = policy.max_stale_seconds.unwrap_or(STALE_IF_ERROR);
    let left = policy.max_stale_seconds.map(|seconds| seconds.saturating_sub(stale_ms.div_ceil(1000)));
    let while_revalidate = match freshness {
        Freshness::Expired { .. } => 0,
        Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Missing | Freshness::Gone => {
            left.unwrap_or(MOST_WHILE_REVALIDATE).min(MOST_WHILE_REVALIDATE)
        }
    };
    Keeping { shared, while_revalidate, if_error }
}

impl Keeping {
    /// `Cache-Control`, for browsers and every shared cache.
    pub fn cache_control(&self) -> String {
        let Keeping { shared, while_revalidate, if_error } = self;
        format!(
            "public, max-age=0, s-maxage={shared}, stale-while-revalidate={while_revalidate}, stale-if-error={if_error}"
        )
    }

    /// `CDN-Cache-Control`, for CDNs that read it, in place of the above.
    pub fn cdn_cache_control(&self) -> String {
        let Keeping { shared, while_revalidate, if_error } = self;
        format!("max-age={shared}, stale-while-revalidate={while_revalidate}, stale-if-error={if_error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::domain::freshness::Why;

    fn policy(max_stale_seconds: Option<u64>) -> Policy {
        Policy { deploy: 1, max_stale_seconds, epsilon_ms: 2_000 }
    }

    #[test]
    fn shared_caches_keep_a_page_for_what_is_left_of_its_life() {
        let now_ms = 1_000_000;
        for (freshness, shared) in [
            (Freshness::Fresh { until_ms: now_ms + 43_000 }, 43),
            (Freshness::Fresh { until_ms: now_ms + 43_999 }, 44),
            (Freshness::Fresh { until_ms: now_ms + 999 }, 1),
            (Freshness::Fresh { until_ms: now_ms + 1 }, 1),
            (Freshness::Fresh { until_ms: now_ms - 1 }, 0),
            (Freshness::Stale { why: Why::Age }, 2),
            (Freshness::Stale { why: Why::Invalidated }, 2),
            (Freshness::Expired { why: Why::Age }, 0),
            (Freshness::Gone, 10),
        ] {
            assert_eq!(keeping(&freshness, &policy(None), 0, now_ms).shared, shared, "{freshness:?}");
        }
    }

    #[test]
    fn a_copy_outlives_its_life_as_long_as_the_route_allows() {
        let fresh = Freshness::Fresh { until_ms: 10_000 };
        for (max_stale, while_revalidate, if_error) in
            [(None, 60, 86_400), (Some(3_600), 60, 3_600), (Some(5), 5, 5), (Some(0), 0, 0)]
        {
            let keeping = keeping(&fresh, &policy(max_stale), 0, 0);
            assert_eq!((keeping.while_revalidate, keeping.if_error), (while_revalidate, if_error));
        }
    }

    #[test]
    fn a_copy_that_is_stale_already_is_given_what_is_left_and_an_expired_one_nothing() {
        let stale = Freshness::Stale { why: Why::Age };
        for (max_stale, stale_ms, while_revalidate) in [
            (Some(8), 7_000, 1),
            (Some(8), 7_001, 0),
            (Some(8), 9_000, 0),
            (Some(3_600), 7_000, 60),
            (None, 90_000_000, 0),
        ] {
            let keeping = keeping(&stale, &policy(max_stale), stale_ms, 0);
            assert_eq!(keeping.while_revalidate, while_revalidate, "{max_stale:?} {stale_ms}");
        }
        let expired = keeping(&Freshness::Expired { why: Why::Age }, &policy(Some(8)), 9_000, 0);
        assert_eq!((expired.while_revalidate, expired.if_error), (0, 8));
    }

    #[test]
    fn headers_are_written_one_way() {
        let keeping = Keeping { shared: 43, while_revalidate: 60, if_error: 3600 };
        let browser = "public, max-age=0, s-maxage=43, stale-while-revalidate=60, stale-if-error=3600";
        assert_eq!(keeping.cache_control(), browser);
        assert_eq!(keeping.cdn_cache_control(), "max-age=43, stale-while-revalidate=60, stale-if-error=3600");
        assert!(!browser.contains("must-revalidate"));
    }
}

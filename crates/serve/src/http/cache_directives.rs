//! How long caches may keep a response.
//!
//! Browsers revalidate every time (`max-age=0`); shared caches keep a page for the rest of its
//! lifetime, so no `Age` is needed. `s-maxage` forbids a strict cache to serve the page stale, so
//! the same is repeated in `CDN-Cache-Control` (RFC 9213).

use everfresh_core::domain::freshness::Freshness;

/// Upper bound of `stale-while-revalidate`, in seconds. Browsers obey it too, so it is short.
pub const MOST_WHILE_REVALIDATE: u64 = 60;

/// `stale-if-error` in seconds, unless the route sets `max_stale`.
pub const STALE_IF_ERROR: u64 = 86_400;

/// How long a shared cache keeps a page that is stale already, in seconds: long enough to absorb a
/// burst, too short to delay the new version.
pub const STALE_SHARED: u64 = 2;

/// How long a shared cache keeps an error or a tombstone, in seconds.
pub const REFUSED_SHARED: u64 = 10;

/// What caches may do with a response, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheDirectives {
    /// `s-maxage`.
    pub shared: u64,
    /// `stale-while-revalidate`.
    pub while_revalidate: u64,
    /// `stale-if-error`.
    pub if_error: u64,
}

/// The directives for a page of this freshness that has been stale for `stale_ms`.
///
/// No cache serves it beyond `max_stale` while a newer version is available. During an outage every
/// cache, this side included, serves the version it has.
pub fn cache_directives(
    freshness: &Freshness,
    max_stale_seconds: Option<u64>,
    stale_ms: u64,
    now_ms: u64,
) -> CacheDirectives {
    let shared = match freshness {
        // Rounded up. Rounded down, the last second would be 0, which Varnish takes for an
        // uncacheable page: for two minutes it passes every request on and drops its copy.
        Freshness::Fresh { until_ms } => until_ms.saturating_sub(now_ms).div_ceil(1000),
        Freshness::Stale { .. } => STALE_SHARED,
        // Requests are waiting for a new version.
        Freshness::Expired { .. } | Freshness::Bypass { .. } => 0,
        Freshness::Missing | Freshness::Gone => REFUSED_SHARED,
    };
    let if_error = max_stale_seconds.unwrap_or(STALE_IF_ERROR);
    let left = max_stale_seconds.map(|seconds| seconds.saturating_sub(stale_ms.div_ceil(1000)));
    let while_revalidate = match freshness {
        Freshness::Expired { .. } | Freshness::Bypass { .. } => 0,
        Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Missing | Freshness::Gone => {
            left.unwrap_or(MOST_WHILE_REVALIDATE).min(MOST_WHILE_REVALIDATE)
        }
    };
    CacheDirectives { shared, while_revalidate, if_error }
}

impl CacheDirectives {
    /// For browsers and every shared cache.
    pub fn cache_control(&self) -> String {
        let CacheDirectives { shared, while_revalidate, if_error } = self;
        format!(
            "public, max-age=0, s-maxage={shared}, stale-while-revalidate={while_revalidate}, stale-if-error={if_error}"
        )
    }

    /// For CDNs that read it in place of `Cache-Control`.
    pub fn cdn_cache_control(&self) -> String {
        let CacheDirectives { shared, while_revalidate, if_error } = self;
        format!("max-age={shared}, stale-while-revalidate={while_revalidate}, stale-if-error={if_error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::domain::freshness::Why;

    #[test]
    fn s_maxage_is_the_rest_of_the_lifetime() {
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
            assert_eq!(cache_directives(&freshness, None, 0, now_ms).shared, shared, "{freshness:?}");
        }
    }

    #[test]
    fn stale_directives_follow_the_route() {
        let fresh = Freshness::Fresh { until_ms: 10_000 };
        for (max_stale, while_revalidate, if_error) in
            [(None, 60, 86_400), (Some(3_600), 60, 3_600), (Some(5), 5, 5), (Some(0), 0, 0)]
        {
            let directives = cache_directives(&fresh, max_stale, 0, 0);
            assert_eq!((directives.while_revalidate, directives.if_error), (while_revalidate, if_error));
        }
    }

    #[test]
    fn stale_page_gets_the_rest_of_max_stale_and_expired_none() {
        let stale = Freshness::Stale { why: Why::Age };
        for (max_stale, stale_ms, while_revalidate) in [
            (Some(8), 7_000, 1),
            (Some(8), 7_001, 0),
            (Some(8), 9_000, 0),
            (Some(3_600), 7_000, 60),
            (None, 90_000_000, 60),
        ] {
            let directives = cache_directives(&stale, max_stale, stale_ms, 0);
            assert_eq!(directives.while_revalidate, while_revalidate, "{max_stale:?} {stale_ms}");
        }
        let expired = cache_directives(&Freshness::Expired { why: Why::Age }, Some(8), 9_000, 0);
        assert_eq!((expired.while_revalidate, expired.if_error), (0, 8));
    }

    #[test]
    fn headers_have_all_directives() {
        let directives = CacheDirectives { shared: 43, while_revalidate: 60, if_error: 3600 };
        let browser = "public, max-age=0, s-maxage=43, stale-while-revalidate=60, stale-if-error=3600";
        assert_eq!(directives.cache_control(), browser);
        assert_eq!(directives.cdn_cache_control(), "max-age=43, stale-while-revalidate=60, stale-if-error=3600");
        assert!(!browser.contains("must-revalidate"));
    }
}

//! `Cache-Status` (RFC 9211): how this layer handled the request, and why.

use std::fmt;

use everfresh_core::domain::freshness::{Freshness, Why};

/// Why the published version could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    DynamoDb,
    S3,
    /// The page's row cannot be parsed.
    Row,
    /// The response deadline has passed.
    Time,
}

impl Outage {
    pub fn as_str(self) -> &'static str {
        match self {
            Outage::DynamoDb => "dynamodb-down",
            Outage::S3 => "s3-down",
            Outage::Row => "row-unreadable",
            Outage::Time => "out-of-time",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheStatus {
    /// A published version was served.
    Hit {
        freshness: Freshness,
        /// Seconds until it becomes stale; negative if it is.
        ttl: i64,
        /// Why this may not be the published version.
        outage: Option<Outage>,
    },
    /// The request waited for a regeneration, which was published in time.
    Waited {
        /// Seconds until it becomes stale.
        ttl: i64,
    },
    /// There is no page to serve.
    Miss { detail: &'static str },
    /// The request is not for a page, or nothing of the page is stored.
    Bypass { detail: &'static str },
    /// Its method is not one that a stored page answers.
    Method,
    /// A header of the request excludes the stored page.
    Request { detail: &'static str },
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheStatus::Hit { freshness, ttl, outage } => {
                write!(f, "everfresh; hit; ttl={ttl}")?;
                match (outage, detail(freshness)) {
                    (Some(outage), _) => write!(f, "; detail={}", outage.as_str()),
                    (None, Some(detail)) => write!(f, "; detail={detail}"),
                    (None, None) => Ok(()),
                }
            }
            CacheStatus::Waited { ttl } => write!(f, "everfresh; fwd=miss; stored; ttl={ttl}; detail=waited"),
            CacheStatus::Miss { detail } => write!(f, "everfresh; fwd=uri-miss; detail={detail}"),
            CacheStatus::Bypass { detail } => write!(f, "everfresh; fwd=bypass; detail={detail}"),
            CacheStatus::Method => write!(f, "everfresh; fwd=method"),
            CacheStatus::Request { detail } => write!(f, "everfresh; fwd=request; detail={detail}"),
        }
    }
}

/// Why a page is not fresh; none if it is.
fn detail(freshness: &Freshness) -> Option<&'static str> {
    match freshness {
        Freshness::Fresh { .. } => None,
        Freshness::Stale { why } => Some(match why {
            Why::Age => "stale-age",
            Why::Invalidated | Why::InvalidatedHard => "stale-invalidated",
            Why::Deployed => "stale-deployed",
            Why::Clock => "stale-clock",
        }),
        Freshness::Expired { why } => Some(match why {
            Why::Age => "expired-age",
            Why::Invalidated | Why::InvalidatedHard => "expired-invalidated",
            Why::Deployed => "expired-deployed",
            Why::Clock => "expired-clock",
        }),
        Freshness::Missing => Some("missing"),
        Freshness::Gone => Some("gone"),
        Freshness::Bypass { .. } => Some("bypass"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_text() {
        let hit = |freshness, ttl, outage| CacheStatus::Hit { freshness, ttl, outage };
        let fresh = Freshness::Fresh { until_ms: 0 };
        for (status, text) in [
            (hit(fresh, 43, None), "everfresh; hit; ttl=43"),
            (hit(Freshness::Stale { why: Why::Age }, -7, None), "everfresh; hit; ttl=-7; detail=stale-age"),
            (
                hit(Freshness::Expired { why: Why::Invalidated }, -7, None),
                "everfresh; hit; ttl=-7; detail=expired-invalidated",
            ),
            (hit(fresh, 1, Some(Outage::DynamoDb)), "everfresh; hit; ttl=1; detail=dynamodb-down"),
            (hit(Freshness::Stale { why: Why::Age }, -1, Some(Outage::S3)), "everfresh; hit; ttl=-1; detail=s3-down"),
            (hit(fresh, 1, Some(Outage::Row)), "everfresh; hit; ttl=1; detail=row-unreadable"),
            (hit(fresh, 1, Some(Outage::Time)), "everfresh; hit; ttl=1; detail=out-of-time"),
            (hit(Freshness::Gone, 0, None), "everfresh; hit; ttl=0; detail=gone"),
            (CacheStatus::Waited { ttl: 60 }, "everfresh; fwd=miss; stored; ttl=60; detail=waited"),
            (CacheStatus::Miss { detail: "cooldown" }, "everfresh; fwd=uri-miss; detail=cooldown"),
            (CacheStatus::Bypass { detail: "preview" }, "everfresh; fwd=bypass; detail=preview"),
        ] {
            assert_eq!(status.to_string(), text);
        }
    }
}

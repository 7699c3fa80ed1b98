//! `Cache-Status` (RFC 9211): what this layer did with the request, and why.

use std::fmt;

use everfresh_core::domain::freshness::{Freshness, Why};

/// What kept this layer from reading what is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The table did not answer.
    DynamoDb,
    /// The bucket did not answer.
    S3,
    /// The table's row cannot be read.
    Row,
    /// Everybody answered, but the visit's time was over.
    Time,
}

impl Outage {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Outage::DynamoDb => "dynamodb-down",
            Outage::S3 => "s3-down",
            Outage::Row => "row-unreadable",
            Outage::Time => "out-of-time",
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// What was published was served.
    Hit {
        /// What it was.
        freshness: Freshness,
        /// Seconds until it becomes stale; negative since then.
        ttl: i64,
        /// What kept it from being the published version for sure.
        outage: Option<Outage>,
    },
    /// The reader waited for a regeneration, which came.
    Waited {
        /// Seconds until it becomes stale.
        ttl: i64,
    },
    /// There is nothing to serve yet.
    Miss {
        /// Why not.
        detail: &'static str,
    },
    /// It is none of the cache's business.
    Bypass {
        /// Why not.
        detail: &'static str,
    },
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Did::Hit { freshness, ttl, outage } => {
                write!(f, "everfresh; hit; ttl={ttl}")?;
                match (outage, word(freshness)) {
                    (Some(outage), _) => write!(f, "; detail={}", outage.as_str()),
                    (None, Some(word)) => write!(f, "; detail={word}"),
                    (None, None) => Ok(()),
                }
            }
            Did::Waited { ttl } => write!(f, "everfresh; fwd=miss; stored; ttl={ttl}; detail=waited"),
            Did::Miss { detail } => write!(f, "everfresh; fwd=uri-miss; detail={detail}"),
            Did::Bypass { detail } => write!(f, "everfresh; fwd=bypass; detail={detail}"),
        }
    }
}

/// Why a page is not fresh, in one word; none if it is.
pub fn word(freshness: &Freshness) -> Option<&'static str> {
    match freshness {
        Freshness::Fresh { .. } => None,
        Freshness::Stale { why } => Some(match why {
            Why::Age => "stale-age",
            Why::Invalidated => "stale-invalidated",
            Why::Deployed => "stale-deployed",
            Why::Clock => "stale-clock",
        }),
        Freshness::Expired { why } => Some(match why {
            Why::Age => "expired-age",
            Why::Invalidated => "expired-invalidated",
            Why::Deployed => "expired-deployed",
            Why::Clock => "expired-clock",
        }),
        Freshness::Missing => Some("missing"),
        Freshness::Gone => Some("gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_done_has_its_words() {
        let hit = |freshness, ttl, outage| Did::Hit { freshness, ttl, outage };
        let fresh = Freshness::Fresh { until_ms: 0 };
        for (did, text) in [
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
            (Did::Waited { ttl: 60 }, "everfresh; fwd=miss; stored; ttl=60; detail=waited"),
            (Did::Miss { detail: "cooldown" }, "everfresh; fwd=uri-miss; detail=cooldown"),
            (Did::Bypass { detail: "preview" }, "everfresh; fwd=bypass; detail=preview"),
        ] {
            assert_eq!(did.to_string(), text);
        }
    }
}

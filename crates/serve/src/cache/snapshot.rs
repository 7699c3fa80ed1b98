//! One page as DynamoDB had it at one moment.

use std::sync::Arc;

use everfresh_core::domain::freshness::{Freshness, Policy, Why, freshness};
use everfresh_core::domain::health::Health;
use everfresh_core::domain::invalidations::Invalidations;
use everfresh_core::domain::page::Meta;
use everfresh_core::ledger::{RowError, Seen};
use tokio::time::Instant;

use crate::http::cache_status::Outage;

#[derive(Clone, Debug)]
pub(crate) struct PageSnapshot {
    pub(crate) meta: Option<Arc<Meta>>,
    /// A foreign row in place of `meta` that cannot be parsed: the page counts as missing, and a
    /// render replaces the row.
    pub(crate) unreadable: Option<RowError>,
    pub(crate) health: Health,
    pub(crate) invalidations: Invalidations,
    /// A worker renders the page until then at the latest.
    pub(crate) leased_until_ms: Option<u64>,
    /// When the read began: a later write may be missing from it.
    pub(crate) began: Instant,
    pub(crate) read_ms: u64,
}

/// A snapshot, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct CachedPage {
    pub(crate) snapshot: PageSnapshot,
    /// No call was made.
    pub(crate) from_cache: bool,
    /// Why the cache stands in for DynamoDB: the snapshot is the last one that could be read.
    pub(crate) outage: Option<Outage>,
}

impl CachedPage {
    /// A snapshot read just now.
    pub(crate) fn from_ledger(snapshot: PageSnapshot) -> Self {
        Self { snapshot, from_cache: false, outage: None }
    }
}

impl PageSnapshot {
    /// Whether it has a version with a body: only then may an older body stand in for it.
    pub(crate) fn has_body(&self) -> bool {
        self.meta.as_deref().is_some_and(Meta::has_body)
    }

    pub(crate) fn freshness(&self, policy: &Policy, now_ms: u64) -> Freshness {
        freshness(self.meta.as_deref(), &self.health, &self.invalidations, policy, now_ms)
    }

    /// Whether this ends the wait of a request that began when the page was `seen`.
    pub(super) fn ends_wait(&self, seen: &Seen, policy: &Policy, now_ms: u64) -> bool {
        let newer = Seen::of(self.meta.as_deref()) != *seen;
        match self.freshness(policy, now_ms) {
            Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Gone | Freshness::Bypass { .. } => true,
            Freshness::Missing => false,
            // With a lifetime of a second a new version may be expired when it is published,
            // because `generated_at` is in whole seconds.
            Freshness::Expired { why: Why::Age | Why::Deployed | Why::Clock } => newer,
            // Rendered before the invalidation. Only a request that had no page at all takes it.
            Freshness::Expired { why: Why::Invalidated | Why::InvalidatedHard } => newer && *seen == Seen::Absent,
        }
    }
}

//! The instance's memory of pages: snapshots of their rows, and bodies.
//!
//! A snapshot is served without a read for `EVERFRESH_CACHE_TTL_MS`, then read again; while
//! DynamoDB or S3 does not answer, the cache answers in its place.
//!
//! | Where | What |
//! |---|---|
//! | `snapshot` | [`PageSnapshot`]: one page as DynamoDB had it; [`CachedPage`]: with where it comes from |
//! | `snapshot_cache` | reading snapshots: cached, shared, deferred or awaited |
//! | `snapshot_memory` | the snapshots in memory |
//! | `ledger_reads` | one read of the ledger, and polling it |
//! | `bodies` | bodies from memory or S3 |
//! | `single_flight` | concurrent calls for the same key share one |
//! | `deferred_reads` | reads completed after the reply |
//! | `byte_lru` | an LRU map bounded by bytes |

pub(crate) mod bodies;
mod byte_lru;
mod deferred_reads;
pub(crate) mod ledger_reads;
mod single_flight;
pub(crate) mod snapshot;
mod snapshot_cache;
mod snapshot_memory;

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::artifacts::{Artifacts, StoredBody};
use everfresh_core::domain::artifact::{PointerError, locate};
use everfresh_core::domain::freshness::Policy;
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::{KeyLayout, PageKey, Tenant};
use everfresh_core::ledger::{Ledger, LedgerError};

use crate::log_throttle::{LogThrottle, Problem};
use crate::settings::Settings;
use bodies::{BodyCache, BodyName, Fetched};
use ledger_reads::Until;
use snapshot::{CachedPage, PageSnapshot};
use snapshot_cache::SnapshotCache;

#[derive(Debug)]
pub(crate) struct PageCache {
    snapshots: SnapshotCache,
    bodies: BodyCache,
    layout: KeyLayout,
    log: Arc<LogThrottle>,
}

impl PageCache {
    pub(crate) fn new(settings: &Settings, ledger: Ledger, artifacts: Artifacts, log: Arc<LogThrottle>) -> Self {
        let time = ledger.time().clone();
        Self {
            snapshots: SnapshotCache::new(ledger, settings.cache_ttl_ms, settings.page_bytes, log.clone()),
            bodies: BodyCache::new(artifacts, settings.body_bytes, time, log.clone()),
            layout: settings.layout,
            log,
        }
    }

    /// One cheap read of DynamoDB and of S3.
    pub(crate) async fn warm_up(&self, tenant: Option<&Tenant>) {
        tokio::join!(self.snapshots.warm_up(tenant), self.bodies.warm_up());
    }

    /// The page, at most `cache_ttl_ms` old if DynamoDB answers, and as old as the cache has it if
    /// not. An error only if the page is not cached either.
    pub(crate) async fn lookup(&self, page: &PageKey, policy: &Policy) -> Result<CachedPage, Arc<LedgerError>> {
        self.snapshots.lookup(page, policy).await
    }

    /// The cached snapshot, however old.
    pub(crate) fn cached(&self, page: &PageKey) -> Option<PageSnapshot> {
        self.snapshots.cached(page)
    }

    /// The page as it is now, whatever is cached.
    pub(crate) async fn read_consistent(
        &self,
        page: &PageKey,
        policy: &Policy,
    ) -> Result<PageSnapshot, Arc<LedgerError>> {
        self.snapshots.read_consistent(page, policy).await
    }

    /// Waits until the page is what `until` says. After `timeout`, the page as it is then; none if
    /// DynamoDB does not answer.
    pub(crate) async fn wait(
        &self,
        page: &PageKey,
        policy: &Policy,
        until: Until,
        timeout: Duration,
    ) -> Option<PageSnapshot> {
        self.snapshots.wait(page, policy, until, timeout).await
    }

    /// The body of a version. With `has_fallback`, S3 is not called right after it failed.
    /// A pointer outside of the tenant's prefix is never followed (I7).
    pub(crate) async fn body(&self, page: &PageKey, meta: &Meta, has_fallback: bool) -> Fetched {
        match self.body_name(page, meta) {
            Ok(name) => self.bodies.fetch(&name, has_fallback).await,
            Err(error) => {
                if self.log.should_log(Problem::BadPointer, page) {
                    let page = page.logged();
                    tracing::error!(%page, %error, "{page} cannot be served: {error}");
                }
                Fetched::Missing
            }
        }
    }

    /// The last version whose body was served, if both are still cached.
    pub(crate) fn last_served(&self, page: &PageKey) -> Option<(Arc<Meta>, Arc<StoredBody>)> {
        let meta = self.snapshots.last_served(page)?;
        let body = self.bodies.cached(&self.body_name(page, &meta).ok()?)?;
        Some((meta, body))
    }

    /// Notes that this version's body was served. Returns how often the version has been read.
    pub(crate) fn record_served(&self, page: &PageKey, meta: &Arc<Meta>) -> u32 {
        self.snapshots.record_served(page, meta)
    }

    /// Completes the reads that were too slow for their replies.
    pub(crate) async fn finish_deferred_reads(&self) {
        self.snapshots.finish_deferred_reads().await;
    }

    fn body_name(&self, page: &PageKey, meta: &Meta) -> Result<BodyName, PointerError> {
        let key = locate(&meta.s3_key, self.bodies.bucket(), page.tenant(), self.layout)?;
        Ok(BodyName::new(key, meta))
    }
}

//! Page snapshots: from memory for a moment, from DynamoDB after that, and from memory again while
//! DynamoDB does not answer.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::domain::freshness::Policy;
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::{PageKey, Tenant};
use everfresh_core::ledger::{Ledger, LedgerError};
use futures::future::join_all;

use super::deferred_reads::DeferredReads;
use super::ledger_reads::{LedgerReads, SnapshotResult, Until, is_row_error};
use super::single_flight::SingleFlight;
use super::snapshot::{CachedPage, PageSnapshot};
use super::snapshot_memory::Entries;
use crate::circuit_breaker::CircuitBreaker;
use crate::http::cache_status::Outage;
use crate::log_throttle::{LogThrottle, Problem};

/// Timeout of a read while the page is cached.
const CACHED_READ_TIMEOUT: Duration = Duration::from_millis(400);

/// Timeout of the last read of a wait. The rest of the response deadline is for the body.
const LAST_READ_TIMEOUT: Duration = Duration::from_millis(400);

/// How long a deferred read may take after the reply: the next request waits for this instance.
const DEFERRED_READ_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct SnapshotCache {
    reads: LedgerReads,
    entries: Entries,
    reading: SingleFlight<PageKey, SnapshotResult>,
    deferred: DeferredReads<SnapshotResult>,
    waiting: SingleFlight<(PageKey, Until), PageSnapshot>,
    /// Consistent reads at the end of a wait.
    last_reads: SingleFlight<PageKey, SnapshotResult>,
    breaker: CircuitBreaker,
    log: Arc<LogThrottle>,
    ttl_ms: u64,
}

impl SnapshotCache {
    pub(super) fn new(ledger: Ledger, ttl_ms: u64, max_bytes: usize, log: Arc<LogThrottle>) -> Self {
        Self {
            reads: LedgerReads::new(ledger),
            entries: Entries::new(max_bytes),
            reading: SingleFlight::default(),
            deferred: DeferredReads::default(),
            waiting: SingleFlight::default(),
            last_reads: SingleFlight::default(),
            breaker: CircuitBreaker::default(),
            log,
            ttl_ms,
        }
    }

    pub(super) async fn warm_up(&self, tenant: Option<&Tenant>) {
        if let Some(tenant) = tenant {
            let _ = self.reads.ledger.epoch(tenant).await;
        }
    }

    pub(super) async fn lookup(&self, page: &PageKey, policy: &Policy) -> Result<CachedPage, Arc<LedgerError>> {
        let now_ms = self.local_now_ms();
        let Some(cached) = self.cached(page) else {
            return Ok(CachedPage::from_ledger(self.read(page, policy, false).await?));
        };
        if now_ms.abs_diff(cached.read_ms) < self.ttl_ms {
            return Ok(CachedPage { snapshot: cached, from_cache: true, outage: None });
        }
        if self.breaker.is_open(now_ms) {
            return Ok(CachedPage { snapshot: cached, from_cache: true, outage: Some(Outage::DynamoDb) });
        }
        let has_version = cached.meta.is_some();
        let instead = |outage| CachedPage { snapshot: cached, from_cache: false, outage: Some(outage) };
        Ok(match self.read_or_defer(page, policy).await {
            Some(Ok(snapshot)) if snapshot.unreadable.is_some() && has_version => instead(Outage::Row),
            Some(Ok(snapshot)) => CachedPage::from_ledger(snapshot),
            Some(Err(error)) if is_row_error(&error) => instead(Outage::Row),
            Some(Err(_)) | None => instead(Outage::DynamoDb),
        })
    }

    pub(super) fn cached(&self, page: &PageKey) -> Option<PageSnapshot> {
        self.entries.snapshot(page)
    }

    pub(super) async fn read_consistent(&self, page: &PageKey, policy: &Policy) -> SnapshotResult {
        self.read(page, policy, true).await
    }

    /// Requests that wait for the same share the polls.
    pub(super) async fn wait(
        &self,
        page: &PageKey,
        policy: &Policy,
        until: Until,
        timeout: Duration,
    ) -> Option<PageSnapshot> {
        let poll = self.reads.clone().poll(page.clone(), *policy, until.clone());
        let waited = tokio::time::timeout(timeout, self.waiting.join((page.clone(), until), poll)).await;
        let snapshot = match waited {
            Ok(snapshot) => snapshot,
            Err(_) => self.last_read(page, policy).await?,
        };
        Some(self.entries.insert(page, &snapshot))
    }

    /// The last poll was up to a second ago: the page may have been published since.
    async fn last_read(&self, page: &PageKey, policy: &Policy) -> Option<PageSnapshot> {
        let read = self.reads.clone().read(page.clone(), *policy, true);
        tokio::time::timeout(LAST_READ_TIMEOUT, self.last_reads.join(page.clone(), read)).await.ok()?.ok()
    }

    pub(super) fn last_served(&self, page: &PageKey) -> Option<Arc<Meta>> {
        self.entries.last_served(page)
    }

    pub(super) fn record_served(&self, page: &PageKey, meta: &Arc<Meta>) -> u32 {
        self.entries.record_served(page, meta)
    }

    /// Refreshes the cache for the next request. The circuit breaker stays as it is: a slow table
    /// is not a healthy one.
    pub(super) async fn finish_deferred_reads(&self) {
        let reads = self.deferred.take().into_iter().map(|(page, read)| async move {
            let read = tokio::time::timeout(DEFERRED_READ_TIMEOUT, read).await;
            if let Ok(Ok(snapshot)) = read
                && !self.entries.must_be_confirmed(&page, &snapshot)
            {
                self.entries.insert(&page, &snapshot);
            }
        });
        join_all(reads).await;
    }

    async fn read(&self, page: &PageKey, policy: &Policy, consistent: bool) -> SnapshotResult {
        let read = self.reads.clone().read(page.clone(), *policy, consistent);
        // A consistent read must not join one that is not.
        let result = if consistent { read.await } else { self.reading.join(page.clone(), read).await };
        let result = if consistent { result } else { self.confirmed(page, policy, result).await };
        self.completed(page, result)
    }

    /// A read that cannot be ordered against memory is repeated consistently: it may show a row
    /// from before a withdrawal.
    async fn confirmed(&self, page: &PageKey, policy: &Policy, result: SnapshotResult) -> SnapshotResult {
        match &result {
            Ok(snapshot) if self.entries.must_be_confirmed(page, snapshot) => {
                self.reads.clone().read(page.clone(), *policy, true).await
            }
            Ok(_) | Err(_) => result,
        }
    }

    /// A read with a short timeout, for a page that is cached. None after the timeout: then the
    /// read continues after the reply.
    async fn read_or_defer(&self, page: &PageKey, policy: &Policy) -> Option<SnapshotResult> {
        self.deferred.discard(page);
        let read = self.reading.start(page.clone(), self.reads.clone().read(page.clone(), *policy, false));
        match tokio::time::timeout(CACHED_READ_TIMEOUT, read.clone()).await {
            Ok(result) => {
                let result = self.confirmed(page, policy, result).await;
                Some(self.completed(page, result))
            }
            Err(_) => {
                self.failed("timeout");
                self.deferred.defer(page, read);
                None
            }
        }
    }

    /// Remembers what was read. Returns what is known then: memory may know a newer version.
    fn completed(&self, page: &PageKey, result: SnapshotResult) -> SnapshotResult {
        match &result {
            Ok(snapshot) => {
                if self.breaker.succeeded() {
                    let table = self.reads.ledger.table();
                    tracing::info!(table, "DynamoDB table {table}: read succeeded; cached pages are refreshed again");
                }
                if let Some(error) = &snapshot.unreadable {
                    self.log_unreadable(page, error);
                }
                return Ok(self.entries.insert(page, snapshot));
            }
            // The table answers: other pages can be read.
            Err(error) if is_row_error(error) => self.log_unreadable(page, error.as_ref()),
            Err(error) => self.failed(&error.to_string()),
        }
        result
    }

    fn log_unreadable(&self, page: &PageKey, error: &dyn std::error::Error) {
        if self.log.should_log(Problem::UnreadableRow, page) {
            let page = page.logged();
            tracing::error!(%page, %error, "the DynamoDB row of {page} cannot be read; until it is replaced, only a cached version is served: {error}");
        }
    }

    fn failed(&self, error: &str) {
        if self.breaker.failed(self.local_now_ms()) {
            let table = self.reads.ledger.table();
            tracing::warn!(
                table,
                error,
                "DynamoDB table {table}: read failed; until one succeeds, cached pages are served from memory and others \
                 get 503: {error}"
            );
        }
    }

    fn local_now_ms(&self) -> u64 {
        self.reads.ledger.time().local_now_ms()
    }
}

//! From a page's key to its content: look up, wait if there is nothing good enough, get the body.

use std::time::Duration;

use everfresh_core::domain::freshness::Freshness;
use everfresh_core::ledger::Seen;
use everfresh_core::metrics;
use tokio::time::Instant;

use super::body::PageContent;
use super::error::PageError;
use super::{Found, PageRead};
use crate::cache::ledger_reads::{Until, is_row_error};
use crate::cache::snapshot::{CachedPage, PageSnapshot};
use crate::enqueue::{Enqueue, EnqueueDecision};
use crate::http::cache_status::Outage;
use crate::log_throttle::Problem;
use crate::server::RETRY_AFTER;
use crate::settings::FOR_BODY_MS;

/// `Retry-After` while the tenant's rate limit is exceeded, in seconds.
const RETRY_AFTER_RATE_LIMIT: u64 = 60;

/// Why a missing page is not waited for while sends to SQS fail.
const QUEUE_DOWN: &str = "sqs-down";

impl PageRead<'_> {
    /// lookup → (wait) → body.
    pub(super) async fn find(&mut self) -> Result<Found, PageError> {
        let cached = self.lookup().await?;
        let freshness = self.freshness(&cached.snapshot);
        self.server.metrics.count_freshness(&freshness);
        // While the cache stands in for DynamoDB, a newer version would not be seen.
        let would_not_see = cached.outage.is_some() && cached.snapshot.meta.is_some();
        self.waited = must_wait(&freshness) && !would_not_see;
        let cached = if self.waited { self.wait(cached).await? } else { cached };
        let freshness = self.freshness(&cached.snapshot);
        let meta = cached.snapshot.meta.clone();
        match (freshness, meta) {
            (Freshness::Missing, _) | (_, None) => Err(self.not_ready(RETRY_AFTER, "waiting")),
            (Freshness::Gone, _) => Err(PageError::Gone),
            (Freshness::Bypass { .. }, Some(meta)) => match meta.bypass {
                Some(bypass) => Ok(Found::Bypass(cached, bypass)),
                None => Err(self.not_ready(RETRY_AFTER, "waiting")),
            },
            // An expired page is better than none once the wait is over, unless its origin has
            // forbidden that.
            (Freshness::Expired { why }, Some(meta))
                if meta.must_not_be_served_expired(why, &self.routed.policy, self.server.now_ms()) =>
            {
                Err(self.not_ready(RETRY_AFTER, "must-revalidate"))
            }
            (Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Expired { .. }, Some(_)) => {
                self.content(cached).await
            }
        }
    }

    async fn lookup(&self) -> Result<CachedPage, PageError> {
        let metrics = &self.server.metrics;
        match self.server.cache.lookup(self.routed.page, &self.routed.policy).await {
            Ok(cached) => {
                if cached.outage == Some(Outage::DynamoDb) {
                    metrics.count(metrics::DYNAMODB_OUTAGE);
                }
                Ok(cached)
            }
            // No outage: DynamoDB answered with a row that cannot be parsed, which the cache logs.
            Err(error) if is_row_error(&error) => Err(self.not_ready(RETRY_AFTER, Outage::Row.as_str())),
            Err(error) => {
                metrics.count(metrics::DYNAMODB_OUTAGE);
                if self.server.log.should_log(Problem::LookupFailed, self.routed.page) {
                    let page = self.routed.page.logged();
                    tracing::error!(%page, %error, "{page} cannot be looked up in DynamoDB and is not cached: {error}");
                }
                Err(self.not_ready(RETRY_AFTER, Outage::DynamoDb.as_str()))
            }
        }
    }

    /// Enqueues a regeneration and waits for it, at most for [`Self::wait_time`]. If it does not
    /// come, the result is the page's state then, or the state before if DynamoDB does not answer.
    async fn wait(&mut self, cached: CachedPage) -> Result<CachedPage, PageError> {
        let missing = cached.snapshot.meta.is_none();
        // Without a queue no regeneration starts, and the origin answers at once.
        let passes = missing && self.tenant.has_origin();
        if passes && self.server.enqueuer.is_suspended() {
            return Err(self.not_ready(RETRY_AFTER, QUEUE_DOWN));
        }
        match self.decide(&cached.snapshot, None) {
            // Enqueued before the wait: no other reader may have done so.
            EnqueueDecision::Enqueue(enqueue) => {
                self.enqueued = self.server.enqueuer.send(enqueue).await;
                if !self.enqueued && !missing {
                    return Ok(cached);
                }
                if !self.enqueued && passes {
                    return Err(self.not_ready(RETRY_AFTER, QUEUE_DOWN));
                }
            }
            EnqueueDecision::Suppressed | EnqueueDecision::Rendering => {}
            // No regeneration will start, so there is nothing to wait for.
            EnqueueDecision::Cooldown { until_ms } if missing => {
                let seconds = until_ms.saturating_sub(self.server.now_ms()).div_ceil(1000);
                return Err(self.not_ready(seconds.max(1), "cooldown"));
            }
            EnqueueDecision::RateLimited if missing => {
                return Err(self.not_ready(RETRY_AFTER_RATE_LIMIT, "rate-limited"));
            }
            EnqueueDecision::Cooldown { .. }
            | EnqueueDecision::RateLimited
            | EnqueueDecision::QueueDown
            | EnqueueDecision::NotNeeded => return Ok(cached),
        }
        let until = Until::NewerThan(Seen::of(cached.snapshot.meta.as_deref()));
        let newer = self.server.cache.wait(self.routed.page, &self.routed.policy, until, self.wait_time()).await;
        Ok(newer.map_or(cached, CachedPage::from_ledger))
    }

    /// How long to wait for a regeneration. Some of the response deadline is left for the body.
    pub(super) fn wait_time(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let settings = &self.server.settings;
        // A reader who can be passed to the origin need not wait for long.
        let wait_ms = match self.tenant.has_origin() {
            true => settings.wait_ms.min(settings.pass_after_ms),
            false => settings.wait_ms,
        };
        let wait = Duration::from_millis(wait_ms);
        left.saturating_sub(Duration::from_millis(FOR_BODY_MS)).min(wait)
    }

    /// The regeneration to enqueue after the reply, if any.
    pub(super) fn regeneration(&self, content: &PageContent, reads: u32) -> Option<Enqueue> {
        // A read that waited longer than its enqueue suppresses others would enqueue a second time.
        if self.enqueued && content.lost.is_none() {
            return None;
        }
        let mut decision = self.decide(&content.snapshot, content.lost.as_deref());
        if matches!(decision, EnqueueDecision::NotNeeded) {
            decision = self.server.enqueuer.decide_early(&self.routed, &content.snapshot, reads);
        }
        match decision {
            EnqueueDecision::Enqueue(enqueue) => Some(enqueue),
            EnqueueDecision::NotNeeded
            | EnqueueDecision::Rendering
            | EnqueueDecision::Suppressed
            | EnqueueDecision::QueueDown
            | EnqueueDecision::RateLimited
            | EnqueueDecision::Cooldown { .. } => None,
        }
    }

    /// The check of a bypass to enqueue after the reply, if one is due.
    pub(super) fn check(&self, snapshot: &PageSnapshot) -> Option<Enqueue> {
        match self.decide(snapshot, None) {
            EnqueueDecision::Enqueue(enqueue) if !self.enqueued => Some(enqueue),
            EnqueueDecision::Enqueue(_)
            | EnqueueDecision::NotNeeded
            | EnqueueDecision::Rendering
            | EnqueueDecision::Suppressed
            | EnqueueDecision::QueueDown
            | EnqueueDecision::RateLimited
            | EnqueueDecision::Cooldown { .. } => None,
        }
    }

    /// `lost` is an object that the page's row points at and S3 does not have.
    pub(super) fn decide(&self, snapshot: &PageSnapshot, lost: Option<&str>) -> EnqueueDecision {
        self.server.enqueuer.decide(&self.routed, snapshot, lost)
    }

    pub(super) fn not_ready(&self, retry_after: u64, detail: &'static str) -> PageError {
        PageError::NotYet { retry_after, detail, placeholder: self.tenant.placeholder.clone() }
    }

    fn freshness(&self, snapshot: &PageSnapshot) -> Freshness {
        snapshot.freshness(&self.routed.policy, self.server.now_ms())
    }
}

/// Whether a request waits for a regeneration rather than being served this.
fn must_wait(freshness: &Freshness) -> bool {
    match freshness {
        Freshness::Missing | Freshness::Expired { .. } => true,
        Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Gone | Freshness::Bypass { .. } => false,
    }
}

//! Whether a page read enqueues a regeneration.
//!
//! | Where | What |
//! |---|---|
//! | this file | the decision, an `EnqueueDecision` |
//! | `limiter` | suppression of repeats, and the rate limit per tenant |
//! | `send` | sending an [`Enqueue`] |

mod limiter;
mod send;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everfresh_core::domain::freshness::{Freshness, Policy};
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::{KeyLayout, PageKey};
use everfresh_core::domain::request::Reason;
use everfresh_core::domain::seconds;
use everfresh_core::metrics;

use crate::cache::snapshot::PageSnapshot;
use crate::log_throttle::{LogThrottle, Problem};
use crate::metrics::MetricsBuffer;
use crate::regeneration_queue::Queue;
use crate::settings::Settings;
use limiter::{EnqueueLimiter, Permit, Rates, RequestKey};

/// A page with this many reads through one instance is regenerated before it becomes stale.
const HOT_READS: u32 = 10;

/// A regeneration to enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueue {
    page: PageKey,
    reason: Reason,
    /// The body's key, if S3 does not have it.
    lost: Option<String>,
    /// Nothing is published yet, on a route that matches some paths only.
    is_first: bool,
}

/// A page as its route makes it.
#[derive(Clone, Debug)]
pub(crate) struct RoutedPage<'a> {
    pub(crate) page: &'a PageKey,
    pub(crate) policy: Policy,
    /// The route matches some paths. One that ends in `{*rest}` matches every invented path.
    pub(crate) own_route: bool,
}

impl Enqueue {
    fn key(&self) -> RequestKey {
        RequestKey { page: self.page.clone(), reason: self.reason, lost: self.lost.is_some(), is_first: self.is_first }
    }
}

pub(crate) enum EnqueueDecision {
    Enqueue(Enqueue),
    /// The page needs no regeneration.
    NotNeeded,
    /// A worker is rendering the page.
    Rendering,
    /// This instance has enqueued the same a moment ago.
    Suppressed,
    /// SQS has failed a moment ago, and there is a version to serve meanwhile.
    QueueDown,
    /// The tenant's rate limit is exceeded.
    RateLimited,
    /// The origin has failed, and is not called until then.
    Cooldown {
        until_ms: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Enqueuer {
    limiter: Mutex<EnqueueLimiter>,
    queue: Arc<Queue>,
    early_refresh_percent: u32,
    bucket: String,
    layout: KeyLayout,
    metrics: Arc<MetricsBuffer>,
    log: Arc<LogThrottle>,
}

impl Enqueuer {
    pub(crate) fn new(
        settings: &Settings,
        queue: Arc<Queue>,
        metrics: Arc<MetricsBuffer>,
        log: Arc<LogThrottle>,
    ) -> Self {
        Self {
            limiter: Mutex::new(EnqueueLimiter::new(Rates {
                per_minute: settings.enqueues_per_minute,
                first_per_minute: settings.first_renders_per_minute,
            })),
            queue,
            early_refresh_percent: settings.early_refresh_percent,
            bucket: settings.bucket.clone(),
            layout: settings.layout,
            metrics,
            log,
        }
    }

    /// Whether a send to SQS failed a moment ago.
    pub(crate) fn is_suspended(&self) -> bool {
        self.queue.is_suspended()
    }

    /// `lost` is an object that the page's row points at and S3 does not have.
    pub(crate) fn decide(&self, page: &RoutedPage<'_>, snapshot: &PageSnapshot, lost: Option<&str>) -> EnqueueDecision {
        let now_ms = self.queue.now_ms();
        let reason = match lost {
            // `expired` would be covered by a row that says the page is fresh.
            Some(_) => Some(Reason::Changed),
            None => snapshot.freshness(&page.policy, now_ms).reason(),
        };
        match reason {
            None => EnqueueDecision::NotNeeded,
            Some(reason) => self.decide_for(page, reason, snapshot, lost, now_ms),
        }
    }

    /// A hot page near the end of its lifetime is regenerated while it is fresh, so that no
    /// response is stale. As `changed`: `expired` would be covered by the fresh page.
    pub(crate) fn decide_early(&self, page: &RoutedPage<'_>, snapshot: &PageSnapshot, reads: u32) -> EnqueueDecision {
        let percent = u64::from(self.early_refresh_percent);
        let Some(meta) = snapshot.meta.as_deref() else { return EnqueueDecision::NotNeeded };
        if percent == 0 || reads < HOT_READS || snapshot.health.pinned() {
            return EnqueueDecision::NotNeeded;
        }
        let now_ms = self.queue.now_ms();
        let left_ms = match snapshot.freshness(&page.policy, now_ms) {
            Freshness::Fresh { until_ms } => until_ms.saturating_sub(now_ms),
            Freshness::Stale { .. }
            | Freshness::Expired { .. }
            | Freshness::Missing
            | Freshness::Gone
            | Freshness::Bypass { .. } => {
                return EnqueueDecision::NotNeeded;
            }
        };
        if left_ms > seconds::to_ms(meta.revalidate_seconds) / 100 * percent {
            return EnqueueDecision::NotNeeded;
        }
        self.decide_for(page, Reason::Changed, snapshot, None, now_ms)
    }

    /// A visitor has written to the page's path: it has probably changed. Enqueued each time, for a
    /// change may have come after the render that an earlier message led to. Beyond the rate limit
    /// it is not: the page is then stale until its lifetime ends.
    pub(crate) fn decide_written(&self, page: &PageKey, snapshot: &PageSnapshot) -> Option<Enqueue> {
        let now_ms = self.queue.now_ms();
        let has_body = snapshot.meta.as_deref().is_some_and(Meta::has_body);
        // A render under way may have read its source before the write.
        let is_rendering = snapshot.leased_until_ms.is_some_and(|until_ms| until_ms > now_ms);
        if !(has_body || is_rendering) {
            return None;
        }
        let enqueue = Enqueue { page: page.clone(), reason: Reason::Changed, lost: None, is_first: false };
        if !self.limiter().decide_again(enqueue.key(), snapshot.meta.as_deref(), now_ms) {
            self.rate_limited(page);
            return None;
        }
        Some(enqueue)
    }

    fn decide_for(
        &self,
        routed: &RoutedPage<'_>,
        reason: Reason,
        snapshot: &PageSnapshot,
        lost: Option<&str>,
        now_ms: u64,
    ) -> EnqueueDecision {
        if let Some(until_ms) = snapshot.health.cooldown_until(now_ms) {
            return EnqueueDecision::Cooldown { until_ms };
        }
        // A render in progress covers `expired`. A change may have come after it began.
        if reason == Reason::Expired && snapshot.leased_until_ms.is_some_and(|until_ms| until_ms > now_ms) {
            return EnqueueDecision::Rendering;
        }
        // A send to a failing queue would hold up the next request. Without anything to serve it is
        // tried all the same.
        let can_wait = snapshot.meta.is_some() && lost.is_none();
        if can_wait && self.queue.is_suspended() {
            self.metrics.count(metrics::ENQUEUES_SUPPRESSED);
            return EnqueueDecision::QueueDown;
        }
        let (page, is_first) = (routed.page, routed.own_route && snapshot.meta.is_none());
        let enqueue = Enqueue { page: page.clone(), reason, lost: lost.map(str::to_owned), is_first };
        let permit = self.limiter().decide(enqueue.key(), snapshot.meta.as_deref(), now_ms);
        match permit {
            Permit::Allowed => EnqueueDecision::Enqueue(enqueue),
            Permit::Suppressed => {
                self.metrics.count(metrics::ENQUEUES_SUPPRESSED);
                EnqueueDecision::Suppressed
            }
            Permit::RateLimited => {
                self.rate_limited(page);
                EnqueueDecision::RateLimited
            }
        }
    }

    fn rate_limited(&self, page: &PageKey) {
        self.metrics.count(metrics::ENQUEUES_LIMITED);
        let tenant = page.tenant();
        if self.log.should_log(Problem::RateLimited, tenant) {
            let page = page.logged();
            tracing::warn!(%tenant, %page, "enqueue rate limit of tenant {tenant} exceeded; {page} is not enqueued");
        }
    }

    fn limiter(&self) -> MutexGuard<'_, EnqueueLimiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

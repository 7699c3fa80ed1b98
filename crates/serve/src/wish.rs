//! What a visit asks for, and sending it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use everfresh_core::domain::artifact::locate;
use everfresh_core::domain::freshness::Freshness;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::request::Reason;
use everfresh_core::domain::seconds;
use everfresh_core::metrics;
use everfresh_enqueue::{Message, SendError, attributes};

use crate::asks::{About, Decision, EnqueueLimiter};
use crate::remarks::Remark;
use crate::serve::{PageRead, Server};
use crate::sights::PageSnapshot;

/// How long the queue may take. The reader has their page by then; the next one waits for this instance.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);

/// A page that is read this often by one instance is worth regenerating before it becomes stale.
const HOT_READS: u32 = 10;

/// A regeneration to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueue {
    page: PageKey,
    reason: Reason,
    lost: Option<String>,
}

impl Enqueue {
    fn about(&self) -> About {
        About { page: self.page.clone(), reason: self.reason, lost: self.lost.is_some() }
    }
}

/// Whether to ask, and if not, why not.
pub(crate) enum EnqueueDecision {
    /// Ask for this.
    Ask(Enqueue),
    /// There is nothing to wish for.
    Nothing,
    /// Somebody is rendering it at this moment.
    Rendering,
    /// This instance has just asked.
    Suppressed,
    /// The queue has failed a moment ago, and there is something to show meanwhile.
    QueueDown,
    /// Readers have asked for too much.
    RateLimited,
    /// The origin has failed and is given a rest.
    Cooldown { until_ms: u64 },
}

impl Server {
    /// What to ask for, given what is known of the page. `lost` is an object that should be there and is not.
    pub(crate) fn asking(&self, visit: &PageRead<'_>, sight: &PageSnapshot, lost: Option<&str>) -> EnqueueDecision {
        let now_ms = self.now_ms();
        let reason = match lost {
            // A page that is fresh by its row would satisfy `expired`.
            Some(_) => Some(Reason::Changed),
            None => sight.freshness(&visit.policy, now_ms).reason(),
        };
        match reason {
            None => EnqueueDecision::Nothing,
            Some(reason) => self.asking_for(visit.page, reason, sight, lost, now_ms),
        }
    }

    /// A page that is read often and near its end is regenerated while it is still fresh, so that nobody sees it stale. As `changed`:
    /// a fresh page would satisfy `expired`.
    pub(crate) fn asking_early(&self, visit: &PageRead<'_>, sight: &PageSnapshot, reads: u32) -> EnqueueDecision {
        let percent = u64::from(self.settings.early_refresh_percent);
        let Some(meta) = sight.meta.as_deref() else { return EnqueueDecision::Nothing };
        if percent == 0 || reads < HOT_READS || sight.health.pinned() {
            return EnqueueDecision::Nothing;
        }
        let now_ms = self.now_ms();
        let left_ms = match sight.freshness(&visit.policy, now_ms) {
            Freshness::Fresh { until_ms } => until_ms.saturating_sub(now_ms),
            Freshness::Stale { .. } | Freshness::Expired { .. } | Freshness::Missing | Freshness::Gone => {
                return EnqueueDecision::Nothing;
            }
        };
        if left_ms > seconds::to_ms(meta.revalidate_seconds) / 100 * percent {
            return EnqueueDecision::Nothing;
        }
        self.asking_for(visit.page, Reason::Changed, sight, None, now_ms)
    }

    fn asking_for(
        &self,
        page: &PageKey,
        reason: Reason,
        sight: &PageSnapshot,
        lost: Option<&str>,
        now_ms: u64,
    ) -> EnqueueDecision {
        if let Some(until_ms) = sight.health.cooldown_until(now_ms) {
            return EnqueueDecision::Cooldown { until_ms };
        }
        // For mere age, the render that is under way will do. A change may have come after it began.
        if reason == Reason::Expired && sight.leased_until_ms.is_some_and(|until_ms| until_ms > now_ms) {
            return EnqueueDecision::Rendering;
        }
        // A queue that does not answer would hold this instance, and the next reader with it. Who has nothing to show tries all the same.
        let can_wait = sight.meta.is_some() && lost.is_none();
        if can_wait && self.queue_breaker.is_open(self.local_now_ms()) {
            self.count(metrics::ENQUEUES_SUPPRESSED);
            return EnqueueDecision::QueueDown;
        }
        let wish = Enqueue { page: page.clone(), reason, lost: lost.map(str::to_owned) };
        let meta = sight.meta.as_deref();
        let decision = self.asks.lock().unwrap_or_else(PoisonError::into_inner).decide(wish.about(), meta, now_ms);
        match decision {
            Decision::Ask => EnqueueDecision::Ask(wish),
            Decision::Suppressed => {
                self.count(metrics::ENQUEUES_SUPPRESSED);
                EnqueueDecision::Suppressed
            }
            Decision::RateLimited => {
                self.count(metrics::ENQUEUES_LIMITED);
                let tenant = page.tenant();
                if self.remarks.due(Remark::RateLimited, tenant) {
                    let page = page.logged();
                    tracing::warn!(%tenant, %page, "readers of {tenant} ask for more than their budget; {page} stays as it is");
                }
                EnqueueDecision::RateLimited
            }
        }
    }

    /// Sends the wish to the queue, and says whether it is there. If not, the next reader of the page may try again.
    pub async fn ask(&self, wish: Enqueue) -> bool {
        let mut unsent = Unsent { asks: &self.asks, about: Some(wish.about()) };
        let Enqueue { page, reason, lost } = wish;
        let mut message = Message::path(page.tenant().as_str(), page.path().as_str());
        message.reason = reason;
        let hash = page.hash().to_string();
        let mut beside = vec![(attributes::PAGE, hash.as_str())];
        // A pointer that leads elsewhere may hold anything, also what the queue refuses. The worker replaces it without being told.
        let (bucket, layout) = (self.bodies.bucket(), self.settings.layout);
        let lost = lost.filter(|key| locate(key, bucket, page.tenant(), layout).is_ok());
        beside.extend(lost.as_deref().map(|key| (attributes::LOST, key)));
        match tokio::time::timeout(LONGEST, self.sender.send_with(&message, &beside)).await {
            Ok(Ok(_)) => {
                unsent.about = None;
                if self.queue_breaker.answered() {
                    tracing::info!("the queue takes wishes again");
                }
                let page = page.logged();
                tracing::info!(%page, %reason, "asked for a new {page}");
                self.count(metrics::ENQUEUED);
                return true;
            }
            // No fault of the queue's.
            Ok(Err(SendError::Message(error))) => {
                let page = page.logged();
                tracing::error!(%page, %error, "{page} cannot be asked for: {error}");
            }
            Ok(Err(error @ SendError::Queue { .. })) => self.not_taken(&error.to_string()),
            Err(_) => self.not_taken("no answer in time"),
        }
        false
    }

    pub(crate) fn not_taken(&self, why: &str) {
        self.count(metrics::SQS_OUTAGE);
        if self.queue_breaker.failed(self.local_now_ms()) {
            tracing::warn!(why, "the queue does not take what readers wish for: {why}");
        }
    }
}

/// A wish that was decided upon and is not known to be in the queue. However its sending ends, given up in the middle included, the
/// next reader may try again.
struct Unsent<'a> {
    asks: &'a Mutex<EnqueueLimiter>,
    about: Option<About>,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if let Some(about) = self.about.take() {
            self.asks.lock().unwrap_or_else(PoisonError::into_inner).failed(&about);
        }
    }
}

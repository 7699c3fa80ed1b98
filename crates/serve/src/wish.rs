//! What a visit asks for, and sending it.

use std::sync::PoisonError;
use std::time::Duration;

use everfresh_core::domain::artifact::locate;
use everfresh_core::domain::freshness::Freshness;
use everfresh_core::domain::page::Seen;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::request::Reason;
use everfresh_core::domain::seconds;
use everfresh_core::metrics;
use everfresh_enqueue::{Message, attributes};

use crate::asks::{About, Decision};
use crate::pages::Sight;
use crate::serve::{Server, Visit};

/// How long the queue may take. The reader has their page by then; the next one waits for this instance.
const LONGEST: Duration = Duration::from_secs(2);

/// A page that is read this often by one instance is worth regenerating before it becomes stale.
const HOT_READS: u32 = 10;

/// A regeneration to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    page: PageKey,
    reason: Reason,
    lost: Option<String>,
}

/// Whether to ask, and if not, why not.
pub(crate) enum Asking {
    /// Ask for this.
    Ask(Wish),
    /// There is nothing to wish for.
    Nothing,
    /// Somebody is rendering it at this moment.
    Rendering,
    /// This instance has just asked.
    Suppressed,
    /// Readers have asked for too much.
    OverBudget,
    /// The origin has failed and is given a rest.
    Cooldown { until_ms: u64 },
}

impl Server {
    /// What to ask for, given what is known of the page. `lost` is an object that should be there and is not.
    pub(crate) fn asking(&self, visit: &Visit<'_>, sight: &Sight, lost: Option<&str>) -> Asking {
        let now_ms = self.now_ms();
        let reason = match lost {
            // A page that is fresh by its row would satisfy `expired`.
            Some(_) => Some(Reason::Changed),
            None => sight.freshness(&visit.policy, now_ms).reason(),
        };
        match reason {
            None => Asking::Nothing,
            Some(reason) => self.asking_for(visit.page, reason, sight, lost, now_ms),
        }
    }

    /// A page that is read often and near its end is regenerated while it is still fresh, so that nobody sees it stale. As `changed`:
    /// a fresh page would satisfy `expired`.
    pub(crate) fn asking_early(&self, visit: &Visit<'_>, sight: &Sight, reads: u32) -> Asking {
        let percent = u64::from(self.settings.early_refresh_percent);
        let Some(meta) = sight.meta.as_deref() else { return Asking::Nothing };
        if percent == 0 || reads < HOT_READS || sight.health.pinned() {
            return Asking::Nothing;
        }
        let now_ms = self.now_ms();
        let left_ms = match sight.freshness(&visit.policy, now_ms) {
            Freshness::Fresh { until_ms } => until_ms.saturating_sub(now_ms),
            Freshness::Stale { .. } | Freshness::Expired { .. } | Freshness::Missing | Freshness::Gone => {
                return Asking::Nothing;
            }
        };
        if left_ms > seconds::to_ms(meta.revalidate_seconds) / 100 * percent {
            return Asking::Nothing;
        }
        self.asking_for(visit.page, Reason::Changed, sight, None, now_ms)
    }

    fn asking_for(&self, page: &PageKey, reason: Reason, sight: &Sight, lost: Option<&str>, now_ms: u64) -> Asking {
        if let Some(until_ms) = sight.health.cooldown_until(now_ms) {
            return Asking::Cooldown { until_ms };
        }
        // For mere age, the render that is under way will do. A change may have come after it began.
        if reason == Reason::Expired && sight.leased_until_ms.is_some_and(|until_ms| until_ms > now_ms) {
            return Asking::Rendering;
        }
        let about = About { seen: Seen::of(sight.meta.as_deref()), reason, lost: lost.is_some() };
        let decision = self.asks.lock().unwrap_or_else(PoisonError::into_inner).decide(page, about, now_ms);
        match decision {
            Decision::Ask => Asking::Ask(Wish { page: page.clone(), reason, lost: lost.map(str::to_owned) }),
            Decision::Suppressed => {
                self.count(metrics::ASKS_SUPPRESSED);
                Asking::Suppressed
            }
            Decision::OverBudget => {
                self.count(metrics::ASKS_OVER_BUDGET);
                tracing::warn!(%page, "readers of {} ask for more than their budget; {page} stays as it is", page.tenant());
                Asking::OverBudget
            }
        }
    }

    /// Sends the wish to the queue. If that fails, the next reader of the page may try again.
    pub async fn ask(&self, wish: Wish) {
        let Wish { page, reason, lost } = wish;
        let mut message = Message::path(page.tenant().as_str(), page.path().as_str());
        message.reason = reason;
        let hash = page.hash().to_string();
        let mut beside = vec![(attributes::PAGE, hash.as_str())];
        // A pointer that leads elsewhere may hold anything, also what the queue refuses. The worker replaces it without being told.
        let (bucket, layout) = (self.bodies.bucket(), self.settings.layout);
        let lost = lost.filter(|key| locate(key, bucket, page.tenant(), layout).is_ok());
        beside.extend(lost.as_deref().map(|key| (attributes::LOST, key)));
        let why = match tokio::time::timeout(LONGEST, self.sender.send_with(&message, &beside)).await {
            Ok(Ok(_)) => {
                tracing::info!(%page, %reason, "asked for a new {page}");
                self.count(metrics::ASKED);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        self.count(metrics::SQS_OUTAGE);
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).failed(&page);
        tracing::warn!(%page, why, "the queue did not take the wish for {page}: {why}");
    }
}

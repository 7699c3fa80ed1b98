//! One page as the ledger shows it, now or once it has become what is waited for.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::domain::freshness::{Freshness, Policy, Why, freshness};
use everfresh_core::domain::health::Health;
use everfresh_core::domain::invalidations::Invalidations;
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::seconds;
use everfresh_core::epochs::Epochs;
use everfresh_core::ledger::{Ledger, LedgerError, RowError, Seen};
use tokio::time::Instant;

/// How often a page that is waited for is looked at: often at first, for most renders are quick.
const FIRST_POLL: Duration = Duration::from_millis(100);
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// A page at one moment.
#[derive(Clone, Debug)]
pub(crate) struct PageSnapshot {
    pub(crate) meta: Option<Arc<Meta>>,
    /// In its place, a foreign row that cannot be read: the page counts as missing, and a render replaces it.
    pub(crate) unreadable: Option<RowError>,
    pub(crate) health: Health,
    pub(crate) invalidations: Invalidations,
    /// Somebody renders it until then at the latest.
    pub(crate) leased_until_ms: Option<u64>,
    /// When the read began: what was written after that, it may not have seen.
    pub(crate) began: Instant,
    pub(crate) read_ms: u64,
}

impl PageSnapshot {
    pub(crate) fn freshness(&self, policy: &Policy, now_ms: u64) -> Freshness {
        freshness(self.meta.as_deref(), &self.health, &self.invalidations, policy, now_ms)
    }

    /// Whether a reader who waits since `seen` has waited long enough.
    fn ends_wait(&self, seen: &Seen, policy: &Policy, now_ms: u64) -> bool {
        let newer = Seen::of(self.meta.as_deref()) != *seen;
        match self.freshness(policy, now_ms) {
            Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Gone => true,
            Freshness::Missing => false,
            // A page that lives for a second may be expired when it appears, for `generated_at` is in whole seconds. It is new all the same.
            Freshness::Expired { why: Why::Age | Why::Deployed | Why::Clock } => newer,
            // Rendered before the change that the reader waits for. Without any page there was nothing to be changed.
            Freshness::Expired { why: Why::Invalidated } => newer && *seen == Seen::Absent,
        }
    }
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Until {
    /// A newer version than this one, or that this one need not be waited for any more.
    NewerThan(Seen),
    /// Any body but this one, which is gone.
    OtherBody(String),
}

pub(crate) type Reading = Result<PageSnapshot, Arc<LedgerError>>;

/// Where sights come from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) ledger: Ledger,
    pub(crate) epochs: Arc<Epochs>,
}

impl Source {
    pub(crate) async fn read(self, page: PageKey, policy: Policy, consistent: bool) -> Reading {
        let began = Instant::now();
        let ledger = &self.ledger;
        let state = match consistent {
            true => ledger.lookup_for_waiting_reader(&page).await?,
            false => ledger.lookup_for_reader(&page).await?,
        };
        let invalidations = match &state.meta {
            Some(meta) => self.epochs.invalidations(ledger, &page, meta, &policy).await?,
            None => Invalidations::default(),
        };
        Ok(PageSnapshot {
            meta: state.meta.map(Arc::new),
            unreadable: state.unreadable.map(|row| row.error),
            health: state.health,
            invalidations,
            leased_until_ms: state.lock.map(|lock| seconds::to_ms(lock.lease_expires_at)),
            began,
            read_ms: ledger.time().local_now_ms(),
        })
    }

    /// Looks at the page until it is what is waited for, or until its regeneration has failed. Never ends by itself otherwise.
    pub(crate) async fn poll(self, page: PageKey, policy: Policy, until: Until) -> PageSnapshot {
        let mut pause = FIRST_POLL;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_POLL);
            // A ledger that does not answer now may do so before the reader has to go.
            let Ok(sight) = self.clone().read(page.clone(), policy, true).await else { continue };
            let now_ms = self.ledger.time().now_ms();
            let came = match (&until, &sight.meta) {
                (Until::NewerThan(seen), _) => sight.ends_wait(seen, &policy, now_ms),
                (Until::OtherBody(lost), Some(meta)) => meta.s3_key != *lost,
                (Until::OtherBody(_), None) => false,
            };
            if came || sight.health.cooldown_until(now_ms).is_some() {
                return sight;
            }
        }
    }
}

/// Whether the table answered with something that is not what it must be.
pub(crate) fn unreadable(error: &LedgerError) -> bool {
    match error {
        LedgerError::Row { .. } => true,
        LedgerError::Unavailable { .. } | LedgerError::Refused { .. } => false,
    }
}

/// Whether a reader waits for something better than this.
pub(crate) fn must_wait(freshness: &Freshness) -> bool {
    match freshness {
        Freshness::Missing | Freshness::Expired { .. } => true,
        Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Gone => false,
    }
}

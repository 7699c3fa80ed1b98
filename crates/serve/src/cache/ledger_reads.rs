//! Reads of one page from the ledger: once, or until the page is what a request waits for.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::domain::freshness::Policy;
use everfresh_core::domain::invalidations::Invalidations;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::seconds;
use everfresh_core::ledger::epoch_cache::Epochs;
use everfresh_core::ledger::{Ledger, LedgerError, Seen};
use tokio::time::Instant;

use super::snapshot::PageSnapshot;

/// The pause between polls: short at first, because most renders are quick.
const FIRST_POLL: Duration = Duration::from_millis(100);
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Until {
    /// A newer version than this one, or that this one is fresh or stale again.
    NewerThan(Seen),
    /// Any body but this one, which S3 does not have.
    OtherBody(String),
}

/// Cloneable, because concurrent requests share one read.
pub(crate) type SnapshotResult = Result<PageSnapshot, Arc<LedgerError>>;

#[derive(Clone, Debug)]
pub(super) struct LedgerReads {
    pub(super) ledger: Ledger,
    epochs: Arc<Epochs>,
}

impl LedgerReads {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self { ledger, epochs: Arc::default() }
    }

    pub(super) async fn read(self, page: PageKey, policy: Policy, consistent: bool) -> SnapshotResult {
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

    /// Reads the page until it is what `until` says, or until its regeneration has failed. Has no
    /// end otherwise: the caller sets a timeout.
    pub(super) async fn poll(self, page: PageKey, policy: Policy, until: Until) -> PageSnapshot {
        let mut pause = FIRST_POLL;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_POLL);
            // A read that fails now may succeed before the caller's timeout.
            let Ok(snapshot) = self.clone().read(page.clone(), policy, true).await else { continue };
            let now_ms = self.ledger.time().now_ms();
            let done = match (&until, &snapshot.meta) {
                (Until::NewerThan(seen), _) => snapshot.ends_wait(seen, &policy, now_ms),
                (Until::OtherBody(lost), Some(meta)) => meta.s3_key != *lost,
                (Until::OtherBody(_), None) => false,
            };
            if done || snapshot.health.cooldown_until(now_ms).is_some() {
                return snapshot;
            }
        }
    }
}

/// Whether DynamoDB answered, with a row that cannot be parsed.
pub(crate) fn is_row_error(error: &LedgerError) -> bool {
    match error {
        LedgerError::Row { .. } => true,
        LedgerError::Unavailable { .. } | LedgerError::Refused { .. } => false,
    }
}

//! Renews the lease while a render runs.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::branches::{Branch, reached};
use crate::config::Ladder;
use crate::domain::lease::Lease;
use crate::domain::page_key::PageKey;
use crate::ledger::{Ledger, LedgerError, Renewal};

#[derive(Debug)]
pub(super) enum Kept<T> {
    /// The work is done, and no renewal is in flight.
    Done(T),
    /// Another worker has the lease; the work is dropped, as it could not be committed.
    LostLease,
}

/// Runs `work` and renews the lease at every interval. A renewal in flight when the work ends is
/// awaited: a late one must not touch the lease after the commit has spent it.
pub(super) async fn keep_lease<T>(
    ledger: &Ledger,
    lease: &mut Lease,
    ladder: &Ladder,
    work: impl Future<Output = T>,
) -> Kept<T> {
    let page = lease.page().clone();
    let mut work = pin!(work);
    let interval = Duration::from_millis(ladder.renew_interval_ms);
    let mut next = Instant::now() + interval;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Kept::Done(done),
            () = tokio::time::sleep_until(next) => {}
        }
        // From the renewal's beginning: one that hangs must not push the next one back.
        next = Instant::now() + interval;
        let mut renewal = pin!(ledger.renew(lease, ladder.lease_ms));
        let (renewed, done) = tokio::select! {
            biased;
            renewed = &mut renewal => (renewed, None),
            done = &mut work => (renewal.await, Some(done)),
        };
        if let Some(done) = done {
            reached(Branch::RenewalOutlastsRender);
            return Kept::Done(done);
        }
        if lost(renewed, &page) {
            reached(Branch::LeaseLostInRender);
            return Kept::LostLease;
        }
    }
}

/// Whether another worker has the lease. A failed renewal does not say so: the lease outlives three
/// intervals, and the commit checks it.
fn lost(renewed: Result<Renewal, LedgerError>, page: &PageKey) -> bool {
    match renewed {
        Ok(Renewal::Renewed) => false,
        Ok(Renewal::Lost) => true,
        Err(error) => {
            reached(Branch::RenewalUnknown);
            let page = page.logged();
            tracing::warn!(%page, %error, "lease renewal of {page} failed; trying again at the next interval: {error}");
            false
        }
    }
}

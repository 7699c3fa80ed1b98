//! What an operator takes from workers: abandoned records, leases, cooldowns. Between reading and
//! writing, time passes in which a worker may do anything.

use std::time::Duration;

use everfresh_core::domain::page_key::PageKey;
use everfresh_core::ledger::{Ledger, LedgerError};
use everfresh_enqueue::{Message, Queues, Sender};

use crate::check::Actor;
use crate::faults::RunFault;
use crate::run::Sim;

/// How long an operator looks at what was read before the command is given.
const MOST_LOOKING_MS: u64 = 4_000;

/// Deletes the records of the page's requests whose claims have expired.
pub(super) async fn clean_up(
    sim: &Sim,
    rng: &mut fastrand::Rng,
    ledger: &Ledger,
    page: &PageKey,
) -> Result<(), LedgerError> {
    let read = ledger.requests(page, None).await?.rows;
    look(rng).await;
    for (key, row) in read {
        if ledger.delete_abandoned(page, &key, &row).await? {
            sim.count_fault(RunFault::CleanUp);
            sim.wire.note(|| format!("the record of {} of {page} is deleted", key.as_str()));
        }
    }
    Ok(())
}

/// Ends the lease of the page, any worker's.
pub(super) async fn end_lease(
    rng: &mut fastrand::Rng,
    ledger: &Ledger,
    page: &PageKey,
) -> Result<Option<RunFault>, LedgerError> {
    let Some(lock) = ledger.lookup(page).await?.lock else { return Ok(None) };
    if rng.bool() {
        look(rng).await;
    }
    Ok(ledger.end_lease(page, &lock).await?.then_some(RunFault::EndLease))
}

/// Ends the cooldown of the page and enqueues it, as `everfresh enqueue --force` does.
pub(super) async fn end_cooldown(sim: &Sim, ledger: &Ledger, page: &PageKey) -> Result<Option<RunFault>, LedgerError> {
    let is_cooling_down = ledger.lookup(page).await?.health.next_attempt_ms.is_some();
    ledger.end_cooldown(page).await?;
    let stack = &sim.queues.stack;
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let sender = Sender::new(sim.clean_clients(Actor::Producer).sqs, queues);
    // Cannot fail: in memory and without faults.
    let _ = sender.send(&Message::path(page.tenant().as_str(), page.path().as_str())).await;
    Ok(is_cooling_down.then_some(RunFault::EndCooldown))
}

async fn look(rng: &mut fastrand::Rng) {
    tokio::time::sleep(Duration::from_millis(rng.u64(0..=MOST_LOOKING_MS))).await;
}

//! An operator beside running workers: pins, rolls back, purges, invalidates, pauses, redrives dead
//! letters, and takes records, leases and cooldowns away.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::domain::invalidations::Prefix;
use everfresh_core::domain::page_key::{KeyLayout, PageKey};
use everfresh_core::domain::version::Version;
use everfresh_core::ledger::{Ledger, LedgerError, Operation};
use everfresh_enqueue::{Message, Queues, Sender};

use super::redrive::redrive;
use super::{pause, release};
use crate::check::Actor;
use crate::faults::RunFault;
use crate::run::Sim;

/// Operates during the chaos phase.
pub(crate) async fn operator(sim: Arc<Sim>) {
    let mut rng = sim.rng(400);
    let Some(most_ms) = sim.profile.operator_ms else { return };
    let ledger = ledger(&sim);
    while !sim.is_calm() {
        pause(&sim, &mut rng, 1_000, most_ms).await;
        if sim.is_calm() {
            return;
        }
        let page = sim.pages.any(&mut rng).clone();
        let at_ms = upper_ms(&ledger);
        let done = match rng.u8(0..14) {
            0 => ledger.pin(&page).await.map(|operation| counted(operation, RunFault::Pin)),
            1 => Ok(unpin(&sim, &ledger, &page).await.then_some(RunFault::Unpin)),
            // Twice as likely, because only one page of four keeps versions.
            2 | 8 => match kept_versions(&sim, &page).await.first() {
                Some(version) => {
                    ledger.roll_back(&page, version).await.map(|operation| counted(operation, RunFault::RollBack))
                }
                None => continue,
            },
            9 => paused_for(&ledger, rng.u64(1_000..15_000)).await.map(|()| Some(RunFault::Pause)),
            3 => ledger.purge(&page).await.map(|operation| counted(operation, RunFault::Purge)),
            4 => ledger.invalidate_path(&page, at_ms).await.map(|()| Some(RunFault::InvalidatePath)),
            5 => {
                let Ok(prefix) = Prefix::of(page.path()) else { continue };
                ledger.invalidate_prefix(page.tenant(), &prefix, at_ms).await.map(|()| Some(RunFault::InvalidatePrefix))
            }
            10 => release::clean_up(&sim, &mut rng, &ledger, &page).await.map(|()| None),
            11 | 12 => release::end_lease(&mut rng, &ledger, &page).await,
            13 => release::end_cooldown(&sim, &ledger, &page).await,
            _ => {
                redrive(&sim, &mut rng).await;
                Ok(None)
            }
        };
        if let Ok(Some(done)) = done {
            sim.count_fault(done);
        }
    }
}

/// After the chaos phase: unpins every page and redrives half of the dead letters.
pub(crate) async fn unpin_and_redrive(sim: &Sim) {
    let ledger = ledger(sim);
    let _ = ledger.resume(None).await;
    let pages: Vec<PageKey> = sim.pages.keys().cloned().collect();
    for page in pages {
        if unpin(sim, &ledger, &page).await {
            sim.count_fault(RunFault::Unpin);
        }
    }
    redrive(sim, &mut sim.rng(401)).await;
}

/// Unpins a page and enqueues it, after any live lease. Returns whether it was pinned.
async fn unpin(sim: &Sim, ledger: &Ledger, page: &PageKey) -> bool {
    for _ in 0..100 {
        match ledger.lookup(page).await {
            Ok(state) if state.health.pinned() => {}
            Ok(_) | Err(_) => return false,
        }
        match ledger.unpin(page, upper_ms(ledger)).await {
            Ok(Operation::Done(_)) => break,
            Ok(Operation::Busy { .. } | Operation::Superseded) => tokio::time::sleep(Duration::from_secs(10)).await,
            Ok(Operation::NotFound) | Err(_) => return false,
        }
    }
    let stack = &sim.queues.stack;
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let sender = Sender::new(sim.clean_clients(Actor::Producer).sqs, queues);
    let _ = sender.send(&Message::path(page.tenant().as_str(), page.path().as_str())).await;
    true
}

/// Pauses all tenants for a while.
async fn paused_for(ledger: &Ledger, ms: u64) -> Result<(), LedgerError> {
    ledger.pause(None).await?;
    tokio::time::sleep(Duration::from_millis(ms)).await;
    ledger.resume(None).await
}

/// Only operations that took effect are counted.
fn counted(operation: Operation, fault: RunFault) -> Option<RunFault> {
    matches!(operation, Operation::Done(_)).then_some(fault)
}

async fn kept_versions(sim: &Sim, page: &PageKey) -> Vec<Version> {
    let rows = sim.checker.store.partition(&page.pk(KeyLayout::default())).await;
    rows.keys().filter_map(|sk| Version::of_sk(sk)).collect()
}

fn ledger(sim: &Sim) -> Ledger {
    Ledger::new(&sim.clean_clients(Actor::Operator), &sim.queues.stack.table, KeyLayout::default())
}

/// The upper bound of AWS time.
fn upper_ms(ledger: &Ledger) -> u64 {
    let time = ledger.time();
    time.now_ms() + time.error_ms().unwrap_or(2_000)
}

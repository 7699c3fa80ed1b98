//! An operator among running workers: pins, rolls back, purges, invalidates, and sends dead letters back.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::domain::invalidations::Prefix;
use everfresh_core::domain::page_key::{KeyLayout, PageKey};
use everfresh_core::domain::version::Version;
use everfresh_core::ledger::{Ledger, Operation};
use everfresh_enqueue::{Message, Queues, Sender};

use super::pause;
use crate::check::Actor;
use crate::run::Sim;

/// Operates while there is chaos.
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
        let done = match rng.u8(0..9) {
            0 => ledger.pin(&page).await.map(|operation| counted(operation, "pin")),
            1 => Ok(unpin(&sim, &ledger, &page).await.then_some("unpin")),
            // Twice as likely, for one page of four keeps versions.
            2 | 8 => match kept_versions(&sim, &page).await.first() {
                Some(version) => {
                    ledger.roll_back(&page, version).await.map(|operation| counted(operation, "roll-back"))
                }
                None => continue,
            },
            3 => ledger.purge(&page).await.map(|operation| counted(operation, "purge")),
            4 => ledger.invalidate_path(&page, at_ms).await.map(|()| Some("invalidate-path")),
            5 => {
                let Ok(prefix) = Prefix::of(page.path()) else { continue };
                ledger.invalidate_prefix(page.tenant(), &prefix, at_ms).await.map(|()| Some("invalidate-prefix"))
            }
            _ => {
                redrive(&sim, &mut rng);
                Ok(None)
            }
        };
        if let Ok(Some(done)) = done {
            sim.happened(done);
        }
    }
}

/// After the chaos: what is pinned is set free, half of the dead letters are sent back.
pub(crate) async fn tidy_up(sim: &Sim) {
    let ledger = ledger(sim);
    let pages: Vec<PageKey> = sim.pages.keys().cloned().collect();
    for page in pages {
        if unpin(sim, &ledger, &page).await {
            sim.happened("unpin");
        }
    }
    redrive(sim, &mut sim.rng(401));
}

/// Sets a page free, and asks for what was wished for meanwhile. A live lease is waited for. Returns whether it was pinned.
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

/// Only what was done counts.
fn counted(operation: Operation, name: &'static str) -> Option<&'static str> {
    matches!(operation, Operation::Done(_)).then_some(name)
}

fn redrive(sim: &Sim, rng: &mut fastrand::Rng) {
    for letter in sim.queues.dead_letters() {
        if rng.bool()
            && let Some(message) = sim.queues.redrive(letter.number)
        {
            sim.checker.redriven(&message);
            sim.happened("redrive");
        }
    }
}

async fn kept_versions(sim: &Sim, page: &PageKey) -> Vec<Version> {
    let rows = sim.checker.store.partition(&page.pk(KeyLayout::default())).await;
    rows.keys().filter_map(|sk| Version::of_sk(sk)).collect()
}

fn ledger(sim: &Sim) -> Ledger {
    Ledger::new(&sim.clean_clients(Actor::Operator), &sim.queues.stack.table, KeyLayout::default())
}

/// The upper end of what AWS's time may be.
fn upper_ms(ledger: &Ledger) -> u64 {
    let time = ledger.time();
    time.now_ms() + time.error_ms().unwrap_or(2_000)
}

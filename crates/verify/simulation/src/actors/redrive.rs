//! Redrives of dead letters, as `everfresh dlq redrive` does them: a copy is sent, then the dead
//! letter is deleted. A redrive may crash in between, and two may run at once: then there are two
//! copies of one request, with the same key.

use std::time::Duration;

use crate::check::coverage::key;
use crate::faults::RunFault;
use crate::queues::Message;
use crate::run::Sim;

/// Longest time between sending the copy and deleting the dead letter.
const MOST_BETWEEN_MS: u64 = 2_000;

/// Redrives about half of the dead letters; sometimes two operators do at once.
pub(super) async fn redrive(sim: &Sim, rng: &mut fastrand::Rng) {
    let dead_letters = sim.queues.dead_letters();
    if dead_letters.is_empty() {
        return;
    }
    if rng.u8(0..4) > 0 {
        return redrive_each(sim, dead_letters, rng.fork()).await;
    }
    sim.count_fault(RunFault::RedriveTwice);
    let (first, second) = (rng.fork(), rng.fork());
    let twice =
        futures::future::join(redrive_each(sim, dead_letters.clone(), first), redrive_each(sim, dead_letters, second));
    twice.await;
}

async fn redrive_each(sim: &Sim, dead_letters: Vec<Message>, mut rng: fastrand::Rng) {
    for dead_letter in dead_letters {
        if rng.bool() {
            continue;
        }
        let Some(copy) = sim.queues.send_again(dead_letter.number, key(&dead_letter)) else { continue };
        sim.checker.redriven(&copy);
        sim.wire.note(|| format!("{} is redriven as {}", dead_letter.id(), copy.id()));
        tokio::time::sleep(Duration::from_millis(rng.u64(0..=MOST_BETWEEN_MS))).await;
        if rng.u8(0..6) == 0 {
            sim.count_fault(RunFault::RedriveCrash);
            return;
        }
        sim.queues.delete(dead_letter.number);
        sim.count_fault(RunFault::Redrive);
    }
}

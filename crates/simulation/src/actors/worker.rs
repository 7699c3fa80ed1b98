//! Lambda around the worker: polls, invokes, deletes what was not reported as failed; and everything that can befall a sandbox.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsEvent;
use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::Patience;
use everfresh_core::config::Ladder;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::downstream::{Downstream, DownstreamSettings, EventTarget};
use everfresh_core::ledger::Ledger;
use everfresh_core::metrics::{self, Metrics};
use everfresh_core::regenerate::{Regenerator, Settings};
use everfresh_worker::Worker;

use crate::check::Actor;
use crate::mortal::{Fate, Mortal, When};
use crate::queues::{Message, VISIBILITY_MS};
use crate::run::Sim;
use crate::sabotage::Sabotage;

const TIME_OUT: Duration = Duration::from_secs(60);

/// One worker's sandboxes, one after the other, until the run is over.
pub(crate) async fn worker(sim: Arc<Sim>, index: u64) {
    let mut rng = sim.rng(100 + index);
    let mut sandbox = sandbox(&sim, &mut rng);
    while !sim.is_over() {
        let low = rng.u8(0..4) == 0;
        let queue = if low { &sim.queues.stack.low_priority_queue } else { &sim.queues.stack.queue };
        let most = rng.usize(1..=10);
        let messages = sim.queues.receive(queue, most, &mut rng);
        if messages.is_empty() {
            let idle_ms = if sim.is_calm() { 5_000 } else { rng.u64(100..=3_000) };
            tokio::time::sleep(Duration::from_millis(idle_ms)).await;
            continue;
        }
        let fate = fate(&sim, &mut rng);
        sim.wire.note(|| format!("worker {index} receives {}", names(&messages)));
        let mut event = SqsEvent::default();
        event.records = sim.queues.records(&messages);
        // Somebody else may have them at once: at least once is all that a queue promises.
        let again = rng.bool();
        let struck = || {
            sim.happened(fate.name());
            sim.wire.note(|| format!("worker {index}: {}", fate.name()));
            if again {
                sim.queues.hand_out_again(&messages);
            }
        };
        let invocation = Mortal::new(sandbox.handle(event, TIME_OUT), fate, struck);
        let frozen = match fate {
            Fate::FreezesAfter(_, time) => time,
            Fate::Lives | Fate::Unheard | Fate::DiesAfter(_) => Duration::ZERO,
        };
        match tokio::time::timeout(TIME_OUT + frozen, invocation).await {
            Ok(Some(Ok((response, metrics)))) => {
                count(&sim, &metrics);
                if fate != Fate::Unheard {
                    let failed: BTreeSet<String> =
                        response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect();
                    sim.wire.note(|| format!("worker {index} reports {failed:?} of {}", names(&messages)));
                    ack(&sim, &messages, &failed);
                }
            }
            // The process is gone; another sandbox comes in its place, with another clock.
            Ok(None) | Err(_) => sandbox = self::sandbox(&sim, &mut rng),
            Ok(Some(Err(_))) => {}
        }
        sim.queues.let_go(&messages);
    }
}

fn names(messages: &[Message]) -> String {
    messages.iter().map(Message::id).collect::<Vec<_>>().join(" ")
}

fn ack(sim: &Sim, messages: &[Message], failed: &BTreeSet<String>) {
    let ack_all = sim.wire.sabotage() == Some(Sabotage::BusyIsNotAcked);
    for message in messages {
        if ack_all || !failed.contains(&message.id()) {
            sim.checker.acked(message);
            sim.queues.delete(message.number);
        }
    }
}

fn fate(sim: &Sim, rng: &mut fastrand::Rng) -> Fate {
    if sim.is_calm() {
        return Fate::Lives;
    }
    // A batch of ten is polled hundreds of times: early or late, each as likely.
    let when = |rng: &mut fastrand::Rng| {
        let most = 2 << rng.u32(2..9);
        if rng.bool() { When::Polls(rng.u32(0..most)) } else { When::Time(Duration::from_millis(rng.u64(0..45_000))) }
    };
    match rng.u8(0..100) {
        0..15 => Fate::DiesAfter(when(rng)),
        15..22 => {
            sim.happened(Fate::Unheard.name());
            Fate::Unheard
        }
        ticket if ticket < 22 + sim.freezing => {
            // Past the lease, past the claim, past the message's time with this worker.
            let longest_s = [60, 120, 900][rng.usize(0..3)];
            Fate::FreezesAfter(when(rng), Duration::from_secs(rng.u64(1..longest_s)))
        }
        _ => Fate::Lives,
    }
}

fn sandbox(sim: &Sim, rng: &mut fastrand::Rng) -> Worker {
    let skew_ms = match rng.u8(0..3) {
        0 => 0,
        1 => rng.i64(-2_000..=2_000),
        _ => {
            sim.happened("skewed-clock");
            rng.i64(-60_000..=60_000)
        }
    };
    let clients = sim.clients(Actor::Worker, rng.u64(..), skew_ms, Patience::WORKER);
    let stack = &sim.queues.stack;
    let ledger = Ledger::new(&clients, &stack.table, KeyLayout::default());
    let artifacts = Artifacts::new(&clients, &stack.bucket);
    let ladder = Ladder {
        render_deadline_ms: 50_000,
        function_timeout_ms: 60_000,
        claim_expiry_ms: 65_000,
        visibility_ms: VISIBILITY_MS,
        ..Ladder::default()
    };
    let settings = Settings { ladder, deploy: 1, max_attempts: 5, max_body_bytes: 100_000 };
    let downstream = DownstreamSettings {
        distribution: Some("E1EXAMPLE".to_owned()),
        by_tag: true,
        event_target: EventTarget::parse("arn:aws:events:us-east-1:000000000000:event-bus/site"),
    };
    let regenerator = Regenerator::new(ledger, artifacts, Arc::new(sim.sites.clone()), settings)
        .telling(Downstream::new(&clients, &downstream));
    Worker::new(sim.config.clone(), regenerator, &clients, stack.clone(), 10)
}

/// Outcomes by their names.
const OUTCOMES: [metrics::Metric; 15] = [
    metrics::COMMITTED,
    metrics::UNCHANGED,
    metrics::ALREADY_COVERED,
    metrics::REPLAYED,
    metrics::BUSY,
    metrics::LOCK_CONTENTION,
    metrics::UNTOLD,
    metrics::TOO_CLOSE,
    metrics::SUPERSEDED,
    metrics::PINNED,
    metrics::FAILED,
    metrics::REJECTED,
    metrics::HASH_MISMATCHES,
    metrics::DUPLICATES_PREVENTED,
    metrics::RECEIVED,
];

fn count(sim: &Sim, metrics: &Metrics) {
    for metric in OUTCOMES {
        sim.outcome(metric.name, metrics.total(metric));
    }
}

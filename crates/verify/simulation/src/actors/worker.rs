//! Lambda around the worker: polls, invokes, deletes the messages that were not reported as failed;
//! and the faults of a sandbox.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use everfresh_core::artifacts::Artifacts;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::ledger::Ledger;
use everfresh_core::metrics::{self, Metrics};
use everfresh_core::notifier::{EventTarget, Invalidate, Notifier, NotifierSettings};
use everfresh_core::regenerate::{Regenerator, Settings};
use everfresh_worker::Worker;
use everfresh_worker::handler::BatchError;

use crate::faults::RunFault;
use crate::faulty_invocation::{FaultyInvocation, Freeze, InvocationFault, Moment, Stopped, When};
use crate::guards::Guard;
use crate::invocation_trace::{InvocationTrace, Refusal};
use crate::machine::MachineClock;
use crate::profile::{Invocations, step_ms};
use crate::queues::Message;
use crate::run::Sim;

/// A clock with a larger error is set right by its next step.
const MAX_CLOCK_ERROR_MS: i64 = 900_000;

/// The sandboxes of one worker, one after the other, until the run is over.
pub(crate) async fn worker(sim: Arc<Sim>, index: u64) {
    let mut rng = sim.rng(100 + index);
    let mut sandbox = Sandbox::new(&sim, &mut rng);
    let mut deployed = false;
    while !sim.is_over() {
        // The deployment is complete.
        if sim.is_calm() && !deployed {
            (sandbox, deployed) = (Sandbox::new(&sim, &mut rng), true);
        }
        let low = rng.u8(0..4) == 0;
        let queue = if low { &sim.queues.stack.low_priority_queue } else { &sim.queues.stack.queue };
        let most = rng.usize(1..=sim.profile.batch);
        let messages = sim.queues.receive(queue, most, &mut rng);
        if messages.is_empty() {
            let idle_ms = if sim.is_calm() { 5_000 } else { rng.u64(100..=3_000) };
            tokio::time::sleep(Duration::from_millis(idle_ms)).await;
            continue;
        }
        let fault = fault(&sim, &mut rng);
        sim.wire.note(|| format!("worker {index} receives {}", names(&messages)));
        let redeliver = rng.bool();
        match invoke(&sim, &sandbox, index, &messages, fault, redeliver, rng.fork()).await {
            Some(Ok((response, metrics))) => {
                count(&sim, &metrics);
                let refused = sandbox.trace.refused();
                if metrics.total(metrics::WITHDRAWALS_REFUSED) > 0 {
                    sim.checker.check_given_back(&refused);
                }
                if fault != InvocationFault::ResponseLost {
                    let failed: BTreeSet<String> =
                        response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect();
                    sim.wire.note(|| format!("worker {index} reports {failed:?} of {}", names(&messages)));
                    ack(&sim, &messages, &failed, &refused);
                }
            }
            // The process was killed; another sandbox with another clock replaces it.
            None => {
                sandbox = Sandbox::new(&sim, &mut rng);
                ack_by_copy(&sim, &messages, &mut rng);
            }
            Some(Err(_)) => {}
        }
        sim.queues.release(&messages);
    }
}

/// One invocation with its fault. `None` if it was killed or timed out. With `redeliver`, its
/// messages become visible when the fault happens: SQS delivers at least once.
async fn invoke(
    sim: &Sim,
    sandbox: &Sandbox,
    index: u64,
    messages: &[Message],
    fault: InvocationFault,
    redeliver: bool,
    rng: fastrand::Rng,
) -> Option<Result<(SqsBatchResponse, Metrics), BatchError>> {
    let mut event = SqsEvent::default();
    event.records = sim.queues.records(messages);
    let mut fault = fault;
    if let InvocationFault::FrozenAfter(_, freeze) = &mut fault
        && !sandbox.has_aws_time(sim).await
    {
        freeze.stopped = Stopped::Nothing;
    }
    let frozen = fault.freeze().map_or(Duration::ZERO, |freeze| freeze.time);
    let frozen_ms = i64::try_from(frozen.as_millis()).unwrap_or(i64::MAX);
    let stopped = fault.freeze().map_or(Stopped::Nothing, |freeze| freeze.stopped);
    let mut rng = rng;
    let on_moment = |moment| match moment {
        Moment::Polled => {
            let leased = sandbox.trace.has_just_leased();
            step_clock(sim, &sandbox.clock, leased, &mut rng);
        }
        Moment::Begun if stopped != Stopped::Nothing => sandbox.clock.step(frozen_ms),
        Moment::Begun => {}
        Moment::Faulted => {
            if let Some(fault) = fault.counted_as() {
                sim.count_fault(fault);
                sim.wire.note(|| format!("worker {index}: {}", fault.name()));
                if fault == RunFault::FreezeAfterUpload {
                    sim.orphaned.notify_one();
                }
            }
            if redeliver {
                sim.queues.make_visible(messages);
            }
        }
        Moment::Resumed => {
            sim.wire.note(|| format!("worker {index}: resumed"));
            if stopped != Stopped::Nothing {
                sandbox.clock.monotonic_stopped(frozen_ms);
            }
            if stopped == Stopped::Clocks {
                sandbox.clock.step(-frozen_ms);
            }
        }
    };
    // The runtime cannot stop the timers of one sandbox. Timers that must not run during the freeze
    // are longer by the freeze, while the deadline, which is read from the clock at the start,
    // stays.
    let mut time_left = sim.profile.timeout();
    if stopped != Stopped::Nothing {
        sandbox.clock.step(-frozen_ms);
        time_left += frozen;
    }
    sandbox.trace.begin();
    let invocation = FaultyInvocation::new(sandbox.worker.handle(event, time_left), fault, on_moment);
    let invocation = invocation.traced(sandbox.trace.clone());
    tokio::time::timeout(sim.profile.timeout() + frozen, invocation).await.ok().flatten()
}

/// Steps the wall clock at some awaits, with a bounded error. More often forward while a lease is
/// taken: the time that is read next is that of the version, and a step of some seconds would let it
/// cover changes that its render has not seen.
fn step_clock(sim: &Sim, clock: &MachineClock, leased: bool, rng: &mut fastrand::Rng) {
    let steps = sim.profile.clocks.steps;
    let forward = leased && rng.u32(0..400) < steps;
    if sim.is_calm() || !(forward || rng.u32(0..10_000) < steps) {
        return;
    }
    let ahead_ms = clock.ahead_ms();
    let by_ms = match ahead_ms.abs() > MAX_CLOCK_ERROR_MS {
        true => -ahead_ms,
        false if forward => rng.i64(3_000..40_000),
        false => step_ms(rng),
    };
    clock.step(by_ms);
    sim.count_fault(RunFault::ClockStep);
    sim.wire.note(|| format!("wall clock stepped by {by_ms} ms"));
}

fn names(messages: &[Message]) -> String {
    messages.iter().map(Message::id).collect::<Vec<_>>().join(" ")
}

fn ack(sim: &Sim, messages: &[Message], failed: &BTreeSet<String>, refused: &[Refusal]) {
    let without = sim.wire.without();
    for message in messages {
        let is_refused = || refused.iter().any(|refusal| sim.checker.is_of(message, refusal));
        let ack_failed =
            without == Some(Guard::BusyIsNotAcked) || (without == Some(Guard::RefusedChangedWaits) && is_refused());
        if ack_failed || !failed.contains(&message.id()) {
            sim.checker.acked(message);
            sim.queues.delete(message.number);
        }
    }
}

/// SQS may have delivered a message of a killed worker to another one too, which has acked it. If
/// the killed one had published, its notification is left to a request of another message.
fn ack_by_copy(sim: &Sim, messages: &[Message], rng: &mut fastrand::Rng) {
    for message in messages {
        if sim.checker.is_published_unnotified(message) && !sim.is_calm() && rng.bool() {
            sim.count_fault(RunFault::AckByCopy);
            sim.wire.note(|| format!("{} is deleted by the worker of its copy", message.id()));
            sim.queues.delete(message.number);
        }
    }
}

fn fault(sim: &Sim, rng: &mut fastrand::Rng) -> InvocationFault {
    if sim.is_calm() {
        return InvocationFault::None;
    }
    // By number of polls: a batch of ten is polled hundreds of times, early and late are equally
    // likely. By time: mostly in the middle of a render.
    let longest_ms = sim.profile.site.slowest_ms + 500;
    let when = |rng: &mut fastrand::Rng| {
        let most = 2 << rng.u32(2..8);
        if rng.bool() {
            When::Polls(rng.u32(0..most))
        } else {
            When::Time(Duration::from_millis(rng.u64(0..longest_ms)))
        }
    };
    let invocations = sim.profile.invocations;
    let Invocations { killed, response_lost, frozen, timers_stopped, longest_freeze_s, .. } = invocations;
    if rng.u8(0..100) < invocations.frozen_after_upload {
        // Until the sweep was there, and mostly shorter than the lease.
        let least_ms = sim.profile.in_flight_ms() + 2_000;
        let more_ms = [4_000, 30_000][rng.usize(0..2)];
        let time = Duration::from_millis(least_ms + rng.u64(0..more_ms));
        let stopped = if rng.bool() { Stopped::Nothing } else { Stopped::Clocks };
        return InvocationFault::FrozenAfter(When::Uploaded, Freeze { time, stopped });
    }
    match rng.u8(0..100) {
        draw if draw < killed => InvocationFault::KilledAfter(when(rng)),
        draw if draw < killed + response_lost => {
            sim.count_fault(RunFault::LostAck);
            InvocationFault::ResponseLost
        }
        draw if draw < killed + response_lost + frozen => {
            // Longer than lease, claim and visibility timeout, or shorter.
            let claim_ms = sim.profile.ladder.claim_expiry_ms;
            let longest_ms = if rng.bool() { 2 * claim_ms } else { longest_freeze_s * 1_000 };
            let time = Duration::from_millis(rng.u64(500..=longest_ms));
            let stopped = match rng.u8(0..100) {
                draw if draw >= timers_stopped => Stopped::Nothing,
                _ if rng.u8(0..3) == 0 => Stopped::Timers,
                _ => Stopped::Clocks,
            };
            InvocationFault::FrozenAfter(when(rng), Freeze { time, stopped })
        }
        _ => InvocationFault::None,
    }
}

/// A worker's process and its clock.
struct Sandbox {
    worker: Worker,
    ledger: Ledger,
    clock: MachineClock,
    /// Of its present or last invocation.
    trace: InvocationTrace,
}

impl Sandbox {
    fn new(sim: &Sim, rng: &mut fastrand::Rng) -> Self {
        let profile = &sim.profile;
        let most_ms = profile.clocks.skew_ms;
        let skew_ms = if rng.bool() { 0 } else { rng.i64(-most_ms..=most_ms) };
        if skew_ms.unsigned_abs() > 2_000 {
            sim.count_fault(RunFault::SkewedClock);
        }
        let drift_ppm = rng.i64(-profile.clocks.drift_ppm..=profile.clocks.drift_ppm);
        if drift_ppm.abs() >= 100 {
            sim.count_fault(RunFault::DriftingClock);
        }
        let clock = MachineClock::new(sim.clock.clone(), skew_ms, drift_ppm);
        let wall_clock_only = sim.wire.without() == Some(Guard::ClockStepsAreNoticed);
        let read = if wall_clock_only { clock.wall_clock() } else { clock.clock() };
        let trace = InvocationTrace::default();
        let clients = sim.worker_clients(rng.u64(..), read, trace.clone());
        let stack = &sim.queues.stack;
        let ledger = Ledger::new(&clients, &stack.table, KeyLayout::default());
        let artifacts = Artifacts::new(&clients, &stack.bucket);
        // Sandboxes of the new deployment replace the old ones gradually during the chaos phase.
        let deploy = if profile.deployment && (sim.is_calm() || rng.bool()) { 2 } else { 1 };
        let settings = Settings { ladder: profile.ladder, deploy, max_attempts: 5, max_body_bytes: 100_000 };
        let notifier = NotifierSettings {
            distribution: Some("E1EXAMPLE".to_owned()),
            invalidate: Invalidate::All,
            by_tag: true,
            event_target: EventTarget::parse("arn:aws:events:us-east-1:000000000000:event-bus/site"),
        };
        let regenerator = Regenerator::new(ledger, artifacts, Arc::new(sim.sites.clone()), settings)
            .with_notifier(Notifier::new(&clients, &notifier));
        let worker = Worker::new(sim.config.clone(), regenerator, &clients, stack.clone(), 10);
        let ledger = Ledger::new(&clients, &stack.table, KeyLayout::default());
        Self { worker, ledger, clock, trace }
    }

    /// Whether AWS has responded to this sandbox. Before that it has only its wall clock, which a
    /// freeze without timers has to step twice.
    async fn has_aws_time(&self, sim: &Sim) -> bool {
        let Some(page) = sim.pages.keys().next() else { return false };
        self.ledger.lookup(page).await.is_ok() && self.ledger.time().error_ms().is_some()
    }
}

/// The outcomes of messages.
pub(crate) const OUTCOMES: [metrics::Metric; 15] = [
    metrics::COMMITTED,
    metrics::UNCHANGED,
    metrics::BYPASSED,
    metrics::WITHDRAWN,
    metrics::WITHDRAWALS_REFUSED,
    metrics::ALREADY_COVERED,
    metrics::REPLAYED,
    metrics::BUSY,
    metrics::NOTIFICATIONS_PENDING,
    metrics::TOO_CLOSE,
    metrics::SUPERSEDED,
    metrics::PINNED,
    metrics::FAILED,
    metrics::REJECTED,
    metrics::KEY_CONFLICTS,
];

/// Metrics that are counted in addition to the outcomes.
const TOTALS: [metrics::Metric; 3] = [metrics::LOCK_CONTENTION, metrics::DUPLICATES_PREVENTED, metrics::RECEIVED];

fn count(sim: &Sim, metrics: &Metrics) {
    for metric in OUTCOMES.into_iter().chain(TOTALS) {
        sim.count_outcome(metric.name, metrics.total(metric));
    }
}

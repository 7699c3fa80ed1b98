//! What one run is like. Each seed draws which faults are on and how often they happen, how many pages and workers there are, and how long
//! a render takes beside a lease and a claim. One mix for all seeds would have a little of everything and never much of anything: states
//! that take three rare events would be met once in ten thousand runs.

use std::time::Duration;

use everfresh_core::config::Ladder;
use everfresh_local::faults::{Fault, Rates};

use crate::queues::VISIBILITY_MS;
use crate::site::Manner;

/// The fewest workers of a run.
pub const LEAST_WORKERS: u32 = 3;
/// The fewest messages that producers send in a run.
pub const LEAST_MESSAGES: u32 = 20;

/// Calls whose failures come in bursts, so that all of the SDK's tries fail. A pair is what the code asks when it does not know.
const BURSTS: [&[&str]; 8] = [
    &["PutItem"],
    &["PutItem", "GetItem"],
    &["UpdateItem"],
    &["TransactWriteItems"],
    &["TransactWriteItems", "GetItem"],
    &["TransactWriteItems", "UpdateItem"],
    &["Query"],
    &["PutObject"],
];

/// A run's settings. `Debug` is what a replay prints.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Workers that run at once.
    pub workers: u32,
    /// Pages, of both tenants.
    pub pages: usize,
    /// Messages of producers.
    pub messages: u32,
    /// Readers that run at once.
    pub readers: u64,
    /// The largest batch that a worker receives.
    pub batch: usize,
    /// Of 256 messages, so many are handed out twice.
    pub duplicates: u8,
    /// Time-outs, leases and claims.
    pub ladder: Ladder,
    /// How long renders take, and how many fail.
    pub manner: Manner,
    /// What happens to calls, in calls out of ten thousand.
    pub rates: Rates,
    /// Operations that fail many times in a row.
    pub bursts: &'static [&'static str],
    /// For how long at a time DynamoDB fails to write leases, and then for as long does not; none if it always writes them.
    pub lease_outage_ms: Option<u64>,
    /// Whether DynamoDB forgets a transaction's token at once, and not after ten minutes.
    pub forgets_tokens: bool,
    /// What happens to invocations, of a hundred.
    pub invocations: Invocations,
    /// The workers' clocks.
    pub clocks: Clocks,
    /// The longest pause between two acts of the operator; none if there is no operator.
    pub operator_ms: Option<u64>,
    /// The longest pause between two commits of a foreign writer; none if there is none.
    pub foreign_ms: Option<u64>,
    /// The longest pause between two losses of a stored body; none if the bucket keeps everything.
    pub object_loss_ms: Option<u64>,
    /// Until when CloudFront and EventBridge cannot be reached, since the beginning.
    pub notification_outage_ms: Option<u64>,
    /// Whether a second deployment replaces the first one while they run.
    pub deployment: bool,
    /// Whether a sender with another configuration computes other pages.
    pub other_pages: bool,
}

/// Of a hundred invocations, so many meet each fault.
#[derive(Clone, Copy, Debug)]
pub struct Invocations {
    /// The process is gone.
    pub killed: u8,
    /// They do their work, and Lambda never hears of it.
    pub unheard: u8,
    /// The sandbox is frozen for a while.
    pub frozen: u8,
    /// Of a hundred frozen ones, so many have timers that did not run meanwhile.
    pub timers_stopped: u8,
    /// The longest freeze.
    pub longest_freeze_s: u64,
}

/// How the workers' clocks are wrong.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// By how much they are ahead or behind when a sandbox starts.
    pub skew_ms: i64,
    /// How fast they may run away, in millionths.
    pub drift_ppm: i64,
    /// Of ten thousand polls of an invocation, at so many the wall clock is set.
    pub steps: u32,
}

impl Profile {
    /// The profile of a seed.
    pub fn draw(seed: u64) -> Self {
        let rng = &mut fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
        // Many workers on few pages, which are frozen often: they overtake each other.
        let crowded = rng.bool();
        let workers = LEAST_WORKERS + if crowded { 5 } else { [0, 1, 2, 5][rng.usize(0..4)] };
        let pages = if crowded { rng.usize(1..=2) } else { [1, 2, 5, 5, 12][rng.usize(0..5)] };
        Self {
            workers,
            pages,
            messages: LEAST_MESSAGES + rng.u32(0..15),
            readers: rng.u64(1..=3),
            batch: if crowded { rng.usize(1..=3) } else { [1, 3, 10, 10][rng.usize(0..4)] },
            duplicates: [0, 8, 60][rng.usize(0..3)],
            ladder: ladder(rng),
            manner: Manner {
                failing: if crowded { [60, 400][rng.usize(0..2)] } else { [0, 60, 400][rng.usize(0..3)] },
                slowest_ms: [50, 2_000, 15_000, 20_000, 45_000][rng.usize(0..5)],
                cached: [0, 0, 0, 70][rng.usize(0..4)],
            },
            rates: rates(rng),
            bursts: if rng.bool() { BURSTS[rng.usize(0..BURSTS.len())] } else { &[] },
            lease_outage_ms: (rng.u8(0..6) < if crowded { 4 } else { 2 })
                .then(|| [8_000, 20_000, 40_000][rng.usize(0..3)]),
            forgets_tokens: rng.u8(0..3) == 0,
            invocations: Invocations {
                killed: [0, 8, 15][rng.usize(0..3)],
                unheard: [0, 4, 8][rng.usize(0..3)],
                frozen: if crowded { 60 } else { [0, 8, 30, 60][rng.usize(0..4)] },
                timers_stopped: if crowded { 100 } else { [0, 50, 100][rng.usize(0..3)] },
                longest_freeze_s: [60, 120, 300, 900][rng.usize(0..4)],
            },
            clocks: Clocks {
                skew_ms: [0, 2_000, 60_000][rng.usize(0..3)],
                // Up to what the workers allow for.
                drift_ppm: [0, 0, 300, 9_900][rng.usize(0..4)],
                steps: [0, 0, 20, 200][rng.usize(0..4)],
            },
            operator_ms: sometimes(rng, &[8_000, 30_000, 90_000]),
            foreign_ms: sometimes(rng, &[10_000, 40_000, 120_000]),
            object_loss_ms: sometimes(rng, &[20_000, 90_000]),
            notification_outage_ms: (rng.u8(0..3) == 0).then(|| rng.u64(60_000..240_000)),
            deployment: rng.u8(0..4) == 0,
            other_pages: rng.u8(0..6) == 0,
        }
    }

    /// How long the function may run.
    pub fn time_out(&self) -> Duration {
        Duration::from_millis(self.ladder.function_timeout_ms)
    }
}

/// One of these, or in every second profile nothing.
fn sometimes(rng: &mut fastrand::Rng, values: &[u64]) -> Option<u64> {
    let value = values[rng.usize(0..values.len())];
    rng.bool().then_some(value)
}

/// A function of a minute, or one that is shorter than its leases; leases that every long render has to renew,
/// also within ε.
fn ladder(rng: &mut fastrand::Rng) -> Ladder {
    let usual = Ladder {
        render_deadline_ms: 50_000,
        function_timeout_ms: 60_000,
        claim_expiry_ms: 65_000,
        visibility_ms: VISIBILITY_MS,
        ..Ladder::default()
    };
    let short = Ladder { render_deadline_ms: 16_000, function_timeout_ms: 20_000, claim_expiry_ms: 22_000, ..usual };
    match rng.u8(0..9) {
        0 => Ladder { lease_ms: 10_000, renew_interval_ms: 3_000, ..usual },
        1 => Ladder { lease_ms: 10_000, renew_interval_ms: 3_000, ..short },
        2 => short,
        3..7 => Ladder { lease_ms: 10_000, renew_interval_ms: 3_000, epsilon_ms: 60_000, ..usual },
        _ => usual,
    }
}

/// How often each fault happens to a call: a kind is off, seldom or often.
fn rates(rng: &mut fastrand::Rng) -> Rates {
    let most = [0, 20, 100, 300][rng.usize(0..4)];
    let time = |rng: &mut fastrand::Rng, most_ms| Duration::from_millis(rng.u64(50..=most_ms));
    let faults: [Fault; Fault::KINDS.len() + 2] = [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::LoseResponse,
        Fault::Cut,
        Fault::Delay(time(rng, 2_000)),
        Fault::Delay(time(rng, 90_000)),
        Fault::DuplicateLater(time(rng, 5_000)),
        Fault::DuplicateLater(time(rng, 200_000)),
        Fault::Hang,
        Fault::NotifyBackoff,
        Fault::Conflict,
        Fault::InProgress,
        Fault::Throttle,
        Fault::Overload,
    ];
    let weigh = |fault| (fault, if rng.bool() { rng.u32(0..=2 * most) } else { 0 });
    Rates(faults.into_iter().map(weigh).filter(|(_, rate)| *rate > 0).collect())
}

/// By how much a wall clock is set: from a second to ten minutes, forward or back, as often by little as by much.
pub fn step_ms(rng: &mut fastrand::Rng) -> i64 {
    let most_ms = (1_000i64 << rng.u32(1..10)).min(600_000);
    let by_ms = rng.i64(1_000..=most_ms);
    if rng.bool() { by_ms } else { -by_ms }
}

/// Faults of which each of a burst is one.
pub fn burst_fault(rng: &mut fastrand::Rng) -> Fault {
    let faults =
        [Fault::FailBefore, Fault::FailAfter, Fault::LoseResponse, Fault::Cut, Fault::Throttle, Fault::NotifyBackoff];
    faults[rng.usize(0..faults.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ladders_fit_together_and_enough_runs_have_each_trait() {
        let profiles: Vec<Profile> = (0..1000).map(Profile::draw).collect();
        for profile in &profiles {
            profile.ladder.check().unwrap();
            assert!(profile.workers >= LEAST_WORKERS && profile.messages >= LEAST_MESSAGES);
        }
        let share = |such: fn(&Profile) -> bool| profiles.iter().filter(|profile| such(profile)).count();
        assert!(share(|profile| profile.pages == 1 && profile.workers > 5) > 50);
        assert!(share(|profile| profile.rates.0.is_empty()) > 100);
        assert!(share(|profile| profile.object_loss_ms.is_some()) > 300);
        assert!(share(|profile| profile.other_pages) > 100);
    }
}

//! The settings of one run, drawn by seed: which faults are on and how often they happen, the
//! number of pages and workers, and the duration of renders relative to leases and claims. One mix
//! for all seeds would have few faults of every kind: a state that needs three rare events would be
//! reached once in ten thousand runs.

use std::time::Duration;

use everfresh_core::config::Ladder;
use everfresh_local::faults::{Fault, Rates};

use crate::queues::VISIBILITY_MS;
use crate::site::SiteProfile;

pub const LEAST_WORKERS: u32 = 3;
/// Messages of producers.
pub const LEAST_MESSAGES: u32 = 20;

/// Later than the latest copy of a request.
pub const LATEST_COPY_MS: u64 = 205_000;

/// Calls that fail in bursts, so that all retries of the SDK fail. The second call of a pair is the
/// read after an unknown result.
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

/// The settings of a run. A replay prints its `Debug` form.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Concurrent workers.
    pub workers: u32,
    /// Pages of both tenants.
    pub pages: usize,
    /// Messages of producers.
    pub messages: u32,
    /// Concurrent readers.
    pub readers: u64,
    /// Maximum batch size.
    pub batch: usize,
    /// Messages delivered twice, of 256.
    pub duplicates: u8,
    /// Timeouts, leases and claims.
    pub ladder: Ladder,
    /// Duration and failures of renders.
    pub site: SiteProfile,
    /// Faults of AWS calls, of ten thousand calls.
    pub rates: Rates,
    /// Operations that fail in bursts.
    pub bursts: &'static [&'static str],
    /// DynamoDB alternately fails to write leases and succeeds, each for this time.
    pub lease_outage_ms: Option<u64>,
    /// Whether DynamoDB ignores client request tokens, as it does after ten minutes.
    pub forgets_tokens: bool,
    pub invocations: Invocations,
    pub clocks: Clocks,
    /// Maximum pause between two operator commands.
    pub operator_ms: Option<u64>,
    /// Maximum pause between two commits of a foreign writer.
    pub foreign_ms: Option<u64>,
    /// Maximum pause between two losses of a stored body.
    pub object_loss_ms: Option<u64>,
    /// Maximum pause between two sweeps.
    pub sweep_ms: Option<u64>,
    /// Until this time since the start CloudFront and EventBridge are unreachable.
    pub notification_outage_ms: Option<u64>,
    /// Whether a second deployment replaces the first one during the run.
    pub deployment: bool,
    /// Whether a sender has another configuration and computes other pages.
    pub configuration_skew: bool,
}

/// Faults of invocations, of a hundred each.
#[derive(Clone, Copy, Debug)]
pub struct Invocations {
    pub killed: u8,
    /// The invocation completes, but its response is lost.
    pub response_lost: u8,
    pub frozen: u8,
    /// Frozen between upload and commit; with a sweep only.
    pub frozen_after_upload: u8,
    /// Of a hundred freezes, those that stop timers.
    pub timers_stopped: u8,
    pub longest_freeze_s: u64,
}

/// Errors of the workers' clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Maximum skew at the start of a sandbox.
    pub skew_ms: i64,
    /// Maximum drift, in parts per million.
    pub drift_ppm: i64,
    /// Wall clock steps, of ten thousand polls of an invocation.
    pub steps: u32,
}

impl Profile {
    pub fn draw(seed: u64) -> Self {
        let rng = &mut fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
        // Many workers on few pages with frequent freezes: workers overtake each other.
        let crowded = rng.bool();
        let workers = LEAST_WORKERS + if crowded { 5 } else { [0, 1, 2, 5][rng.usize(0..4)] };
        let pages = if crowded { rng.usize(1..=2) } else { [1, 2, 5, 5, 12][rng.usize(0..5)] };
        let rates = rates(rng);
        let sweep_ms = sometimes(rng, &[5_000, 40_000]);
        // A late copy of a lease lasts longer than any freeze with a valid claim.
        let orphans = sweep_ms.is_some() && !copies_come_late(&rates);
        Self {
            workers,
            pages,
            messages: LEAST_MESSAGES + rng.u32(0..15),
            readers: rng.u64(1..=3),
            batch: if crowded { rng.usize(1..=3) } else { [1, 3, 10, 10][rng.usize(0..4)] },
            duplicates: [0, 8, 60][rng.usize(0..3)],
            ladder: ladder(rng),
            site: SiteProfile {
                failing: if crowded { [60, 400][rng.usize(0..2)] } else { [0, 60, 400][rng.usize(0..3)] },
                slowest_ms: [50, 2_000, 15_000, 20_000, 45_000][rng.usize(0..5)],
                cached: [0, 0, 0, 70, 70, 100, 100][rng.usize(0..7)],
            },
            rates,
            bursts: if rng.bool() { BURSTS[rng.usize(0..BURSTS.len())] } else { &[] },
            lease_outage_ms: (rng.u8(0..6) < if crowded { 4 } else { 2 })
                .then(|| [8_000, 20_000, 40_000][rng.usize(0..3)]),
            forgets_tokens: rng.u8(0..3) == 0,
            invocations: Invocations {
                killed: [0, 8, 15][rng.usize(0..3)],
                response_lost: [0, 4, 8][rng.usize(0..3)],
                frozen: if crowded { 60 } else { [0, 8, 30, 60][rng.usize(0..4)] },
                frozen_after_upload: if orphans { [0, 10, 40][rng.usize(0..3)] } else { 0 },
                timers_stopped: if crowded { 100 } else { [0, 50, 100][rng.usize(0..3)] },
                longest_freeze_s: [60, 120, 300, 900][rng.usize(0..4)],
            },
            clocks: Clocks {
                skew_ms: [0, 2_000, 60_000][rng.usize(0..3)],
                // Up to the drift that the workers allow for.
                drift_ppm: [0, 0, 300, 9_900][rng.usize(0..4)],
                steps: [0, 0, 20, 200][rng.usize(0..4)],
            },
            operator_ms: sometimes(rng, &[8_000, 30_000, 90_000]),
            foreign_ms: sometimes(rng, &[10_000, 40_000, 120_000]),
            object_loss_ms: sometimes(rng, &[20_000, 90_000]),
            sweep_ms,
            notification_outage_ms: (rng.u8(0..3) == 0).then(|| rng.u64(60_000..240_000)),
            deployment: rng.u8(0..4) == 0,
            configuration_skew: rng.u8(0..6) == 0,
        }
    }

    /// The age from which the sweep deletes orphans. A late copy of a worker's LOCK write revives a
    /// lease that the sweep has ended, and only an orphan's age excludes that. Where no copy comes
    /// late, the lease alone protects what a resumed worker may still commit.
    pub fn in_flight_ms(&self) -> u64 {
        if copies_come_late(&self.rates) { LATEST_COPY_MS } else { 2_000 }
    }

    /// After how many seconds beyond its life a page expires, for the same reason. The configuration
    /// allows an hour at least.
    pub fn expire_after_s(&self) -> u64 {
        if copies_come_late(&self.rates) { LATEST_COPY_MS / 1_000 } else { 15 }
    }

    /// The function timeout.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.ladder.function_timeout_ms)
    }
}

fn copies_come_late(rates: &Rates) -> bool {
    rates.0.iter().any(|(fault, _)| matches!(fault, Fault::Delay(_) | Fault::DuplicateLater(_)))
}

/// One of these values in half of the profiles.
fn sometimes(rng: &mut fastrand::Rng, values: &[u64]) -> Option<u64> {
    let value = values[rng.usize(0..values.len())];
    rng.bool().then_some(value)
}

/// A function timeout of a minute, or one shorter than the lease; a claim that ends long before its
/// worker's lease; leases that every long render has to renew, also with a lease shorter than
/// epsilon.
fn ladder(rng: &mut fastrand::Rng) -> Ladder {
    let usual = Ladder {
        render_deadline_ms: 50_000,
        function_timeout_ms: 60_000,
        claim_expiry_ms: 65_000,
        visibility_ms: VISIBILITY_MS,
        ..Ladder::default()
    };
    let short = Ladder { render_deadline_ms: 16_000, function_timeout_ms: 20_000, claim_expiry_ms: 22_000, ..usual };
    match rng.u8(0..13) {
        0 => Ladder { lease_ms: 10_000, renew_interval_ms: 3_000, ..usual },
        1 => Ladder { lease_ms: 10_000, renew_interval_ms: 3_000, ..short },
        2 => short,
        3..6 => Ladder { lease_ms: 60_000, renew_interval_ms: 20_000, ..short },
        6..12 => Ladder { lease_ms: 10_000, renew_interval_ms: 3_000, epsilon_ms: 60_000, ..usual },
        _ => usual,
    }
}

/// The rate of each fault of AWS calls: off, rare or frequent.
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
        Fault::HangAfter,
        Fault::Conflict,
        Fault::InProgress,
        Fault::Throttle,
        Fault::Overload,
    ];
    let weigh = |fault| (fault, if rng.bool() { rng.u32(0..=2 * most) } else { 0 });
    Rates(faults.into_iter().map(weigh).filter(|(_, rate)| *rate > 0).collect())
}

/// A clock step: one second to ten minutes, forward or back, evenly over orders of magnitude.
pub fn step_ms(rng: &mut fastrand::Rng) -> i64 {
    let most_ms = (1_000i64 << rng.u32(1..10)).min(600_000);
    let by_ms = rng.i64(1_000..=most_ms);
    if rng.bool() { by_ms } else { -by_ms }
}

/// A random fault for a burst.
pub fn burst_fault(rng: &mut fastrand::Rng) -> Fault {
    let faults =
        [Fault::FailBefore, Fault::FailAfter, Fault::LoseResponse, Fault::Cut, Fault::Throttle, Fault::HangAfter];
    faults[rng.usize(0..faults.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_valid_and_rare_settings_occur() {
        let profiles: Vec<Profile> = (0..1000).map(Profile::draw).collect();
        for profile in &profiles {
            profile.ladder.check().unwrap();
            assert!(profile.workers >= LEAST_WORKERS && profile.messages >= LEAST_MESSAGES);
        }
        let count = |matches: fn(&Profile) -> bool| profiles.iter().filter(|profile| matches(profile)).count();
        assert!(count(|profile| profile.pages == 1 && profile.workers > 5) > 50);
        assert!(count(|profile| profile.rates.0.is_empty()) > 100);
        assert!(count(|profile| profile.object_loss_ms.is_some()) > 300);
        assert!(count(|profile| profile.configuration_skew) > 100);
        assert!(count(|profile| profile.invocations.frozen_after_upload > 0) > 50);
    }
}

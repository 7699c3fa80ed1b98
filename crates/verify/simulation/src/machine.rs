//! A machine's clocks: AWS's time, wrong in the way of that machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use everfresh_core::clock::Clock;
use tokio::time::Instant;

/// Any time before a run begins: the monotonic clock counts from there, and does not reach zero however long it stands still.
const BEFORE_START: Duration = Duration::from_secs(1_000_000);

/// The clocks of one sandbox. Clones are the same clocks.
#[derive(Clone, Debug)]
pub struct MachineClock {
    aws: Clock,
    started: Instant,
    /// By how much both clocks gain, in millionths.
    drift_ppm: i64,
    /// By how much the wall clock is ahead.
    ahead_ms: Arc<AtomicI64>,
    /// For how long the monotonic clock has stood still.
    stood_ms: Arc<AtomicI64>,
}

impl MachineClock {
    /// A wall clock that is ahead of `aws` by so much, or behind, and drifts.
    pub fn new(aws: Clock, ahead_ms: i64, drift_ppm: i64) -> Self {
        let ahead_ms = Arc::new(AtomicI64::new(ahead_ms));
        Self { aws, started: Instant::now(), drift_ppm, ahead_ms, stood_ms: Arc::default() }
    }

    /// Somebody sets the wall clock.
    pub fn step(&self, by_ms: i64) {
        self.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// By how much the wall clock has been set.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }

    /// The monotonic clock stood still for the last `ms`.
    pub fn stood_still(&self, ms: i64) {
        self.stood_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// The clocks as the code under test reads them.
    pub fn clock(&self) -> Clock {
        let (wall, monotonic) = (self.clone(), self.clone());
        Clock::with_monotonic(move || wall.wall(), move || monotonic.monotonic())
    }

    /// The wall clock alone, by which the code under test then measures everything.
    pub fn wall_clock(&self) -> Clock {
        let wall = self.clone();
        Clock::new(move || wall.wall())
    }

    fn wall(&self) -> SystemTime {
        let ahead_ms = self.ahead_ms() + self.drifted_ms();
        let ahead = Duration::from_millis(ahead_ms.unsigned_abs());
        if ahead_ms < 0 { self.aws.now() - ahead } else { self.aws.now() + ahead }
    }

    fn monotonic(&self) -> Duration {
        let counted = BEFORE_START + self.started.elapsed();
        let ahead_ms = self.drifted_ms() - self.stood_ms.load(Ordering::Relaxed);
        let ahead = Duration::from_millis(ahead_ms.unsigned_abs());
        if ahead_ms < 0 { counted.saturating_sub(ahead) } else { counted + ahead }
    }

    fn drifted_ms(&self) -> i64 {
        let elapsed_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        elapsed_ms.saturating_mul(self.drift_ppm) / 1_000_000
    }
}

//! The clocks of a machine: AWS time with skew, drift, steps and stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use everfresh_core::clock::Clock;
use tokio::time::Instant;

/// The monotonic clock starts at this value, so that it stays positive after any stop.
const BEFORE_START: Duration = Duration::from_secs(1_000_000);

/// The clocks of one sandbox. Clones share them.
#[derive(Clone, Debug)]
pub struct MachineClock {
    aws: Clock,
    started: Instant,
    /// Drift of both clocks, in parts per million.
    drift_ppm: i64,
    /// Wall clock minus AWS time, without drift.
    ahead_ms: Arc<AtomicI64>,
    /// Time for which the monotonic clock was stopped.
    stopped_ms: Arc<AtomicI64>,
}

impl MachineClock {
    pub fn new(aws: Clock, ahead_ms: i64, drift_ppm: i64) -> Self {
        let ahead_ms = Arc::new(AtomicI64::new(ahead_ms));
        Self { aws, started: Instant::now(), drift_ppm, ahead_ms, stopped_ms: Arc::default() }
    }

    /// Steps the wall clock.
    pub fn step(&self, by_ms: i64) {
        self.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Wall clock minus AWS time, without drift.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }

    /// The monotonic clock was stopped for the last `ms`.
    pub fn monotonic_stopped(&self, ms: i64) {
        self.stopped_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// The clocks as the code under test reads them.
    pub fn clock(&self) -> Clock {
        let (wall, monotonic) = (self.clone(), self.clone());
        Clock::with_monotonic(move || wall.wall(), move || monotonic.monotonic())
    }

    /// The wall clock alone: elapsed time is measured by it too.
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
        let ahead_ms = self.drifted_ms() - self.stopped_ms.load(Ordering::Relaxed);
        let ahead = Duration::from_millis(ahead_ms.unsigned_abs());
        if ahead_ms < 0 { counted.saturating_sub(ahead) } else { counted + ahead }
    }

    fn drifted_ms(&self) -> i64 {
        let elapsed_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        elapsed_ms.saturating_mul(self.drift_ppm) / 1_000_000
    }
}

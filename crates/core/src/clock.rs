//! The clock is passed in, so that a test can stop, step or skew it.
//!
//! A machine has two clocks. The wall clock gives the time of day, and NTP or an operator may step
//! it at any moment. The monotonic clock gives the time elapsed, and is never stepped; it may stop
//! while a sandbox is frozen.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_smithy_async::time::TimeSource;

/// A machine's wall clock and its monotonic clock. Clones share both.
#[derive(Clone)]
pub struct Clock {
    wall: Arc<dyn Fn() -> SystemTime + Send + Sync>,
    /// Time since a fixed moment. None: the wall clock is never stepped and is used for both.
    monotonic: Option<Arc<dyn Fn() -> Duration + Send + Sync>>,
}

/// Both clocks of a machine at one moment, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Since the Unix epoch.
    pub(crate) wall_ms: i64,
    /// Since a fixed moment.
    pub(crate) monotonic_ms: i64,
}

impl Reading {
    /// The wall clock minus the monotonic one. It changes when one of them is stepped or stops.
    pub(crate) fn difference_ms(&self) -> i64 {
        self.wall_ms - self.monotonic_ms
    }
}

impl Clock {
    pub fn system() -> Self {
        static PROCESS_START: LazyLock<Instant> = LazyLock::new(Instant::now);
        Self::with_monotonic(SystemTime::now, || PROCESS_START.elapsed())
    }

    /// A clock that calls `now` for wall and monotonic time.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { wall: Arc::new(now), monotonic: None }
    }

    /// A wall clock and a monotonic one that counts from any fixed moment.
    pub fn with_monotonic(
        wall: impl Fn() -> SystemTime + Send + Sync + 'static,
        monotonic: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { wall: Arc::new(wall), monotonic: Some(Arc::new(monotonic)) }
    }

    pub fn now(&self) -> SystemTime {
        (self.wall)()
    }

    /// Milliseconds since the Unix epoch; 0 for a clock set before it.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(millis(since_epoch(self.now()))).unwrap_or_default()
    }

    /// Both clocks, read one after the other.
    pub(crate) fn read(&self) -> Reading {
        let wall_ms = millis(since_epoch(self.now()));
        let monotonic_ms = self.monotonic.as_ref().map_or(wall_ms, |monotonic| millis(monotonic()));
        Reading { wall_ms, monotonic_ms }
    }

    /// The same clock, `ms` milliseconds ahead (behind if negative), as another machine's might be.
    pub fn skewed_by_ms(&self, ms: i64) -> Self {
        let inner = self.wall.clone();
        let offset = Duration::from_millis(ms.unsigned_abs());
        let wall = move || match ms {
            0.. => inner() + offset,
            ..0 => inner() - offset,
        };
        Self { wall: Arc::new(wall), monotonic: self.monotonic.clone() }
    }
}

fn since_epoch(now: SystemTime) -> Duration {
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// SDK clients sign with the same clock that the code above them reads.
impl TimeSource for Clock {
    fn now(&self) -> SystemTime {
        Clock::now(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skewed_clock_differs_by_its_skew() {
        let still = Clock::new(|| UNIX_EPOCH + Duration::from_millis(100_000));
        assert_eq!(still.now_ms(), 100_000);
        assert_eq!(still.skewed_by_ms(60_000).now_ms(), 160_000);
        assert_eq!(still.skewed_by_ms(-60_000).now_ms(), 40_000);
    }

    #[test]
    fn clock_set_before_1970_reads_zero() {
        let ancient = Clock::new(|| UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(ancient.now_ms(), 0);
    }

    #[test]
    fn skew_leaves_the_monotonic_clock_alone() {
        let clock = Clock::with_monotonic(|| UNIX_EPOCH + Duration::from_secs(100), || Duration::from_secs(7));
        let reading = clock.skewed_by_ms(60_000).read();
        assert_eq!(reading, Reading { wall_ms: 160_000, monotonic_ms: 7_000 });
        assert_eq!(reading.difference_ms(), 153_000);
    }

    #[test]
    fn system_clocks_agree_between_two_readings() {
        let clock = Clock::system();
        let (before, after) = (clock.read(), clock.read());
        assert!(after.monotonic_ms >= before.monotonic_ms);
        assert!(before.wall_ms > 0);
    }
}

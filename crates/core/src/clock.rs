//! Wall-clock time, passed in rather than asked for, so that a test can hold it still, move it or skew it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_smithy_async::time::TimeSource;

/// A source of wall-clock time. Clones share the source.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::new(SystemTime::now)
    }

    /// A clock that asks `now` each time.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The present moment.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }

    /// Milliseconds since the Unix epoch; 0 for a clock set before it.
    pub fn now_ms(&self) -> u64 {
        let since_epoch = self.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    /// The same clock, `ms` milliseconds ahead (behind if negative): another machine's opinion of the time.
    pub fn skewed_by_ms(&self, ms: i64) -> Self {
        let inner = self.clone();
        let offset = Duration::from_millis(ms.unsigned_abs());
        Self::new(move || match ms {
            0.. => inner.now() + offset,
            ..0 => inner.now() - offset,
        })
    }
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
    fn a_skewed_clock_differs_by_its_skew_in_both_directions() {
        let still = Clock::new(|| UNIX_EPOCH + Duration::from_millis(100_000));
        assert_eq!(still.now_ms(), 100_000);
        assert_eq!(still.skewed_by_ms(60_000).now_ms(), 160_000);
        assert_eq!(still.skewed_by_ms(-60_000).now_ms(), 40_000);
    }

    #[test]
    fn a_clock_set_before_1970_reads_zero() {
        let ancient = Clock::new(|| UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(ancient.now_ms(), 0);
    }
}

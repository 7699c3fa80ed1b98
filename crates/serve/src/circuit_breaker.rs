//! Circuit breaker for DynamoDB, S3 and SQS: after a failure the service is not called for a
//! moment, as long as the caller can do without it.

use std::sync::{Mutex, MutexGuard, PoisonError};

const FIRST_PAUSE_MS: u64 = 250;
pub(crate) const LONGEST_PAUSE_MS: u64 = 4_000;

#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker(Mutex<Option<Failure>>);

#[derive(Clone, Copy, Debug)]
struct Failure {
    at_ms: u64,
    pause_ms: u64,
}

impl CircuitBreaker {
    /// Open: the last call failed a moment ago, so a caller that can do without the service should.
    pub(crate) fn is_open(&self, now_ms: u64) -> bool {
        // A clock that jumped must not keep it open.
        self.locked().is_some_and(|failure| now_ms.abs_diff(failure.at_ms) < failure.pause_ms)
    }

    /// Each failure in a row doubles the pause. True for the first one.
    pub(crate) fn failed(&self, now_ms: u64) -> bool {
        let mut failure = self.locked();
        let pause_ms = failure.map_or(FIRST_PAUSE_MS, |failure| (failure.pause_ms * 2).min(LONGEST_PAUSE_MS));
        failure.replace(Failure { at_ms: now_ms, pause_ms }).is_none()
    }

    /// True if the call before failed.
    pub(crate) fn succeeded(&self) -> bool {
        self.locked().take().is_some()
    }

    fn locked(&self) -> MutexGuard<'_, Option<Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_with_each_failure_until_success() {
        let breaker = CircuitBreaker::default();
        assert!(!breaker.is_open(0));
        assert!(breaker.failed(1_000));
        assert!(breaker.is_open(1_249) && !breaker.is_open(1_250));
        assert!(!breaker.failed(2_000));
        assert!(breaker.is_open(2_499) && !breaker.is_open(2_500));
        for _ in 0..20 {
            breaker.failed(3_000);
        }
        assert!(breaker.is_open(6_999) && !breaker.is_open(7_000));
        assert!(breaker.succeeded() && !breaker.succeeded());
        assert!(!breaker.is_open(3_000));
    }
}

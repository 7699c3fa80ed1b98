//! A service that does not answer is left alone for a moment, as long as memory can answer in its place.

use std::sync::{Mutex, PoisonError};

const FIRST_PAUSE_MS: u64 = 250;
const LONGEST_PAUSE_MS: u64 = 4_000;

/// How one service has been doing.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker(Mutex<Option<Since>>);

#[derive(Clone, Copy, Debug)]
struct Since {
    failed_ms: u64,
    pause_ms: u64,
}

impl CircuitBreaker {
    /// It has failed a moment ago: whoever can do without it should.
    pub(crate) fn is_open(&self, now_ms: u64) -> bool {
        // A clock that jumped must not keep it away for ever.
        self.since().is_some_and(|since| now_ms.abs_diff(since.failed_ms) < since.pause_ms)
    }

    /// It failed. Each failure in a row doubles the pause. True for the first one.
    pub(crate) fn failed(&self, now_ms: u64) -> bool {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pause_ms = since.map_or(FIRST_PAUSE_MS, |since| (since.pause_ms * 2).min(LONGEST_PAUSE_MS));
        since.replace(Since { failed_ms: now_ms, pause_ms }).is_none()
    }

    /// It answered. True if it had failed before.
    pub(crate) fn answered(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    fn since(&self) -> Option<Since> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_service_is_avoided_longer_and_longer_until_it_answers() {
        let trouble = CircuitBreaker::default();
        assert!(!trouble.is_open(0));
        assert!(trouble.failed(1_000));
        assert!(trouble.is_open(1_249) && !trouble.is_open(1_250));
        assert!(!trouble.failed(2_000));
        assert!(trouble.is_open(2_499) && !trouble.is_open(2_500));
        for _ in 0..20 {
            trouble.failed(3_000);
        }
        assert!(trouble.is_open(6_999) && !trouble.is_open(7_000));
        assert!(trouble.answered() && !trouble.answered());
        assert!(!trouble.is_open(3_000));
    }
}

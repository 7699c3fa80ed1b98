//! Stops connecting to an origin that cannot be connected to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// In a row, until the breaker opens.
const MAX_FAILURES: u32 = 5;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Counts failed connections; a status is no failure. After [`MAX_FAILURES`] in a row it is open
/// for a second, then lets one attempt through, and doubles the pause if that fails too.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
        pause: Duration,
    },
    /// One attempt runs, the first after `until`.
    Probing {
        until: Instant,
        pause: Duration,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

/// No attempt is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Until(Instant),
    /// Until the running probe has ended.
    Probing,
}

impl CircuitBreaker {
    /// Whether an attempt would be refused. Begins none.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Refused> {
        match *self.state() {
            State::Open { until, .. } if now < until => Err(Refused::Until(until)),
            State::Probing { .. } => Err(Refused::Probing),
            State::Closed { .. } | State::Open { .. } => Ok(()),
        }
    }

    /// Begins an attempt. Dropped without a result, as by a visitor who leaves, it counts as none.
    pub(crate) fn admit(&self, now: Instant) -> Result<Attempt<'_>, Refused> {
        self.check(now)?;
        let mut state = self.state();
        match *state {
            State::Probing { .. } => return Err(Refused::Probing),
            State::Open { until, pause } => *state = State::Probing { until, pause },
            State::Closed { .. } => return Ok(Attempt { breaker: self, is_probe: false }),
        }
        Ok(Attempt { breaker: self, is_probe: true })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    breaker: &'a CircuitBreaker,
    is_probe: bool,
}

impl Attempt<'_> {
    pub(crate) fn succeeded(self) {
        *self.breaker.state() = State::default();
    }

    pub(crate) fn failed(self, now: Instant) {
        let mut state = self.breaker.state();
        *state = match *state {
            State::Closed { failures } if failures + 1 < MAX_FAILURES => State::Closed { failures: failures + 1 },
            State::Closed { .. } => State::Open { until: now + FIRST_PAUSE, pause: FIRST_PAUSE },
            State::Probing { pause, .. } if self.is_probe => {
                let pause = (2 * pause).min(MAX_PAUSE);
                State::Open { until: now + pause, pause }
            }
            // It began before the breaker opened.
            open @ (State::Open { .. } | State::Probing { .. }) => open,
        };
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut state = self.breaker.state();
        if let (State::Probing { until, pause }, true) = (*state, self.is_probe) {
            *state = State::Open { until, pause };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fail(breaker: &CircuitBreaker, times: u32, now: Instant) {
        for _ in 0..times {
            breaker.admit(now).unwrap().failed(now);
        }
    }

    #[test]
    fn fifth_failure_in_a_row_opens() {
        let (breaker, now) = (CircuitBreaker::default(), Instant::now());
        fail(&breaker, 4, now);
        breaker.admit(now).unwrap().succeeded();
        fail(&breaker, 4, now);
        assert_eq!(breaker.check(now), Ok(()));
        fail(&breaker, 1, now);
        assert_eq!(breaker.check(now), Err(Refused::Until(now + SECOND)));
        assert_eq!(breaker.admit(now).unwrap_err(), Refused::Until(now + SECOND));
    }

    #[test]
    fn pause_doubles_to_half_a_minute_and_ends_with_a_success() {
        let (breaker, mut now) = (CircuitBreaker::default(), Instant::now());
        fail(&breaker, 5, now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let until = now + seconds * SECOND;
            assert_eq!(breaker.check(until - SECOND / 1000), Err(Refused::Until(until)));
            now = until;
            fail(&breaker, 1, now);
        }
        now += MAX_PAUSE;
        breaker.admit(now).unwrap().succeeded();
        fail(&breaker, 4, now);
        assert_eq!(breaker.check(now), Ok(()));
    }

    #[test]
    fn one_probe_runs_at_a_time() {
        let (breaker, now) = (CircuitBreaker::default(), Instant::now());
        fail(&breaker, 5, now);
        let later = now + SECOND;
        let probe = breaker.admit(later).unwrap();
        assert_eq!(breaker.check(later), Err(Refused::Probing));
        assert_eq!(breaker.admit(later).unwrap_err(), Refused::Probing);
        drop(probe);
        assert!(breaker.admit(later).is_ok(), "a probe without a result is followed by another");
    }

    #[test]
    fn late_failure_neither_opens_longer_nor_ends_a_probe() {
        let (breaker, now) = (CircuitBreaker::default(), Instant::now());
        let [one, two] = [(); 2].map(|()| breaker.admit(now).unwrap());
        fail(&breaker, 5, now);
        one.failed(now + SECOND / 2);
        assert_eq!(breaker.check(now), Err(Refused::Until(now + SECOND)));
        let probe = breaker.admit(now + SECOND).unwrap();
        two.failed(now + SECOND);
        assert_eq!(breaker.check(now + SECOND), Err(Refused::Probing));
        probe.succeeded();
        assert_eq!(breaker.check(now + SECOND), Ok(()));
    }
}

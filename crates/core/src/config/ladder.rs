//! The ladder of timeouts: which must be longer than which, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Every length of time that depends on another one, in milliseconds. Checked once, at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    /// How long a render may take.
    pub render_deadline_ms: u64,
    /// How long the worker function may run.
    pub function_timeout_ms: u64,
    /// How long after the start of an invocation its claims are valid.
    pub claim_expiry_ms: u64,
    /// How long the queue hides a message that was received.
    pub visibility_ms: u64,
    /// How long the event source may collect messages for a batch.
    pub batching_window_ms: u64,
    /// How long a lease lasts.
    pub lease_ms: u64,
    /// How often a lease is renewed while rendering.
    pub renew_interval_ms: u64,
    /// ε: the order of two moments closer than this is unknown.
    pub epsilon_ms: u64,
    /// How far a worker's corrected clock may be from AWS's.
    pub clock_error_ms: u64,
}

/// A rule of the ladder that is broken. The text names the environment variables and their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rung {
    /// A render that outlives the invocation cannot be recorded as failed.
    #[error(
        "EVERFRESH_RENDER_DEADLINE_MS ({render_deadline_ms}) must be less than EVERFRESH_FUNCTION_TIMEOUT_MS \
         ({function_timeout_ms})"
    )]
    RenderBelowFunction { render_deadline_ms: u64, function_timeout_ms: u64 },
    /// A claim that ends while its owner runs is taken over too early.
    #[error(
        "EVERFRESH_FUNCTION_TIMEOUT_MS ({function_timeout_ms}) must be less than EVERFRESH_CLAIM_EXPIRY_MS \
         ({claim_expiry_ms})"
    )]
    FunctionBelowClaim { function_timeout_ms: u64, claim_expiry_ms: u64 },
    /// Otherwise a redelivery would meet the crashed worker's valid claim and wait once more.
    #[error(
        "EVERFRESH_CLAIM_EXPIRY_MS ({claim_expiry_ms}) must be less than EVERFRESH_VISIBILITY_MS ({visibility_ms})"
    )]
    ClaimBelowVisibility { claim_expiry_ms: u64, visibility_ms: u64 },
    /// The event source keeps messages back and tries again while it is throttled.
    #[error(
        "EVERFRESH_VISIBILITY_MS ({visibility_ms}) must be at least 6 × EVERFRESH_FUNCTION_TIMEOUT_MS + \
         EVERFRESH_BATCHING_WINDOW_MS ({needed_ms})"
    )]
    VisibilityTooShort { visibility_ms: u64, needed_ms: u64 },
    /// One lost renewal must not lose the lease.
    #[error(
        "EVERFRESH_LEASE_MS ({lease_ms}) must be at least 3 × EVERFRESH_RENEW_INTERVAL_MS ({renew_interval_ms}), \
         which must not be 0"
    )]
    LeaseTooShort { lease_ms: u64, renew_interval_ms: u64 },
    /// To a skewed clock the lease would seem expired.
    #[error("EVERFRESH_LEASE_MS ({lease_ms}) must be at least 10 × EVERFRESH_CLOCK_ERROR_MS ({clock_error_ms})")]
    LeaseWithinSkew { lease_ms: u64, clock_error_ms: u64 },
    /// With a larger error, coverage could not be decided.
    #[error("EVERFRESH_EPSILON_MS ({epsilon_ms}) must be greater than EVERFRESH_CLOCK_ERROR_MS ({clock_error_ms})")]
    EpsilonTooSmall { epsilon_ms: u64, clock_error_ms: u64 },
}

/// All rules that are broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderError(pub Vec<Rung>);

impl std::error::Error for LadderError {}

impl fmt::Display for LadderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rungs: Vec<String> = self.0.iter().map(Rung::to_string).collect();
        write!(f, "timeouts do not fit together: {}", rungs.join("; "))
    }
}

impl Default for Ladder {
    /// For a function that runs up to two minutes.
    fn default() -> Self {
        Self {
            render_deadline_ms: 100_000,
            function_timeout_ms: 120_000,
            claim_expiry_ms: 130_000,
            visibility_ms: 725_000,
            batching_window_ms: 0,
            lease_ms: 30_000,
            renew_interval_ms: 10_000,
            epsilon_ms: 2_000,
            clock_error_ms: 1_000,
        }
    }
}

impl Ladder {
    /// Refuses values that do not fit together, naming every rule that they break.
    pub fn check(&self) -> Result<(), LadderError> {
        let Ladder {
            render_deadline_ms,
            function_timeout_ms,
            claim_expiry_ms,
            visibility_ms,
            batching_window_ms,
            lease_ms,
            renew_interval_ms,
            epsilon_ms,
            clock_error_ms,
        } = *self;
        let needed_ms = function_timeout_ms.saturating_mul(6).saturating_add(batching_window_ms);
        let lease_held = renew_interval_ms > 0 && lease_ms >= renew_interval_ms.saturating_mul(3);
        let rules = [
            (
                render_deadline_ms < function_timeout_ms,
                Rung::RenderBelowFunction { render_deadline_ms, function_timeout_ms },
            ),
            (function_timeout_ms < claim_expiry_ms, Rung::FunctionBelowClaim { function_timeout_ms, claim_expiry_ms }),
            (claim_expiry_ms < visibility_ms, Rung::ClaimBelowVisibility { claim_expiry_ms, visibility_ms }),
            (visibility_ms >= needed_ms, Rung::VisibilityTooShort { visibility_ms, needed_ms }),
            (lease_held, Rung::LeaseTooShort { lease_ms, renew_interval_ms }),
            (lease_ms >= clock_error_ms.saturating_mul(10), Rung::LeaseWithinSkew { lease_ms, clock_error_ms }),
            (epsilon_ms > clock_error_ms, Rung::EpsilonTooSmall { epsilon_ms, clock_error_ms }),
        ];
        let broken: Vec<Rung> = rules.into_iter().filter(|(kept, _)| !kept).map(|(_, rung)| rung).collect();
        if broken.is_empty() { Ok(()) } else { Err(LadderError(broken)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_fit_together() {
        assert_eq!(Ladder::default().check(), Ok(()));
    }

    #[test]
    fn every_rule_is_broken_just_beyond_its_border() {
        let fit = Ladder::default();
        type Change = fn(&mut Ladder);
        let cases: [(Change, &str); 8] = [
            (|l| l.render_deadline_ms = l.function_timeout_ms, "EVERFRESH_RENDER_DEADLINE_MS (120000)"),
            (|l| l.claim_expiry_ms = l.function_timeout_ms, "EVERFRESH_FUNCTION_TIMEOUT_MS (120000) must be less than"),
            (|l| l.claim_expiry_ms = l.visibility_ms, "EVERFRESH_CLAIM_EXPIRY_MS (725000)"),
            (
                |l| l.visibility_ms = 719_999,
                "6 × EVERFRESH_FUNCTION_TIMEOUT_MS + EVERFRESH_BATCHING_WINDOW_MS (720000)",
            ),
            (|l| l.batching_window_ms = 5_001, "EVERFRESH_VISIBILITY_MS (725000)"),
            (|l| l.lease_ms = 29_999, "EVERFRESH_LEASE_MS (29999) must be at least 3 × EVERFRESH_RENEW_INTERVAL_MS"),
            (|l| l.renew_interval_ms = 0, "must not be 0"),
            (|l| l.clock_error_ms = 2_000, "EVERFRESH_EPSILON_MS (2000)"),
        ];
        for (change, expected) in cases {
            let mut ladder = fit;
            change(&mut ladder);
            let LadderError(broken) = ladder.check().unwrap_err();
            assert_eq!(broken.len(), 1, "{expected}");
            assert!(broken[0].to_string().contains(expected), "{}", broken[0]);
        }
    }

    #[test]
    fn lease_within_clock_skew_is_refused() {
        let ladder = Ladder { epsilon_ms: 4_000, clock_error_ms: 3_001, ..Ladder::default() };
        let rung = Rung::LeaseWithinSkew { lease_ms: 30_000, clock_error_ms: 3_001 };
        assert_eq!(ladder.check(), Err(LadderError(vec![rung])));
    }

    #[test]
    fn all_broken_rules_are_named_at_once() {
        let zero = Ladder {
            render_deadline_ms: 0,
            function_timeout_ms: 0,
            claim_expiry_ms: 0,
            visibility_ms: 0,
            batching_window_ms: 0,
            lease_ms: 0,
            renew_interval_ms: 0,
            epsilon_ms: 0,
            clock_error_ms: 0,
        };
        assert_eq!(zero.check().unwrap_err().0.len(), 5);
    }
}

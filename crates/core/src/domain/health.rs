//! Failures, pin and path invalidation of a page.

use crate::domain::outcome::ErrorClass;

/// State of a page that other writers of META must not erase: row `HEALTH`. The default is a page
/// without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Failures since the last success.
    pub failures: u32,
    /// No attempt before this moment: the cooldown.
    pub next_attempt_ms: Option<u64>,
    /// Since when the published version is pinned.
    pub pinned_at_ms: Option<u64>,
    /// The last `changed` request that met the pin.
    pub wanted_at_ms: Option<u64>,
    /// When the page was last invalidated by path.
    pub path_watermark_ms: Option<u64>,
    /// When it was last invalidated hard by path: an older version is expired, not only stale. Never
    /// above `path_watermark_ms`.
    pub path_hard_ms: Option<u64>,
    /// The last of the failures, until a success.
    pub last_failure: Option<LastFailure>,
    /// The last render that the publish gate refused for its body. Stays after a success. Boxed: every
    /// read of a page carries it along, and hardly one has it.
    pub refused: Option<Box<RefusedRender>>,
}

/// A render that the publish gate refused for its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRender {
    /// Why, for people.
    pub reason: String,
    pub at_ms: u64,
    /// Where its body is. None if it could not be uploaded.
    pub s3_key: Option<String>,
}

/// Why an attempt failed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastFailure {
    pub class: ErrorClass,
    pub at_ms: u64,
}

/// Cooldown after the first failure; it doubles with each further one.
const COOLDOWN_FIRST_MS: u64 = 5_000;

/// The longest cooldown, before jitter.
const COOLDOWN_MAX_MS: u64 = 15 * 60 * 1000;

impl Health {
    pub fn pinned(&self) -> bool {
        self.pinned_at_ms.is_some()
    }

    /// The end of the cooldown, while it lasts.
    pub fn cooldown_until(&self, now_ms: u64) -> Option<u64> {
        self.next_attempt_ms.filter(|until| *until > now_ms)
    }

    /// The page's health after one more failure. The cooldown lasts for at least `at_least_ms`, the
    /// origin's `Retry-After`; `jitter`, any number, adds up to a quarter to it.
    #[must_use]
    pub fn after_failure(self, now_ms: u64, at_least_ms: Option<u64>, jitter: u32) -> Self {
        let doublings = self.failures.min(20);
        let pause = (COOLDOWN_FIRST_MS << doublings).max(at_least_ms.unwrap_or(0)).min(COOLDOWN_MAX_MS);
        let pause = pause + u64::from(jitter) % (pause / 4 + 1);
        Self { failures: self.failures.saturating_add(1), next_attempt_ms: Some(now_ms.saturating_add(pause)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cooldown_doubles_up_to_a_limit() {
        let mut health = Health::default();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            health = health.after_failure(0, None, 0);
            pauses.push(health.next_attempt_ms.unwrap() / 1000);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]);
        assert_eq!(health.failures, 10);
        assert_eq!(health.cooldown_until(899_999), Some(900_000));
        assert_eq!(health.cooldown_until(900_000), None);
    }

    #[test]
    fn jitter_adds_up_to_a_quarter() {
        let until = |jitter| Health::default().after_failure(0, None, jitter).next_attempt_ms;
        assert_eq!(until(1_250), Some(6_250));
        assert_eq!(until(1_251), Some(5_000));
    }

    #[test]
    fn origin_lengthens_its_cooldown_up_to_the_limit() {
        let until = |at_least_ms| Health::default().after_failure(0, Some(at_least_ms), 0).next_attempt_ms;
        assert_eq!(until(1_000), Some(5_000));
        assert_eq!(until(120_000), Some(120_000));
        assert_eq!(until(u64::MAX), Some(COOLDOWN_MAX_MS));
    }

    proptest! {
        #[test]
        fn failure_keeps_pin_and_watermark(failures: u32, now_ms: u64, jitter: u32) {
            let before = Health {
                failures,
                pinned_at_ms: Some(1),
                wanted_at_ms: Some(2),
                path_watermark_ms: Some(3),
                path_hard_ms: Some(3),
                next_attempt_ms: None,
                last_failure: None,
                refused: None,
            };
            let after = before.clone().after_failure(now_ms, None, jitter);
            prop_assert!(after.next_attempt_ms.unwrap() > now_ms || now_ms > u64::MAX - 5_000);
            let put_back = Health { failures, next_attempt_ms: None, ..after };
            prop_assert_eq!(put_back, before);
        }
    }
}

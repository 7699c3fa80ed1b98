//! So much a minute, and as much at once.

/// A bucket that fills evenly. It is counted in what a millisecond brings at one a minute, so that nothing is lost to rounding however
/// often it is asked.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    per_minute: u32,
    left: u64,
    at_ms: u64,
}

/// What one costs.
const ONE: u64 = 60_000;

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(per_minute: u32, now_ms: u64) -> Self {
        Self { per_minute, left: full(per_minute), at_ms: now_ms }
    }

    /// Whether there is one.
    pub(crate) fn has_one(&mut self, now_ms: u64) -> bool {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        let comes = passed_ms.saturating_mul(u64::from(self.per_minute));
        self.left = self.left.saturating_add(comes).min(full(self.per_minute));
        self.at_ms = now_ms;
        self.left >= ONE
    }

    /// Takes one out, if there is one.
    pub(crate) fn spend(&mut self, now_ms: u64) -> bool {
        let enough = self.has_one(now_ms);
        if enough {
            self.left -= ONE;
        }
        enough
    }

    /// Puts one back.
    pub(crate) fn give_back(&mut self) {
        self.left = (self.left + ONE).min(full(self.per_minute));
    }

    /// After how many seconds there is one again.
    pub(crate) fn seconds_to_next(&self) -> u64 {
        ONE.saturating_sub(self.left).div_ceil(u64::from(self.per_minute.max(1)) * 1000)
    }
}

fn full(per_minute: u32) -> u64 {
    u64::from(per_minute) * ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_as_long_as_told_gets_one_and_not_before() {
        for per_minute in [1, 7, 60, 600] {
            let mut budget = TokenBucket::new(per_minute, 0);
            assert!((0..per_minute).all(|_| budget.spend(0)));
            assert!(!budget.spend(0));
            let wait_ms = budget.seconds_to_next() * 1000;
            assert!((1000..=60_000).contains(&wait_ms));
            assert!(wait_ms == 1000 || !budget.spend(wait_ms - 1000), "{per_minute}");
            assert!(budget.spend(wait_ms), "{per_minute}");
        }
    }

    #[test]
    fn who_asks_every_millisecond_gets_no_less() {
        let mut budget = TokenBucket::new(6, 0);
        let got = (0..60_000).filter(|now_ms| budget.spend(*now_ms)).count();
        assert_eq!(got, 6 + 5, "what was there, and one every ten seconds");
    }
}

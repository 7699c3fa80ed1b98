//! A rate limit: so many a minute, and as many at once.

/// A bucket that fills evenly. It counts the tokens in fractions of 1/60000, which is what a
/// millisecond adds at one token a minute, so that frequent calls lose nothing to rounding.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    per_minute: u32,
    level: u64,
    at_ms: u64,
}

const TOKEN: u64 = 60_000;

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(per_minute: u32, now_ms: u64) -> Self {
        Self { per_minute, level: capacity(per_minute), at_ms: now_ms }
    }

    pub(crate) fn has_token(&mut self, now_ms: u64) -> bool {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        let added = passed_ms.saturating_mul(u64::from(self.per_minute));
        self.level = self.level.saturating_add(added).min(capacity(self.per_minute));
        self.at_ms = now_ms;
        self.level >= TOKEN
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now_ms: u64) -> bool {
        let enough = self.has_token(now_ms);
        if enough {
            self.level -= TOKEN;
        }
        enough
    }

    pub(crate) fn put_back(&mut self) {
        self.level = (self.level + TOKEN).min(capacity(self.per_minute));
    }

    pub(crate) fn seconds_to_next(&self) -> u64 {
        TOKEN.saturating_sub(self.level).div_ceil(u64::from(self.per_minute.max(1)) * 1000)
    }
}

fn capacity(per_minute: u32) -> u64 {
    u64::from(per_minute) * TOKEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_there_after_seconds_to_next_and_not_before() {
        for per_minute in [1, 7, 60, 600] {
            let mut bucket = TokenBucket::new(per_minute, 0);
            assert!((0..per_minute).all(|_| bucket.take(0)));
            assert!(!bucket.take(0));
            let wait_ms = bucket.seconds_to_next() * 1000;
            assert!((1000..=60_000).contains(&wait_ms));
            assert!(wait_ms == 1000 || !bucket.take(wait_ms - 1000), "{per_minute}");
            assert!(bucket.take(wait_ms), "{per_minute}");
        }
    }

    #[test]
    fn calls_every_millisecond_lose_nothing_to_rounding() {
        let mut bucket = TokenBucket::new(6, 0);
        let taken = (0..60_000).filter(|now_ms| bucket.take(*now_ms)).count();
        assert_eq!(taken, 6 + 5, "the full bucket, and one every ten seconds");
    }
}

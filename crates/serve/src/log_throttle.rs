//! A problem of a page is logged once a minute, not once a request. The metrics have the counts.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use everfresh_core::aws_time::AwsTime;
use lru::LruCache;

const INTERVAL_MS: u64 = 60_000;

/// A problem that was evicted may be logged again within its minute, which does no harm.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Problem {
    /// Of a page: DynamoDB did not answer, and the page is not cached.
    LookupFailed,
    /// Of a page: its row cannot be parsed.
    UnreadableRow,
    /// Of a page: its row points outside of the tenant's prefix.
    BadPointer,
    /// Of a page: S3 does not have its body.
    BodyLost,
    /// Of an object: it is too large to serve.
    BodyTooLarge,
    /// Of a page: the response deadline has passed.
    DeadlineExceeded,
    /// Of a tenant: its enqueue rate limit is exceeded.
    RateLimited,
    /// Of a tenant and a reason: a trigger request was not properly signed.
    Unsigned,
}

#[derive(Debug)]
pub(crate) struct LogThrottle {
    logged_ms: Mutex<LruCache<(Problem, String), u64>>,
    time: AwsTime,
}

impl LogThrottle {
    pub(crate) fn new(time: AwsTime) -> Self {
        Self { logged_ms: Mutex::new(LruCache::new(CAPACITY)), time }
    }

    /// True at most once a minute for each problem and subject.
    pub(crate) fn should_log(&self, problem: Problem, subject: &impl Display) -> bool {
        let now_ms = self.time.local_now_ms();
        let mut logged = self.logged_ms.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (problem, subject.to_string());
        if logged.get(&key).is_some_and(|logged_ms| now_ms.abs_diff(*logged_ms) < INTERVAL_MS) {
            return false;
        }
        logged.put(key, now_ms);
        true
    }
}

//! What is wrong with a page is said once a minute, not once a reader: how many have met it is in the metrics.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use everfresh_core::aws_time::AwsTime;
use lru::LruCache;

const EVERY_MS: u64 = 60_000;

/// So many are remembered. One that is forgotten may be said again, which is no harm.
const MOST: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Remark {
    /// Of a page: it cannot be looked up, and memory does not have it.
    NotLookedUp,
    /// Of a page: its row cannot be read.
    Unreadable,
    /// Of a page: its row points where it must not.
    Pointer,
    /// Of a page: its body is gone.
    BodyLost,
    /// Of an object: it has too many bytes.
    TooLarge,
    /// Of a page: a visit took too long.
    OutOfTime,
    /// Of a tenant: its readers ask for too much.
    RateLimited,
    /// Of a tenant: somebody asks for its regenerations and is not believed.
    Unsigned,
}

/// What has been said, and when.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    said: Mutex<LruCache<(Remark, String), u64>>,
    time: AwsTime,
}

impl LogThrottle {
    pub(crate) fn new(time: AwsTime) -> Self {
        Self { said: Mutex::new(LruCache::new(MOST)), time }
    }

    /// Whether to say it of this one now. Whoever is told so must.
    pub(crate) fn due(&self, what: Remark, of: &impl Display) -> bool {
        let now_ms = self.time.local_now_ms();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let remark = (what, of.to_string());
        if said.get(&remark).is_some_and(|said_ms| now_ms.abs_diff(*said_ms) < EVERY_MS) {
            return false;
        }
        said.put(remark, now_ms);
        true
    }
}

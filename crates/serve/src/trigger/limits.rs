//! How many signed requests one instance takes, and what a replay may cost.
//!
//! A captured request can be sent again by any client, with its signature. So a request takes a
//! token only once it is accepted: once its nonce was written. A nonce known to this instance is
//! refused without a token or a write. An unknown one may be a replay of a request to another
//! instance, which only the write shows: such writes have a limit of their own. As long as fewer
//! different requests were captured than that, replays lock out no caller.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use super::signature::Admitted;
use crate::token_bucket::TokenBucket;

/// A few megabytes at most. The write finds a nonce that was evicted.
const NONCE_CAPACITY: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Which token bucket a request uses. Polling the state of a request blocks no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bucket {
    Changes,
    StateReads,
}

#[derive(Debug)]
pub(super) struct TriggerLimits(Mutex<State>);

#[derive(Debug)]
struct State {
    changes: TokenBucket,
    state_reads: TokenBucket,
    /// Nonce writes without an accepted request: replays, and writes that failed.
    wasted_writes: TokenBucket,
    /// By key and nonce.
    known_nonces: LruCache<(String, String), ()>,
}

/// The rate limit is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limited {
    /// In seconds.
    pub(super) retry_after: u64,
}

impl TriggerLimits {
    pub(super) fn new(per_minute: u32, now_ms: u64) -> Self {
        let bucket = || TokenBucket::new(per_minute, now_ms);
        Self(Mutex::new(State {
            changes: bucket(),
            state_reads: bucket(),
            wasted_writes: bucket(),
            known_nonces: LruCache::new(NONCE_CAPACITY),
        }))
    }

    /// Whether this instance knows the nonce.
    pub(super) fn is_replay(&self, admitted: &Admitted) -> bool {
        self.locked().known_nonces.get(&nonce_key(admitted)).is_some()
    }

    /// Whether the request's nonce may be written now. After the write the caller calls
    /// [`Self::accepted`] or [`Self::replayed`], unless the write failed.
    pub(super) fn may_write(&self, bucket: Bucket, now_ms: u64) -> Result<(), Limited> {
        let mut state = self.locked();
        let tokens = state.tokens(bucket);
        if !tokens.has_token(now_ms) {
            return Err(Limited { retry_after: tokens.seconds_to_next() });
        }
        // Taken before the write and put back after it: a write that is cancelled has still cost
        // one.
        if !state.wasted_writes.take(now_ms) {
            return Err(Limited { retry_after: state.wasted_writes.seconds_to_next() });
        }
        Ok(())
    }

    /// The nonce was written: the request counts.
    pub(super) fn accepted(&self, bucket: Bucket, admitted: &Admitted, now_ms: u64) {
        let mut state = self.locked();
        state.wasted_writes.put_back();
        // Empty by now only with concurrent requests, which Lambda does not send to one instance.
        state.tokens(bucket).take(now_ms);
        state.known_nonces.put(nonce_key(admitted), ());
    }

    /// The nonce had been written before.
    pub(super) fn replayed(&self, admitted: &Admitted) {
        self.locked().known_nonces.put(nonce_key(admitted), ());
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tokens(&mut self, bucket: Bucket) -> &mut TokenBucket {
        match bucket {
            Bucket::Changes => &mut self.changes,
            Bucket::StateReads => &mut self.state_reads,
        }
    }
}

fn nonce_key(admitted: &Admitted) -> (String, String) {
    (admitted.key_id.clone(), admitted.nonce.clone())
}

//! How many signed requests one instance takes, and what a replay may cost.
//!
//! A captured request can be sent again by anybody, with its signature. So a request spends its caller's budget only once it has passed:
//! once its nonce was written. A nonce that this instance has seen is refused before anything is spent or written. One that it has not
//! seen may be a replay of what another instance took, and only the write tells: such writes have a limit of their own. As long as fewer
//! different requests have been captured than that, replays keep nobody out.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::budget::TokenBucket;
use crate::rules::signature::Admitted;

/// Nonces that are remembered, a few megabytes at most. One that is forgotten is found by the write.
const MOST_NONCES: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Which budget a request is taken from. Questions have one of their own: polling takes no change's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Changes,
    Questions,
}

/// The limits of one instance.
#[derive(Debug)]
pub(crate) struct Limits(Mutex<State>);

#[derive(Debug)]
struct State {
    changes: TokenBucket,
    questions: TokenBucket,
    /// Nonce writes by which no request has passed: replays, and writes that failed.
    vain_writes: TokenBucket,
    /// By key and nonce.
    used: LruCache<(String, String), ()>,
}

/// Too much at once; worth trying again after so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) retry_after: u64,
}

impl Limits {
    pub(crate) fn new(per_minute: u32, now_ms: u64) -> Self {
        let budget = || TokenBucket::new(per_minute, now_ms);
        Self(Mutex::new(State {
            changes: budget(),
            questions: budget(),
            vain_writes: budget(),
            used: LruCache::new(MOST_NONCES),
        }))
    }

    /// Whether this instance knows that the request was used.
    pub(crate) fn is_replay(&self, admitted: &Admitted) -> bool {
        self.locked().used.get(&name(admitted)).is_some()
    }

    /// Whether a nonce may be written for the request now. Whoever is told so says afterwards what became of it, unless the write failed.
    pub(crate) fn may_write(&self, share: Share, now_ms: u64) -> Result<(), Limited> {
        let mut state = self.locked();
        let budget = state.budget(share);
        if !budget.has_one(now_ms) {
            return Err(Limited { retry_after: budget.seconds_to_next() });
        }
        // Taken before the write and given back after it, so that a caller who hangs up in between has still paid.
        if !state.vain_writes.spend(now_ms) {
            return Err(Limited { retry_after: state.vain_writes.seconds_to_next() });
        }
        Ok(())
    }

    /// The nonce was written: the request counts.
    pub(crate) fn passed(&self, share: Share, admitted: &Admitted, now_ms: u64) {
        let mut state = self.locked();
        state.vain_writes.give_back();
        // Empty by now only if several requests were under way at once, which Lambda does not do.
        state.budget(share).spend(now_ms);
        state.used.put(name(admitted), ());
    }

    /// The nonce had been written before.
    pub(crate) fn replayed(&self, admitted: &Admitted) {
        self.locked().used.put(name(admitted), ());
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn budget(&mut self, share: Share) -> &mut TokenBucket {
        match share {
            Share::Changes => &mut self.changes,
            Share::Questions => &mut self.questions,
        }
    }
}

fn name(admitted: &Admitted) -> (String, String) {
    (admitted.key_id.clone(), admitted.nonce.clone())
}

//! Reads that were too slow for their reply and are completed after it.
//!
//! With a page in the cache, a request does not wait long for DynamoDB. If the table is merely
//! slow, every request would give up in turn and the cache would never be refreshed. So the read
//! continues after the reply, before the sandbox may freeze.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use everfresh_core::domain::page_key::PageKey;

use super::single_flight::Flight;

/// At most one read per page.
#[derive(Debug)]
pub(super) struct DeferredReads<V: Clone>(Mutex<HashMap<PageKey, Flight<V>>>);

impl<V: Clone> Default for DeferredReads<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> DeferredReads<V> {
    pub(super) fn defer(&self, page: &PageKey, read: Flight<V>) {
        self.locked().insert(page.clone(), read);
    }

    /// Cancels a read that was not completed: a request that joined it now would get the state of
    /// when it began.
    pub(super) fn discard(&self, page: &PageKey) {
        self.locked().remove(page);
    }

    pub(super) fn take(&self) -> HashMap<PageKey, Flight<V>> {
        std::mem::take(&mut *self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<PageKey, Flight<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

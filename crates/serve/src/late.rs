//! Reads that a reader did not wait for.
//!
//! With a page in memory nobody waits long for the table. A table that is merely slow would then never be heard: each reader would give
//! up in turn, and memory would grow old. So the read goes on after the reply, before the instance rests.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use everfresh_core::domain::page_key::PageKey;

use crate::flights::Flight;

/// The reads that are to be ended after the reply, at most one of each page.
#[derive(Debug)]
pub(crate) struct DeferredReads<V: Clone>(Mutex<HashMap<PageKey, Flight<V>>>);

impl<V: Clone> Default for DeferredReads<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> DeferredReads<V> {
    pub(crate) fn leave(&self, page: &PageKey, read: Flight<V>) {
        self.locked().insert(page.clone(), read);
    }

    /// Gives up what nobody has ended: whoever joined it now would be told what was true when it began.
    pub(crate) fn forget(&self, page: &PageKey) {
        self.locked().remove(page);
    }

    pub(crate) fn take(&self) -> HashMap<PageKey, Flight<V>> {
        std::mem::take(&mut *self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<PageKey, Flight<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

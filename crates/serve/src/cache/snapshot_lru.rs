//! The snapshots in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::PageKey;

use super::byte_lru::ByteLru;
use super::snapshot::PageSnapshot;

#[derive(Clone, Debug)]
struct Entry {
    snapshot: PageSnapshot,
    /// The last version whose body was served.
    last_served: Option<Arc<Meta>>,
    /// How often that version was served.
    reads: u32,
}

#[derive(Debug)]
pub(super) struct Entries(Mutex<ByteLru<PageKey, Entry>>);

impl Entries {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self(Mutex::new(ByteLru::new(max_bytes)))
    }

    pub(super) fn snapshot(&self, page: &PageKey) -> Option<PageSnapshot> {
        self.locked().get(page).map(|entry| entry.snapshot)
    }

    pub(super) fn last_served(&self, page: &PageKey) -> Option<Arc<Meta>> {
        self.locked().get(page)?.last_served
    }

    /// Returns how often the version has been served; zero if the page is not cached.
    pub(super) fn record_served(&self, page: &PageKey, meta: &Arc<Meta>) -> u32 {
        let mut entries = self.locked();
        let Some(mut entry) = entries.get(page) else { return 0 };
        let same = entry.last_served.as_ref().is_some_and(|served| served.version == meta.version);
        entry.reads = if same { entry.reads.saturating_add(1) } else { 1 };
        entry.last_served = Some(meta.clone());
        let (reads, weight) = (entry.reads, weight(&entry));
        entries.insert(page.clone(), entry, weight);
        reads
    }

    /// Keeps the snapshot, unless the entry's own is better.
    pub(super) fn insert(&self, page: &PageKey, snapshot: &PageSnapshot) {
        let mut entries = self.locked();
        let before = entries.get(page);
        // A row that a foreign writer has broken does not replace a version that can be served.
        if snapshot.unreadable.is_some() && before.as_ref().is_some_and(|before| before.snapshot.meta.is_some()) {
            return;
        }
        let (last_served, reads) =
            before.as_ref().map_or((None, 0), |before| (before.last_served.clone(), before.reads));
        // A slow read knows less than one that began after it.
        let newer = before.map(|before| before.snapshot).filter(|before| before.began > snapshot.began);
        let entry = Entry { snapshot: newer.unwrap_or_else(|| snapshot.clone()), last_served, reads };
        let weight = weight(&entry);
        entries.insert(page.clone(), entry, weight);
    }

    fn locked(&self) -> MutexGuard<'_, ByteLru<PageKey, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Roughly the entry's size in memory. Replayed headers are the part that can be large.
fn weight(entry: &Entry) -> usize {
    let meta = |meta: &Arc<Meta>| {
        let headers: usize = meta.headers.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
        let tags: usize = meta.tags.iter().map(|tag| tag.as_str().len() + 32).sum();
        512 + meta.s3_key.len() + headers + tags
    };
    let both = entry.snapshot.meta.iter().chain(&entry.last_served);
    512 + both.map(meta).sum::<usize>()
}

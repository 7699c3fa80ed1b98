//! The snapshots in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::ledger::Seen;

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

    /// The last version that was served, if it may stand in for the published one.
    pub(super) fn last_served(&self, page: &PageKey) -> Option<Arc<Meta>> {
        let entry = self.locked().get(page)?;
        let published = entry.snapshot.meta?;
        entry.last_served.filter(|served| served.may_stand_in_for(&published))
    }

    /// Whether an eventually consistent read cannot be ordered against what is in memory.
    pub(super) fn must_be_confirmed(&self, page: &PageKey, snapshot: &PageSnapshot) -> bool {
        let Some(before) = self.snapshot(page).and_then(|before| before.meta) else { return false };
        snapshot.meta.as_deref().is_some_and(|read| are_unordered(&before, read))
    }

    /// Returns how often the version has been served; zero if the page is not cached. A body that
    /// was fetched before its page was taken down does not come back.
    pub(super) fn record_served(&self, page: &PageKey, meta: &Arc<Meta>) -> u32 {
        let mut entries = self.locked();
        let Some(mut entry) = entries.get(page).filter(|entry| entry.snapshot.has_body()) else { return 0 };
        let same = entry.last_served.as_ref().is_some_and(|served| served.version == meta.version);
        entry.reads = if same { entry.reads.saturating_add(1) } else { 1 };
        entry.last_served = Some(meta.clone());
        let (reads, weight) = (entry.reads, weight(&entry));
        entries.insert(page.clone(), entry, weight);
        reads
    }

    /// Keeps the snapshot, unless the entry's own is better. Returns the better one.
    pub(super) fn insert(&self, page: &PageKey, snapshot: &PageSnapshot) -> PageSnapshot {
        let mut entries = self.locked();
        let before = entries.get(page);
        // A row that a foreign writer has broken does not replace a version that can be served.
        if snapshot.unreadable.is_some() && before.as_ref().is_some_and(|before| before.snapshot.meta.is_some()) {
            return snapshot.clone();
        }
        let (last_served, reads) =
            before.as_ref().map_or((None, 0), |before| (before.last_served.clone(), before.reads));
        // A slow read knows less than one that began after it, and an eventually consistent one may
        // know less than one before it.
        let better = before.map(|before| before.snapshot);
        let better = better.filter(|before| before.began > snapshot.began || is_older(snapshot, before));
        let snapshot = better.unwrap_or_else(|| snapshot.clone());
        // What was served stands in only for a version that has a body.
        let published = snapshot.meta.as_deref();
        let last_served =
            last_served.filter(|served| published.is_some_and(|published| served.may_stand_in_for(published)));
        let entry = Entry { snapshot: snapshot.clone(), last_served, reads };
        let weight = weight(&entry);
        entries.insert(page.clone(), entry, weight);
        snapshot
    }

    fn locked(&self) -> MutexGuard<'_, ByteLru<PageKey, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether two rows differ and no version says which one is newer: a foreign row has none, and a
/// foreign writer that moves only the pointer leaves ours as it is.
fn are_unordered(one: &Meta, other: &Meta) -> bool {
    let ordered = one.version.is_some() && other.version.is_some() && one.version != other.version;
    !ordered && Seen::of(Some(one)) != Seen::of(Some(other))
}

/// DynamoDB's replicas are behind each other for a moment only. After that, an older version than
/// the one in memory is the published one: a table was restored, or a row expired.
const REPLICA_LAG_MS: u64 = 60_000;

/// Whether a read returned an older state than the one in memory, by the versions of our own rows.
fn is_older(snapshot: &PageSnapshot, before: &PageSnapshot) -> bool {
    let version = |snapshot: &PageSnapshot| snapshot.meta.as_deref().and_then(|meta| meta.version);
    let recent = snapshot.read_ms.abs_diff(before.read_ms) < REPLICA_LAG_MS;
    // A foreign row has no version, and is believed.
    let foreign = snapshot.meta.is_some() && version(snapshot).is_none();
    recent && !foreign && version(before).is_some_and(|before| version(snapshot) < Some(before))
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

#[cfg(test)]
mod tests {
    use everfresh_core::domain::version::Version;

    use super::*;

    #[test]
    fn rows_without_an_order_of_versions_are_unordered() {
        let of = |version: Option<u64>, pointer: Option<&str>| Meta {
            s3_key: "acme/key".to_owned(),
            version: version.map(|ms| Version::next(ms, None, None, 1)),
            current_sk: pointer.map(str::to_owned),
            pointer: pointer.is_some(),
            ..Meta::default()
        };
        let tombstone = Meta { tombstone: true, ..of(Some(7), None) };
        for (one, other, unordered) in [
            (of(Some(7), None), of(Some(8), None), false),
            (of(Some(7), None), of(Some(7), None), false),
            (of(None, None), of(Some(8), None), true),
            (of(None, Some("VER#a")), of(None, Some("VER#b")), true),
            // A foreign writer has moved the pointer of a purged page.
            (of(Some(7), Some("VER#a")), tombstone, true),
        ] {
            assert_eq!(are_unordered(&one, &other), unordered, "{one:?} {other:?}");
            assert_eq!(are_unordered(&other, &one), unordered, "{one:?} {other:?}");
        }
    }
}

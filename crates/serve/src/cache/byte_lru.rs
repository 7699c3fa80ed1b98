//! A map bounded by bytes: the least recently used entry is evicted first.

use std::hash::Hash;

use lru::LruCache;

/// The weights of all entries never exceed `max_bytes` together.
#[derive(Debug)]
pub(super) struct ByteLru<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    bytes: usize,
    max_bytes: usize,
}

impl<K: Hash + Eq, V: Clone> ByteLru<K, V> {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { entries: LruCache::unbounded(), bytes: 0, max_bytes }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        self.entries.get(key).map(|(value, _)| value.clone())
    }

    /// Replaces the key's value. A value heavier than `max_bytes` is not stored.
    pub(super) fn insert(&mut self, key: K, value: V, weight: usize) {
        if let Some((_, old)) = self.entries.pop(&key) {
            self.bytes -= old;
        }
        if weight > self.max_bytes {
            return;
        }
        self.bytes += weight;
        self.entries.put(key, (value, weight));
        while self.bytes > self.max_bytes {
            let Some((_, (_, weight))) = self.entries.pop_lru() else { break };
            self.bytes -= weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn least_recently_used_entry_is_evicted() {
        let mut lru = ByteLru::new(10);
        lru.insert("a", 1, 4);
        lru.insert("b", 2, 4);
        assert_eq!(lru.get(&"a"), Some(1));
        lru.insert("c", 3, 4);
        assert_eq!((lru.get(&"a"), lru.get(&"b"), lru.get(&"c")), (Some(1), None, Some(3)));
        lru.insert("d", 4, 11);
        assert_eq!((lru.get(&"d"), lru.get(&"a")), (None, Some(1)), "a value that cannot fit evicts nothing");
    }

    proptest! {
        #[test]
        fn bytes_never_exceed_the_bound(inserts in prop::collection::vec((0u8..8, 0usize..40), 0..60)) {
            let mut lru = ByteLru::new(64);
            for (key, weight) in inserts {
                lru.insert(key, key, weight);
                let sum: usize = lru.entries.iter().map(|(_, (_, weight))| weight).sum();
                prop_assert_eq!(sum, lru.bytes);
                prop_assert!(sum <= 64);
            }
        }
    }
}

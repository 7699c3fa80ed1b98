//! What an instance remembers, bounded by bytes: the least recently used goes first.

use std::hash::Hash;

use lru::LruCache;

/// A cache whose values weigh something. Not more than `most_bytes` together stay.
#[derive(Debug)]
pub(crate) struct Memory<K: Hash + Eq, V> {
    kept: LruCache<K, (V, usize)>,
    bytes: usize,
    most_bytes: usize,
}

impl<K: Hash + Eq, V: Clone> Memory<K, V> {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self { kept: LruCache::unbounded(), bytes: 0, most_bytes }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.kept.get(key).map(|(value, _)| value.clone())
    }

    /// Keeps a value in place of what was there. One that is heavier than everything together is not kept.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        if let Some((_, old)) = self.kept.pop(&key) {
            self.bytes -= old;
        }
        if weight > self.most_bytes {
            return;
        }
        self.bytes += weight;
        self.kept.put(key, (value, weight));
        while self.bytes > self.most_bytes {
            let Some((_, (_, weight))) = self.kept.pop_lru() else { break };
            self.bytes -= weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut memory = Memory::new(10);
        memory.insert("a", 1, 4);
        memory.insert("b", 2, 4);
        assert_eq!(memory.get(&"a"), Some(1));
        memory.insert("c", 3, 4);
        assert_eq!((memory.get(&"a"), memory.get(&"b"), memory.get(&"c")), (Some(1), None, Some(3)));
        memory.insert("d", 4, 11);
        assert_eq!((memory.get(&"d"), memory.get(&"a")), (None, Some(1)), "what cannot fit pushes nothing out");
    }

    proptest! {
        #[test]
        fn bytes_never_exceed_the_bound(inserts in prop::collection::vec((0u8..8, 0usize..40), 0..60)) {
            let mut memory = Memory::new(64);
            for (key, weight) in inserts {
                memory.insert(key, key, weight);
                let sum: usize = memory.kept.iter().map(|(_, (_, weight))| weight).sum();
                prop_assert_eq!(sum, memory.bytes);
                prop_assert!(sum <= 64);
            }
        }
    }
}

//! The name of one wish.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

use serde::Serialize;

/// Names one wish to regenerate a page; two messages with the same key are the same wish.
///
/// One to [`IdempotencyKey::MAX_BYTES`] characters out of `A–Z a–z 0–9 . _ ~ : -`. That keeps it safe inside a sort
/// key (no `#`), a URL path and a shell command, and leaves room for UUIDs, SQS message ids and `order-42:v3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

/// Why a text is no idempotency key. Never repeats the text: it may hold what must not be logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing at all.
    #[error("is empty")]
    Empty,
    /// Longer than [`IdempotencyKey::MAX_BYTES`].
    #[error("has {bytes} bytes, allowed are {}", IdempotencyKey::MAX_BYTES)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A character outside the allowed ones.
    #[error("has a character that is not allowed at byte {at}; allowed are letters, digits and . _ ~ : -")]
    BadCharacter {
        /// Where, counted in bytes from zero.
        at: usize,
    },
}

impl IdempotencyKey {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Checks `raw` and takes it over unchanged.
    pub fn parse(raw: &str) -> Result<Self, KeyError> {
        if raw.is_empty() {
            return Err(KeyError::Empty);
        }
        if raw.len() > Self::MAX_BYTES {
            return Err(KeyError::TooLong { bytes: raw.len() });
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b':' | b'-');
        match raw.bytes().position(|byte| !allowed(byte)) {
            Some(at) => Err(KeyError::BadCharacter { at }),
            None => Ok(Self(raw.to_owned())),
        }
    }

    /// A key that nobody else has, for a wish that may have to be sent twice.
    pub fn generate() -> Self {
        // The standard library takes these from the operating system. fastrand is seeded by a clock, and instances that start in the
        // same moment would name different wishes alike.
        let word = || RandomState::new().build_hasher().finish();
        Self(format!("auto-{:016x}{:016x}", word(), word()))
    }

    /// The key of a prewarm wish. `digest` is hex, so nothing has to be checked.
    pub(crate) fn of_prewarm(digest: &str) -> Self {
        Self(format!("prewarm-{digest}"))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for IdempotencyKey {
    type Err = KeyError;

    fn from_str(raw: &str) -> Result<Self, KeyError> {
        Self::parse(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_keys_are_accepted_unchanged() {
        let longest = "k".repeat(128);
        for raw in ["59f1a0a5-9c0f-4a41-a6f0-8a1b2c3d4e5f", "order-42:v3", "a.b_c~d", "7", &longest] {
            assert_eq!(IdempotencyKey::parse(raw).unwrap().as_str(), raw);
        }
    }

    #[test]
    fn keys_that_could_leave_their_sort_key_are_refused() {
        for (raw, at) in [("a#b", 1), ("a/b", 1), ("a b", 1), ("a\0", 1), ("\r\n", 0), ("é", 0)] {
            assert_eq!(IdempotencyKey::parse(raw), Err(KeyError::BadCharacter { at }), "{raw:?}");
        }
        assert_eq!(IdempotencyKey::parse(""), Err(KeyError::Empty));
        assert_eq!(IdempotencyKey::parse(&"k".repeat(129)), Err(KeyError::TooLong { bytes: 129 }));
    }

    #[test]
    fn generated_keys_are_keys_and_differ_also_between_threads() {
        let draw = || std::thread::spawn(|| (0..1000).map(|_| IdempotencyKey::generate()).collect::<Vec<_>>());
        let threads = [draw(), draw()];
        let keys: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert!(keys.iter().all(|key| IdempotencyKey::parse(key.as_str()).as_ref() == Ok(key)));
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }

    proptest! {
        #[test]
        fn an_accepted_key_is_its_own_text(raw in "\\PC{0,140}") {
            if let Ok(key) = IdempotencyKey::parse(&raw) {
                prop_assert_eq!(key.to_string(), raw);
            }
        }
    }
}

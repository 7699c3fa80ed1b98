//! Idempotency keys.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

use serde::Serialize;

/// Identifies one request to regenerate a page. Two messages with the same key and page are the
/// same request.
///
/// One to [`IdempotencyKey::MAX_BYTES`] characters out of `A–Z a–z 0–9 . _ ~ : -`. That keeps it
/// safe inside a sort key (no `#`), a URL path and a shell command, and leaves room for UUIDs, SQS
/// message ids and keys such as `order-42:v3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

/// Why a text is not a valid idempotency key. Never repeats the text, which may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// The text is longer than [`IdempotencyKey::MAX_BYTES`].
    #[error("has {bytes} bytes, allowed are {}", IdempotencyKey::MAX_BYTES)]
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// The text contains a character that is not allowed.
    #[error("has a character that is not allowed at byte {at}; allowed are letters, digits and . _ ~ : -")]
    BadCharacter {
        /// Byte offset of the character, from zero.
        at: usize,
    },
}

impl IdempotencyKey {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Validates `raw` and keeps it unchanged.
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

    /// Generates a unique key (128 random bits), for a request that may have to be sent again.
    pub fn generate() -> Self {
        // RandomState is seeded by the operating system. fastrand is seeded from the clock:
        // instances that start at the same moment would give one key to different requests.
        let word = || RandomState::new().build_hasher().finish();
        Self(format!("auto-{:016x}{:016x}", word(), word()))
    }

    /// `digest` is hex, so there is nothing to validate.
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
    fn valid_keys_are_accepted_unchanged() {
        let longest = "k".repeat(128);
        for raw in ["59f1a0a5-9c0f-4a41-a6f0-8a1b2c3d4e5f", "order-42:v3", "a.b_c~d", "7", &longest] {
            assert_eq!(IdempotencyKey::parse(raw).unwrap().as_str(), raw);
        }
    }

    #[test]
    fn invalid_keys_are_refused_with_the_offset() {
        for (raw, at) in [("a#b", 1), ("a/b", 1), ("a b", 1), ("a\0", 1), ("\r\n", 0), ("é", 0)] {
            assert_eq!(IdempotencyKey::parse(raw), Err(KeyError::BadCharacter { at }), "{raw:?}");
        }
        assert_eq!(IdempotencyKey::parse(""), Err(KeyError::Empty));
        assert_eq!(IdempotencyKey::parse(&"k".repeat(129)), Err(KeyError::TooLong { bytes: 129 }));
    }

    #[test]
    fn generated_keys_are_valid_and_unique_across_threads() {
        let draw = || std::thread::spawn(|| (0..1000).map(|_| IdempotencyKey::generate()).collect::<Vec<_>>());
        let threads = [draw(), draw()];
        let keys: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert!(keys.iter().all(|key| IdempotencyKey::parse(key.as_str()).as_ref() == Ok(key)));
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }

    proptest! {
        #[test]
        fn accepted_key_displays_as_its_text(raw in "\\PC{0,140}") {
            if let Ok(key) = IdempotencyKey::parse(&raw) {
                prop_assert_eq!(key.to_string(), raw);
            }
        }
    }
}

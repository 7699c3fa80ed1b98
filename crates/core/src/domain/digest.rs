//! SHA-256 digests, of plain bytes and of several fields at once.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest. Shown as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads exactly what [`fmt::Display`] writes: 64 hex digits in lower case.
    pub fn parse(hex: &str) -> Option<Self> {
        let hex = hex.as_bytes();
        if hex.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// The first eight bytes as a number, for choices that must be even over all digests.
    pub fn leading_u64(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Digest of a list of fields, such that two different lists never give the same bytes to hash.
///
/// Every field is hashed as its length (eight bytes, big-endian) followed by its bytes; a number is
/// a field of eight big-endian bytes. The first field is a label that says what the list is.
pub struct FieldDigest(Sha256);

impl FieldDigest {
    /// Begins a list of the kind `label`.
    pub fn new(label: &str) -> Self {
        Self(Sha256::new()).field(label.as_bytes())
    }

    /// Adds bytes or a text.
    #[must_use]
    pub fn field(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.field(&number.to_be_bytes())
    }

    /// The digest of the list.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(fields: &[Vec<u8>]) -> Digest {
        let mut list = FieldDigest::new("test");
        for field in fields {
            list = list.field(field);
        }
        list.finish()
    }

    #[test]
    fn empty_input_has_the_well_known_digest() {
        let known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), known);
    }

    #[test]
    fn upper_case_and_other_lengths_are_no_digests() {
        let hex = Digest::of(b"x").to_string();
        assert_eq!(Digest::parse(&hex), Some(Digest::of(b"x")));
        assert_eq!(Digest::parse(&hex.to_uppercase()), None);
        assert_eq!(Digest::parse(&hex[1..]), None);
        assert_eq!(Digest::parse(&format!("{hex}0")), None);
    }

    proptest! {
        #[test]
        fn moving_bytes_between_fields_changes_the_digest(
            left in prop::collection::vec(prop::collection::vec(0u8..3, 0..4), 0..4),
            right in prop::collection::vec(prop::collection::vec(0u8..3, 0..4), 0..4),
        ) {
            prop_assert_eq!(digest(&left) == digest(&right), left == right);
        }
    }
}

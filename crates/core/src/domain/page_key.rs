//! A page of a tenant, and its hash.
//!
//! # Which bytes are hashed
//!
//! The cache key is the page's [`CanonicalPath`]: path and query as ASCII bytes, from the leading
//! `/` to the end, and nothing else: no tenant, no host, no separator, no newline. The page hash is
//! the SHA-256 of those bytes, written as 64 lower-case hex digits: `printf %s
//! '/products/42?color=red' | sha256sum`. The tenant is not hashed: it is a prefix of the partition
//! key and of the object key. `vectors/page_keys.json` holds examples for other languages, and a
//! test keeps them true.

use std::fmt;
use std::str::FromStr;

use crate::domain::digest::Digest;
pub use crate::domain::path::{CanonicalPath, NormalPath, PathError};
use crate::domain::scrub;

/// The longest partition key that DynamoDB takes, in bytes. It refuses the whole request for a
/// longer one.
pub const MAX_PARTITION_KEY_BYTES: usize = 2048;

/// The longest sort key that DynamoDB takes, in bytes. It refuses the whole request for a longer
/// one, with every other key in it.
pub const MAX_SORT_KEY_BYTES: usize = 1024;

/// A tenant's name: one to 64 characters out of `a–z 0–9 _ -`, beginning with a letter or digit.
///
/// Nothing is folded or repaired: `Acme` and `аcme` (with a Cyrillic а) are refused, so no two
/// tenants look alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    #[error("tenant is empty")]
    Empty,
    /// Longer than [`Tenant::MAX_BYTES`].
    #[error("tenant has {bytes} bytes, allowed are {}", Tenant::MAX_BYTES)]
    TooLong { bytes: usize },
    #[error("tenant may hold a-z, 0-9, _ and - and begins with a letter or digit; byte {at} breaks that")]
    BadCharacter {
        /// In bytes from zero.
        at: usize,
    },
}

impl Tenant {
    /// The longest tenant, in bytes.
    pub const MAX_BYTES: usize = everfresh_enqueue::message::MAX_TENANT_BYTES;

    /// Checks `raw` and takes it over unchanged.
    pub fn parse(raw: &str) -> Result<Self, TenantError> {
        if raw.is_empty() {
            return Err(TenantError::Empty);
        }
        if raw.len() > Self::MAX_BYTES {
            return Err(TenantError::TooLong { bytes: raw.len() });
        }
        let allowed = |(at, byte): (usize, u8)| match byte {
            b'a'..=b'z' | b'0'..=b'9' => true,
            b'_' | b'-' => at > 0,
            _ => false,
        };
        match raw.bytes().enumerate().position(|at_byte| !allowed(at_byte)) {
            Some(at) => Err(TenantError::BadCharacter { at }),
            None => Ok(Self(raw.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Tenant {
    type Err = TenantError;

    fn from_str(raw: &str) -> Result<Self, TenantError> {
        Self::parse(raw)
    }
}

/// SHA-256 of a page's cache key: its id in partition keys, object keys, handles and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageHash(Digest);

impl PageHash {
    pub fn of(path: &CanonicalPath) -> Self {
        Self(Digest::of(path.as_str().as_bytes()))
    }

    /// Reads 64 lower-case hex digits.
    pub fn parse(hex: &str) -> Option<Self> {
        Digest::parse(hex).map(Self)
    }

    pub fn digest(&self) -> Digest {
        self.0
    }
}

impl fmt::Display for PageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How partition keys are written: one choice for a whole table, made before its first row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLayout {
    /// The table belongs to one tenant, whose name is left out of the keys.
    pub single_tenant: bool,
    /// Keys have the cache key itself in place of its hash, as the TypeScript library writes them
    /// by default.
    pub raw_keys: bool,
}

/// A page of a tenant. Its hash is computed once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PageKey {
    tenant: Tenant,
    path: CanonicalPath,
    hash: PageHash,
}

impl PageKey {
    pub fn new(tenant: Tenant, path: CanonicalPath) -> Self {
        let hash = PageHash::of(&path);
        Self { tenant, path, hash }
    }

    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Path and query; also the cache key.
    pub fn path(&self) -> &CanonicalPath {
        &self.path
    }

    pub fn hash(&self) -> PageHash {
        self.hash
    }

    /// The page's own tag at a CDN. No tenant's tag can be the same: no tenant begins with a dot.
    pub fn for_cdn(&self) -> String {
        format!(".{}:{}", self.tenant, self.hash)
    }

    /// The page for a log: its path without what could be private ([`scrub`]), and the hash by
    /// which its rows are found.
    pub fn logged(&self) -> LoggedPage<'_> {
        LoggedPage(self)
    }
}

/// A page in a log, like `acme/search?* (page 5c2e…)`.
#[derive(Clone, Copy, Debug)]
pub struct LoggedPage<'p>(&'p PageKey);

impl fmt::Display for LoggedPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageKey { tenant, path, hash } = self.0;
        write!(f, "{tenant}{} (page {hash})", scrub::path(path.as_str()))
    }
}

/// Whole, query included: never for a log, which takes [`PageKey::logged`].
impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.tenant, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tenant_names_that_could_reach_another_tenant_are_refused() {
        let bad = |at| Err(TenantError::BadCharacter { at });
        for (raw, at) in [
            ("a#CACHE#b", 1),
            ("a/b", 1),
            ("..", 0),
            ("a..b", 1),
            ("a\0", 1),
            ("a\n", 1),
            ("a b", 1),
            ("Acme", 0),
            ("\u{430}cme", 0),
            ("acme\u{200b}", 4),
            ("a%23b", 1),
            ("-a", 0),
            ("_a", 0),
        ] {
            assert_eq!(Tenant::parse(raw), bad(at), "{raw:?}");
        }
        assert_eq!(Tenant::parse(""), Err(TenantError::Empty));
        assert_eq!(Tenant::parse(&"a".repeat(2048)), Err(TenantError::TooLong { bytes: 2048 }));
        for raw in ["a", "7", "acme-eu_2", &"a".repeat(64)] {
            assert_eq!(Tenant::parse(raw).unwrap().as_str(), raw);
        }
    }

    proptest! {
        #[test]
        fn no_text_with_a_separator_is_a_tenant(front in "[a-z]{0,3}", back in "[a-zA-Z#/]{0,8}") {
            let raw = format!("{front}#{back}");
            prop_assert!(Tenant::parse(&raw).is_err());
        }
    }
}

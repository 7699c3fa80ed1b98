//! Invalidation by tag and by path prefix.
//!
//! A tenant's invalidations are one partition: an epoch row, and one row per tag and per prefix
//! with the moment it was last invalidated, its watermark. The epoch is the newest watermark of
//! all, so a page that is newer than the epoch needs no further read. However many pages carry a
//! tag, invalidating it is one transaction.

use crate::domain::keys;
use crate::domain::page_key::{CanonicalPath, MAX_SORT_KEY_BYTES};

/// A path prefix. It covers whole segments: `/products` covers `/products`, `/products/` and
/// `/products/42`, not `/products-old`. Queries do not matter. At most [`Prefix::MAX_BYTES`] long.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(String);

/// Why a path is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Longer than [`Prefix::MAX_BYTES`].
    #[error(
        "prefix has {bytes} bytes, allowed are {}: invalidate a shorter one, or the page by its path",
        Prefix::MAX_BYTES
    )]
    TooLong { bytes: usize },
}

impl Prefix {
    /// The longest prefix, in bytes: a longer one's watermark would have a sort key that DynamoDB
    /// does not take.
    pub const MAX_BYTES: usize = MAX_SORT_KEY_BYTES - keys::PREFIX.len();

    /// The prefix that covers `path` and everything below it. A path may be longer than a prefix
    /// can be.
    pub fn of(path: &CanonicalPath) -> Result<Self, PrefixError> {
        Self::parse(whole(path))
    }

    /// Every prefix that covers `path`, the shortest first. Without those that are too long, which
    /// cannot have been invalidated.
    pub fn covering(path: &CanonicalPath) -> Vec<Self> {
        let whole = whole(path);
        let mut prefixes = vec!["/"];
        prefixes.extend(whole.match_indices('/').skip(1).map(|(at, _)| &whole[..at]));
        if whole != "/" {
            prefixes.push(whole);
        }
        prefixes.into_iter().filter_map(|prefix| Self::parse(prefix).ok()).collect()
    }

    fn parse(text: &str) -> Result<Self, PrefixError> {
        if text.len() > Self::MAX_BYTES {
            return Err(PrefixError::TooLong { bytes: text.len() });
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The path without its trailing slash; the root keeps its only one.
fn whole(path: &CanonicalPath) -> &str {
    match path.path().strip_suffix('/') {
        Some("") => "/",
        Some(trimmed) => trimmed,
        None => path.path(),
    }
}

/// What a tenant's invalidations say about one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invalidations {
    /// The newest watermark of the whole tenant; none if nothing was ever invalidated.
    pub epoch_ms: Option<u64>,
    /// The newest watermark among the page's tags and prefixes. None if there is none, or if the
    /// epoch was so old that it was not read.
    pub watermark_ms: Option<u64>,
    /// The newest hard one among them: an older version is expired, not only stale.
    pub hard_ms: Option<u64>,
}

/// The watermark of one tag or prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// When it was last invalidated.
    pub at_ms: u64,
    /// When it was last invalidated hard. Never above `at_ms`.
    pub hard_ms: Option<u64>,
}

impl Invalidations {
    /// The epoch together with the watermarks that were found for its tags and prefixes.
    pub fn new(epoch_ms: Option<u64>, watermarks: impl IntoIterator<Item = Watermark>) -> Self {
        let unread = Self { epoch_ms, ..Self::default() };
        watermarks.into_iter().fold(unread, |newest, watermark| Self {
            watermark_ms: newest.watermark_ms.max(Some(watermark.at_ms)),
            hard_ms: newest.hard_ms.max(watermark.hard_ms),
            ..newest
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> CanonicalPath {
        CanonicalPath::stored(text).unwrap()
    }

    fn covering(text: &str) -> Vec<String> {
        Prefix::covering(&path(text)).iter().map(|prefix| prefix.as_str().to_owned()).collect()
    }

    #[test]
    fn page_is_covered_by_itself_and_everything_above_it() {
        assert_eq!(covering("/"), ["/"]);
        assert_eq!(covering("/products"), ["/", "/products"]);
        assert_eq!(covering("/products/"), ["/", "/products"]);
        assert_eq!(covering("/products/42?color=red"), ["/", "/products", "/products/42"]);
        assert_eq!(covering("/a/b/c"), ["/", "/a", "/a/b", "/a/b/c"]);
    }

    #[test]
    fn prefix_ends_at_a_segment() {
        let products = Prefix::of(&path("/products/")).unwrap();
        assert!(Prefix::covering(&path("/products/42")).contains(&products));
        assert!(!Prefix::covering(&path("/products-old")).contains(&products));
    }

    #[test]
    fn prefix_too_long_for_a_sort_key_is_refused() {
        let longest = format!("/a/{}", "x".repeat(Prefix::MAX_BYTES - 3));
        assert!(Prefix::of(&path(&longest)).is_ok());
        assert_eq!(covering(&longest), ["/", "/a", &longest]);
        for more in 1..=7 {
            let long = format!("{longest}{}", "y".repeat(more));
            let refused = Prefix::of(&path(&long)).unwrap_err();
            assert_eq!(refused, PrefixError::TooLong { bytes: Prefix::MAX_BYTES + more });
            assert!(refused.to_string().contains("allowed are 1017"), "{refused}");
            assert_eq!(covering(&long), ["/", "/a"]);
        }
        // Neither a trailing slash nor a query counts.
        assert!(Prefix::of(&path(&format!("{longest}/"))).is_ok());
        assert!(Prefix::of(&path(&format!("{longest}?a=bc"))).is_ok());
    }

    #[test]
    fn newest_watermark_decides() {
        let soft = |at_ms| Watermark { at_ms, hard_ms: None };
        let found = Invalidations::new(Some(9), [soft(3), soft(7), Watermark { at_ms: 5, hard_ms: Some(4) }]);
        assert_eq!((found.watermark_ms, found.hard_ms), (Some(7), Some(4)));
        assert_eq!(Invalidations::new(None, []), Invalidations::default());
    }
}

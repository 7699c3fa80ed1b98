//! Invalidation by tag and by path prefix.
//!
//! A tenant's invalidations are one partition: an epoch row, and one row per tag and per prefix with the moment it was
//! last invalidated, its watermark. The epoch is the newest watermark of all, so a page that is newer than the epoch
//! needs no further look. However many pages carry a tag, invalidating it is one transaction.

use crate::domain::page_key::CanonicalPath;
use crate::domain::tag::Tag;

/// Sort key of the epoch row.
pub const EPOCH_SK: &str = "EPOCH";

/// A path prefix. It covers whole segments: `/products` covers `/products`, `/products/` and `/products/42`, not
/// `/products-old`. Queries do not matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(String);

impl Prefix {
    /// The prefix that covers `path` and everything below it.
    pub fn of(path: &CanonicalPath) -> Self {
        let path = path.path();
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        Self(if trimmed.is_empty() { "/" } else { trimmed }.to_owned())
    }

    /// Every prefix that covers `path`, the shortest first.
    pub fn covering(path: &CanonicalPath) -> Vec<Self> {
        let whole = Self::of(path);
        let mut prefixes = vec![Self("/".to_owned())];
        for (at, _) in whole.0.match_indices('/').skip(1) {
            prefixes.push(Self(whole.0[..at].to_owned()));
        }
        if whole.0 != "/" {
            prefixes.push(whole);
        }
        prefixes
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Sort key of its watermark.
    pub fn sk(&self) -> String {
        format!("PREFIX#{}", self.0)
    }
}

/// Sort keys of every watermark that can concern a page.
pub fn watermark_sks(path: &CanonicalPath, tags: &[Tag]) -> Vec<String> {
    let tags = tags.iter().map(Tag::sk);
    let prefixes = Prefix::covering(path);
    tags.chain(prefixes.iter().map(Prefix::sk)).collect()
}

/// What a tenant's invalidations say about one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invalidations {
    /// The newest watermark of the whole tenant; none if nothing was ever invalidated.
    pub epoch_ms: Option<u64>,
    /// The newest watermark among the page's tags and prefixes. None if there is none, or if the epoch was old enough
    /// that nobody looked.
    pub watermark_ms: Option<u64>,
}

impl Invalidations {
    /// The epoch together with the watermarks that were found under [`watermark_sks`].
    pub fn new(epoch_ms: Option<u64>, watermarks_ms: impl IntoIterator<Item = u64>) -> Self {
        Self { epoch_ms, watermark_ms: watermarks_ms.into_iter().max() }
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
        let products = Prefix::of(&path("/products/"));
        assert!(Prefix::covering(&path("/products/42")).contains(&products));
        assert!(!Prefix::covering(&path("/products-old")).contains(&products));
    }

    #[test]
    fn lookup_asks_for_tags_and_prefixes_and_nothing_else() {
        let tags = [Tag::parse("products").unwrap(), Tag::parse("product-42").unwrap()];
        let sks = watermark_sks(&path("/products/42"), &tags);
        let expected = ["TAG#products", "TAG#product-42", "PREFIX#/", "PREFIX#/products", "PREFIX#/products/42"];
        assert_eq!(sks, expected);
    }

    #[test]
    fn newest_watermark_decides() {
        let found = Invalidations::new(Some(9), [3, 7, 5]);
        assert_eq!(found.watermark_ms, Some(7));
        assert_eq!(Invalidations::new(None, []), Invalidations::default());
    }
}

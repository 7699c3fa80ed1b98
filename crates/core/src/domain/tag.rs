//! Tags: names that pages share, so that all of them can be invalidated at once.

use std::fmt;
use std::str::FromStr;

use crate::domain::digest::Digest;
use crate::domain::page_key::Tenant;

/// A tag: one to 256 characters out of `A–Z a–z 0–9 . _ ~ : @ % + = / -`.
///
/// Free of commas, quotes and spaces, so that several fit into one header; free of `#`, so that it
/// fits into a sort key. Compared exactly here. A CDN that ignores case purges more than was meant,
/// never less.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(String);

/// Why a text is no tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    #[error("tag is empty")]
    Empty,
    /// Longer than [`Tag::MAX_BYTES`].
    #[error("tag has {bytes} bytes, allowed are {}", Tag::MAX_BYTES)]
    TooLong { bytes: usize },
    #[error(
        "tag has a character that is not allowed at byte {at}; allowed are letters, digits and . _ ~ : @ % + = / -"
    )]
    BadCharacter {
        /// In bytes from zero.
        at: usize,
    },
}

impl Tag {
    /// The longest tag, in bytes; CDNs take no longer ones.
    pub const MAX_BYTES: usize = everfresh_enqueue::message::MAX_TAG_BYTES;

    /// Checks `raw` and takes it over unchanged.
    pub fn parse(raw: &str) -> Result<Self, TagError> {
        if raw.is_empty() {
            return Err(TagError::Empty);
        }
        if raw.len() > Self::MAX_BYTES {
            return Err(TagError::TooLong { bytes: raw.len() });
        }
        match raw.bytes().position(|byte| !allowed(byte)) {
            Some(at) => Err(TagError::BadCharacter { at }),
            None => Ok(Self(raw.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tag at a CDN, with its tenant as a prefix: two tenants may use the same tag. CDNs take
    /// 256 characters; a longer tag is cut and gets a digest of the whole, so that it stays unique.
    pub fn for_cdn(&self, tenant: &Tenant) -> String {
        let whole = format!("{tenant}:{self}");
        if whole.len() <= Self::MAX_BYTES {
            return whole;
        }
        let digest = Digest::of(whole.as_bytes()).to_string();
        // Both are ASCII, so every byte is a border.
        format!("{}~{digest}", &whole[..Self::MAX_BYTES - digest.len() - 1])
    }
}

fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._~:@%+=/-".contains(&byte)
}

/// Writes a canonical path segment into a tag. Two segments never become the same text: what a tag
/// may not hold is encoded, and a canonical segment has none of those characters encoded.
pub(crate) fn push_segment(tag: &mut String, segment: &str) {
    for byte in segment.bytes() {
        if allowed(byte) {
            tag.push(char::from(byte));
        } else {
            tag.push_str(&format!("%{byte:02X}"));
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(raw: &str) -> Result<Self, TagError> {
        Self::parse(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cdn_tag_has_its_tenant_and_fits_the_limit() {
        let acme = Tenant::parse("acme").unwrap();
        assert_eq!(Tag::parse("products").unwrap().for_cdn(&acme), "acme:products");
        let long = |last: &str| Tag::parse(&format!("{}{last}", "x".repeat(255))).unwrap().for_cdn(&acme);
        assert_eq!(long("a").len(), 256);
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn tags_unfit_for_headers_or_sort_keys_are_refused() {
        for (raw, at) in [("a,b", 1), ("a b", 1), ("a#b", 1), ("\"", 0), ("a\r\n", 1), ("ä", 0)] {
            assert_eq!(Tag::parse(raw), Err(TagError::BadCharacter { at }), "{raw:?}");
        }
        assert_eq!(Tag::parse(""), Err(TagError::Empty));
        assert_eq!(Tag::parse(&"t".repeat(257)), Err(TagError::TooLong { bytes: 257 }));
        assert!(Tag::parse("product-42").is_ok());
    }

    #[test]
    fn segment_with_a_comma_becomes_a_tag_of_its_own() {
        let mut tag = String::from("product-");
        push_segment(&mut tag, "a,b(c)%C3%A9");
        assert_eq!(tag, "product-a%2Cb%28c%29%C3%A9");
        assert!(Tag::parse(&tag).is_ok());
    }
}

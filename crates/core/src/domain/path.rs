//! The canonical form of a path and its query.
//!
//! One normaliser makes the cache key, the route match and the path requested from the origin, so
//! that none of them can see another page than the others. Where servers are known to disagree
//! about what a path means, it is refused, not repaired: `.` and `..` segments, `//`, `;`,
//! backslashes, encoded slashes, doubly encoded octets, control characters and bytes that are not
//! UTF-8.
//!
//! What remains is written one way:
//! - each segment is percent-decoded once and encoded again; kept as they are: letters, digits and
//!   `-._~!$&'()*+,=:@`; hex digits are upper case. A trailing slash stays: origins may mean two
//!   pages.
//! - of the query only allowed parameters are kept, so tracking parameters vanish. `+` is a space.
//!   Names and values are decoded, equal pairs collapse, pairs are sorted by name, then value, and
//!   written `name=value` with everything but letters, digits and `-._~` encoded. A parameter given
//!   twice with different values is kept twice.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

/// The longest path and query that is parsed, in bytes as received.
pub const MAX_RAW_BYTES: usize = everfresh_enqueue::message::MAX_PATH_BYTES;

/// The longest canonical form, in bytes: it is an index sort key, and DynamoDB takes no longer one.
pub const MAX_CANONICAL_BYTES: usize = 1024;

/// The most query parameters a page may be keyed by.
pub const MAX_PARAMETERS: usize = 32;

const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const IN_SEGMENT: &AsciiSet = &IN_QUERY
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// Why a path has no canonical form. Never repeats the path: it may hold what must not be logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Beyond [`MAX_RAW_BYTES`] as received or [`MAX_CANONICAL_BYTES`] in canonical form.
    #[error("path has {bytes} bytes, allowed are {allowed}")]
    TooLong {
        bytes: usize,
        /// The limit it broke.
        allowed: usize,
    },
    /// Does not begin with `/`.
    #[error("path must begin with a slash")]
    NotAbsolute,
    /// Carries a `#fragment`, which never reaches a server.
    #[error("path has a fragment")]
    Fragment,
    /// A control character, plain or encoded; NUL, CR and LF are among them.
    #[error("path has a control character")]
    ControlCharacter,
    /// `//`, at the front or inside.
    #[error("path has an empty segment")]
    EmptySegment,
    /// A `.` or `..` segment, plain or encoded.
    #[error("path has a dot segment")]
    DotSegment,
    /// `;`, plain or encoded: some servers cut the segment there.
    #[error("path has a semicolon")]
    Semicolon,
    /// A backslash, plain or encoded: some servers read a slash.
    #[error("path has a backslash")]
    Backslash,
    /// `%2F` in the path.
    #[error("path has an encoded slash")]
    EncodedSlash,
    /// `%25` followed by two hex digits: a server that decodes twice sees another path.
    #[error("path is percent-encoded twice")]
    EncodedTwice,
    /// `%` without two hex digits after it.
    #[error("path has a broken percent escape")]
    BrokenEscape,
    /// Escapes that are no UTF-8, overlong forms included.
    #[error("path is not UTF-8")]
    NotUtf8,
    /// An allowed query parameter whose value is broken, or has a control character.
    #[error("query parameter `{name}` is malformed")]
    BadParameter {
        /// Its name, as the configuration spells it.
        name: String,
    },
    /// More than [`MAX_PARAMETERS`] allowed parameters.
    #[error("query has more than {MAX_PARAMETERS} parameters that count")]
    TooManyParameters,
}

/// A path in canonical form whose query is not parsed yet: enough to find the route, which has the
/// allowed parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath {
    path: String,
    query: String,
}

impl NormalPath {
    /// Splits `raw` at the first `?` and normalises the path before it.
    pub fn parse(raw: &str) -> Result<Self, PathError> {
        if raw.len() > MAX_RAW_BYTES {
            let (bytes, allowed) = (raw.len(), MAX_RAW_BYTES);
            return Err(PathError::TooLong { bytes, allowed });
        }
        if raw.chars().any(char::is_control) {
            return Err(PathError::ControlCharacter);
        }
        if raw.contains('#') {
            return Err(PathError::Fragment);
        }
        let (path, query) = raw.split_once('?').unwrap_or((raw, ""));
        let segments = path.strip_prefix('/').ok_or(PathError::NotAbsolute)?;
        let mut normal = String::with_capacity(path.len());
        let mut rest = segments.split('/').peekable();
        while let Some(segment) = rest.next() {
            // Only the last segment may be empty: that is the trailing slash, or the root.
            if segment.is_empty() && rest.peek().is_some() {
                return Err(PathError::EmptySegment);
            }
            normal.push('/');
            normal.push_str(&normal_segment(segment)?);
        }
        Ok(Self { path: normal, query: query.to_owned() })
    }

    /// The path, without its query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The canonical form with those query parameters that are in `allowed`, names compared
    /// exactly.
    pub fn keep<S: AsRef<str>>(&self, allowed: &[S]) -> Result<CanonicalPath, PathError> {
        self.keep_if(|name| allowed.iter().any(|allowed| allowed.as_ref() == name))
    }

    fn keep_if(&self, allowed: impl Fn(&str) -> bool) -> Result<CanonicalPath, PathError> {
        let mut kept = BTreeSet::new();
        for pair in self.query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // A malformed name is not an allowed one, so it is dropped like any other parameter.
            let Ok(name) = decode_parameter(name) else {
                continue;
            };
            if pair.is_empty() || !allowed(&name) {
                continue;
            }
            match decode_parameter(value) {
                Ok(value) => kept.insert((name, value)),
                Err(_) => return Err(PathError::BadParameter { name }),
            };
        }
        if kept.len() > MAX_PARAMETERS {
            return Err(PathError::TooManyParameters);
        }
        let mut text = self.path.clone();
        for (index, (name, value)) in kept.iter().enumerate() {
            text.push(if index == 0 { '?' } else { '&' });
            text.extend(utf8_percent_encode(name, IN_QUERY));
            text.push('=');
            text.extend(utf8_percent_encode(value, IN_QUERY));
        }
        if text.len() > MAX_CANONICAL_BYTES {
            let (bytes, allowed) = (text.len(), MAX_CANONICAL_BYTES);
            return Err(PathError::TooLong { bytes, allowed });
        }
        Ok(CanonicalPath { text, path_len: self.path.len() })
    }
}

/// A path and query in canonical form. It is the page's cache key, and the path that is requested
/// from the origin.
///
/// ASCII without spaces, control characters and `#`; begins with `/`; at most
/// [`MAX_CANONICAL_BYTES`] long.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CanonicalPath {
    text: String,
    path_len: usize,
}

impl CanonicalPath {
    /// Reads a stored canonical form. `None` if `text` is not one.
    pub fn stored(text: &str) -> Option<Self> {
        let canonical = NormalPath::parse(text).ok()?.keep_if(|_| true).ok()?;
        (canonical.text == text).then_some(canonical)
    }

    /// Path and query.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path, without its query.
    pub fn path(&self) -> &str {
        &self.text[..self.path_len]
    }
}

impl fmt::Display for CanonicalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One path segment in canonical form.
pub(crate) fn normal_segment(raw: &str) -> Result<String, PathError> {
    let decoded = decode(raw.as_bytes())?;
    match decoded.as_str() {
        "." | ".." => return Err(PathError::DotSegment),
        _ => {}
    }
    for character in decoded.chars() {
        match character {
            '/' => return Err(PathError::EncodedSlash),
            '\\' => return Err(PathError::Backslash),
            ';' => return Err(PathError::Semicolon),
            _ if character.is_control() => return Err(PathError::ControlCharacter),
            _ => {}
        }
    }
    if has_escape(decoded.as_bytes()) {
        return Err(PathError::EncodedTwice);
    }
    Ok(utf8_percent_encode(&decoded, IN_SEGMENT).to_string())
}

fn decode_parameter(raw: &str) -> Result<String, PathError> {
    let spaced: Cow<'_, str> = if raw.contains('+') { raw.replace('+', " ").into() } else { raw.into() };
    let decoded = decode(spaced.as_bytes())?;
    if decoded.chars().any(char::is_control) {
        return Err(PathError::ControlCharacter);
    }
    Ok(decoded)
}

/// Percent-decodes once. The crate below lets broken escapes through as they are; here they are
/// refused.
fn decode(raw: &[u8]) -> Result<String, PathError> {
    for (at, _) in raw.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        if !starts_with_hex_pair(&raw[at + 1..]) {
            return Err(PathError::BrokenEscape);
        }
    }
    let decoded = percent_decode(raw).decode_utf8().map_err(|_| PathError::NotUtf8)?;
    Ok(decoded.into_owned())
}

fn has_escape(bytes: &[u8]) -> bool {
    let mut percents = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    percents.any(|(at, _)| starts_with_hex_pair(&bytes[at + 1..]))
}

fn starts_with_hex_pair(bytes: &[u8]) -> bool {
    matches!(bytes, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;

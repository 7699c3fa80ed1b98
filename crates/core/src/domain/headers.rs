//! Which of an origin's headers are stored with a page and replayed to every reader.
//!
//! A fixed list; all others are dropped. Never on it: `Set-Cookie`, which is meant for one reader;
//! `Cache-Control`, `ETag`, `Last-Modified`, `Age`, `Date` and `Vary`, which the serving function
//! sets itself; and every hop-by-hop header.

/// Names that are stored, in lower case and sorted.
pub const STORED: [&str; 14] = [
    "content-disposition",
    "content-language",
    "content-security-policy",
    "content-security-policy-report-only",
    "content-type",
    "cross-origin-embedder-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "link",
    "location",
    "permissions-policy",
    "referrer-policy",
    "x-frame-options",
    "x-robots-tag",
];

/// Of those, the ones that may occur several times.
const REPEATABLE: [&str; 4] =
    ["content-security-policy", "content-security-policy-report-only", "link", "x-robots-tag"];

/// Limit of the stored headers in bytes, names and values together. META, which stores them, has
/// its own limit of 400 KB.
pub const MAX_STORED_BYTES: usize = 16 * 1024;

/// Why a page's headers cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A value with control characters or outside ASCII.
    #[error("header {name} has characters that cannot be replayed")]
    BadValue { name: &'static str },
    /// A header that may occur only once.
    #[error("header {name} occurs twice")]
    Repeated { name: &'static str },
    #[error("stored headers have {bytes} bytes, allowed are {MAX_STORED_BYTES}")]
    TooLarge { bytes: usize },
}

/// The headers to store, in lower case, sorted by name; those of one name keep their order.
pub fn stored(headers: &[(String, String)]) -> Result<Vec<(String, String)>, HeaderError> {
    let mut kept: Vec<(String, String)> = Vec::new();
    let mut bytes = 0;
    for name in STORED {
        let mut values = headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let repeatable = REPEATABLE.contains(&name);
        if let Some((_, value)) = values.next() {
            push(&mut kept, &mut bytes, name, value)?;
        }
        for (_, value) in values {
            if !repeatable {
                return Err(HeaderError::Repeated { name });
            }
            push(&mut kept, &mut bytes, name, value)?;
        }
    }
    if bytes > MAX_STORED_BYTES {
        return Err(HeaderError::TooLarge { bytes });
    }
    Ok(kept)
}

/// Of the headers on a foreign row, those that may be replayed: each checked by itself, and the
/// first of those that may occur only once.
pub fn replayable(headers: &[(String, String)]) -> Vec<(String, String)> {
    let mut kept: Vec<(String, String)> = Vec::new();
    let mut bytes = 0;
    for header in headers {
        let by_itself = stored(std::slice::from_ref(header)).ok().and_then(|mut one| one.pop());
        let Some((name, value)) = by_itself else { continue };
        let again = kept.iter().any(|(known, _)| *known == name) && !REPEATABLE.contains(&name.as_str());
        let more = bytes + name.len() + value.len();
        if !again && more <= MAX_STORED_BYTES {
            bytes = more;
            kept.push((name, value));
        }
    }
    kept
}

fn push(
    kept: &mut Vec<(String, String)>,
    bytes: &mut usize,
    name: &'static str,
    value: &str,
) -> Result<(), HeaderError> {
    let value = value.trim_matches([' ', '\t']);
    let replayable = |byte: u8| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic();
    if !value.bytes().all(replayable) {
        return Err(HeaderError::BadValue { name });
    }
    *bytes += name.len() + value.len();
    kept.push((name.to_owned(), value.to_owned()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_listed_headers_are_kept_in_one_order() {
        let kept = stored(&headers(&[
            ("X-Robots-Tag", "noindex"),
            ("Set-Cookie", "session=1"),
            ("Cache-Control", "max-age=60"),
            ("ETag", "\"x\""),
            ("X-Powered-By", "x"),
            ("Link", "</a.css>; rel=preload"),
            ("Content-Type", " text/html "),
            ("link", "</b.css>; rel=preload"),
        ]));
        let expected = headers(&[
            ("content-type", "text/html"),
            ("link", "</a.css>; rel=preload"),
            ("link", "</b.css>; rel=preload"),
            ("x-robots-tag", "noindex"),
        ]);
        assert_eq!(kept, Ok(expected));
    }

    #[test]
    fn cookies_and_validators_are_not_on_the_list() {
        for name in ["set-cookie", "cache-control", "etag", "vary", "age", "authorization"] {
            assert!(!STORED.contains(&name));
        }
        assert!(STORED.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn values_that_could_split_a_response_are_refused() {
        for value in ["a\r\nSet-Cookie: x=1", "a\0", "a\u{7f}", "é"] {
            let refused = stored(&headers(&[("content-type", value)]));
            assert_eq!(refused, Err(HeaderError::BadValue { name: "content-type" }));
        }
    }

    #[test]
    fn two_content_types_are_refused() {
        let twice = headers(&[("content-type", "text/html"), ("Content-Type", "text/plain")]);
        assert_eq!(stored(&twice), Err(HeaderError::Repeated { name: "content-type" }));
    }

    #[test]
    fn foreign_headers_keep_their_replayable_part() {
        let long = "x".repeat(MAX_STORED_BYTES);
        let kept = replayable(&headers(&[
            ("set-cookie", "a=1"),
            ("Content-Type", "text/html\r\nset-cookie: a=1"),
            ("Content-Type", "text/html"),
            ("content-type", "text/plain"),
            ("link", "</a>"),
            ("link", &long),
            ("link", "</b>"),
        ]));
        assert_eq!(kept, headers(&[("content-type", "text/html"), ("link", "</a>"), ("link", "</b>")]));
    }

    #[test]
    fn headers_without_end_are_refused() {
        let long = "x".repeat(MAX_STORED_BYTES);
        let refused = stored(&headers(&[("link", &long)]));
        assert_eq!(refused, Err(HeaderError::TooLarge { bytes: MAX_STORED_BYTES + 4 }));
    }
}

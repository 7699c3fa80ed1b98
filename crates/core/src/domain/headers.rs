//! Which of an origin's headers are stored with a page and replayed to every reader.
//!
//! All of them, except those that belong to the connection, to one reader, or to the cache that
//! wrote them; those that the serving function writes itself; and those that say something of the
//! one response that happened to be stored.

/// Never stored, in lower case and sorted.
const NOT_STORED: [&str; 69] = [
    "accept-ranges",
    "age",
    "alt-svc",
    "authentication-info",
    "authorization",
    "cache-control",
    "cache-group-invalidation",
    "cache-groups",
    "cache-status",
    "cache-tag",
    "cdn-cache-control",
    "cdn-loop",
    "cf-cache-status",
    "cf-ray",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "correlation-id",
    "date",
    "digest",
    "edge-control",
    "etag",
    "expires",
    "forwarded",
    "keep-alive",
    "last-modified",
    "nel",
    "pragma",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "proxy-status",
    "report-to",
    "repr-digest",
    "request-id",
    "retry-after",
    "server",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "surrogate-control",
    "surrogate-key",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-accel-expires",
    "x-cache",
    "x-cache-hits",
    "x-content-type-options",
    "x-correlation-id",
    "x-nextjs-cache",
    "x-nextjs-prerender",
    "x-nextjs-stale-time",
    "x-powered-by",
    "x-render-time",
    "x-request-id",
    "x-response-time",
    "x-runtime",
    "x-served-by",
    "x-trace-id",
];

/// Beginnings of names that are never stored.
const NOT_STORED_PREFIXES: [&str; 6] = ["everfresh-", "proxy-", "x-amz-", "x-amzn-", "x-everfresh-", "x-middleware-"];

/// Headers that are part of the content: a response in which one of them differs is another
/// version. A difference in any other header alone changes nothing that a subscriber would have to
/// know, and some differ in every response.
pub const CONTENT: [&str; 14] = [
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

/// Digests of the stored body, byte for byte. The decoder removes them from a page that it decodes.
const OF_BODY: [&str; 2] = ["content-digest", "content-md5"];

pub fn is_stored(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NOT_STORED.binary_search(&name.as_str()).is_err()
        && !NOT_STORED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

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

/// The headers to store, in lower case, sorted by name; those of one name keep their order. Names
/// in the origin's `Connection` header are left out, and so are values that cannot be replayed,
/// unless they are part of the content.
pub fn stored(headers: &[(String, String)]) -> Result<Vec<(String, String)>, HeaderError> {
    let of_connection: Vec<String> = headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("connection"))
        .flat_map(|(_, value)| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut kept: Vec<(String, String)> = Vec::new();
    let mut bytes = 0;
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if !is_stored(&name) || !is_name(&name) || of_connection.contains(&name) {
            continue;
        }
        let value = value.trim_matches([' ', '\t']);
        let content = CONTENT.iter().find(|content| **content == name);
        if !value.bytes().all(is_printable) {
            match content {
                Some(name) => return Err(HeaderError::BadValue { name }),
                None => continue,
            }
        }
        if let Some(name) = content.filter(|name| !REPEATABLE.contains(name))
            && kept.iter().any(|(known, _)| known == name)
        {
            return Err(HeaderError::Repeated { name });
        }
        bytes += name.len() + value.len();
        kept.push((name, value.to_owned()));
    }
    if bytes > MAX_STORED_BYTES {
        return Err(HeaderError::TooLarge { bytes });
    }
    // Stable: the values of one name keep their order.
    kept.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(kept)
}

/// The stored headers of a version that the origin calls unchanged: as they are, with those that
/// its answer names in their place (RFC 9111, 3.2). What describes the body stays: the answer may
/// speak of another coding of it.
pub fn updated(known: &[(String, String)], answer: &[(String, String)]) -> Result<Vec<(String, String)>, HeaderError> {
    let mut new = stored(answer)?;
    new.retain(|(name, _)| !OF_BODY.contains(&name.as_str()));
    let kept = known.iter().filter(|(name, _)| !new.iter().any(|(other, _)| other == name));
    let all: Vec<_> = kept.chain(&new).cloned().collect();
    stored(&all)
}

/// Of stored headers, those that are part of the content.
pub fn content(headers: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    headers.iter().filter(|(name, _)| CONTENT.contains(&name.as_str()))
}

/// Of the headers on a foreign row, those that may be replayed: each checked by itself, and the
/// first of those that may occur only once.
pub fn replayable(headers: &[(String, String)]) -> Vec<(String, String)> {
    let mut kept: Vec<(String, String)> = Vec::new();
    let mut bytes = 0;
    for header in headers {
        let by_itself = stored(std::slice::from_ref(header)).ok().and_then(|mut one| one.pop());
        let Some((name, value)) = by_itself else { continue };
        let once = CONTENT.contains(&name.as_str()) && !REPEATABLE.contains(&name.as_str());
        let again = once && kept.iter().any(|(known, _)| *known == name);
        let more = bytes + name.len() + value.len();
        if !again && more <= MAX_STORED_BYTES {
            bytes = more;
            kept.push((name, value));
        }
    }
    kept
}

fn is_printable(byte: u8) -> bool {
    byte == b' ' || byte == b'\t' || byte.is_ascii_graphic()
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn headers_are_kept_in_one_order() {
        let kept = stored(&headers(&[
            ("X-Robots-Tag", "noindex"),
            ("Set-Cookie", "session=1"),
            ("Cache-Control", "max-age=60"),
            ("ETag", "\"x\""),
            ("X-Powered-By", "x"),
            ("Strict-Transport-Security", "max-age=1"),
            ("Access-Control-Allow-Origin", "*"),
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("X-Shop", "é"),
            ("Link", "</a.css>; rel=preload"),
            ("Content-Type", " text/html "),
            ("link", "</b.css>; rel=preload"),
        ]));
        let expected = headers(&[
            ("access-control-allow-origin", "*"),
            ("content-type", "text/html"),
            ("link", "</a.css>; rel=preload"),
            ("link", "</b.css>; rel=preload"),
            ("strict-transport-security", "max-age=1"),
            ("x-robots-tag", "noindex"),
        ]);
        assert_eq!(kept, Ok(expected));
    }

    #[test]
    fn cookies_validators_and_cache_headers_are_not_stored() {
        for name in
            ["Set-Cookie", "cache-control", "ETag", "vary", "age", "authorization", "X-Amz-Cf-Id", "x-everfresh-x"]
        {
            assert!(!is_stored(name), "{name}");
        }
        assert!(is_stored("Strict-Transport-Security"));
        assert!(NOT_STORED.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(CONTENT.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(CONTENT.iter().all(|name| is_stored(name)));
    }

    #[test]
    fn digest_of_the_body_is_kept_and_no_304_replaces_it() {
        let known = headers(&[("content-md5", "ours"), ("content-type", "text/html")]);
        assert_eq!(stored(&known), Ok(known.clone()));
        let answer = headers(&[("Content-MD5", "of the gzip body"), ("clear-site-data", "\"cache\"")]);
        let expected =
            headers(&[("clear-site-data", "\"cache\""), ("content-md5", "ours"), ("content-type", "text/html")]);
        assert_eq!(updated(&known, &answer), Ok(expected));
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

//! Headers that belong to one connection and are never passed on to another.

use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Passed on, they would allow request smuggling.
pub(crate) const CONNECTION_HEADERS: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes the headers of the connection, also those that `Connection` names.
pub(crate) fn remove(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers.get_all(CONNECTION).iter().flat_map(names).collect();
    // Without its Cache-Control a personal response could be stored by a cache. No sender may name
    // it here (RFC 9110, 7.6.1).
    for name in named.iter().filter(|name| **name != CACHE_CONTROL).chain(&CONNECTION_HEADERS) {
        headers.remove(name);
    }
}

/// Leaves at most one `Content-Length`, and none with `Transfer-Encoding`: the next recipient
/// could frame the body differently. Call before [`remove`].
pub(crate) fn unify_length(headers: &mut HeaderMap) {
    let length: Option<u64> = match headers.contains_key(TRANSFER_ENCODING) {
        true => None,
        // Several are equal, else the HTTP parser has refused them.
        false => {
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.split(',').next()?.trim().parse().ok())
        }
    };
    headers.remove(CONTENT_LENGTH);
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// The header names in a `Connection` value.
fn names(value: &HeaderValue) -> Vec<HeaderName> {
    let listed = value.as_bytes().split(|byte| *byte == b',');
    listed.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn headers_named_in_connection_are_removed() {
        let mut sent = headers(&[
            ("connection", "X-One , keep-alive"),
            ("connection", "x-two,,\"odd\", cache-control"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("cache-control", "private"),
            ("set-cookie", "a=1"),
        ]);
        remove(&mut sent);
        assert_eq!(sent, headers(&[("cache-control", "private"), ("set-cookie", "a=1")]));
    }

    #[test]
    fn content_length_is_single_and_alone() {
        for (sent, expected) in [
            (headers(&[("content-length", "5")]), Some("5")),
            (headers(&[("content-length", "5"), ("content-length", "5")]), Some("5")),
            (headers(&[("content-length", "5, 5")]), Some("5")),
            (headers(&[("content-length", "5"), ("transfer-encoding", "chunked")]), None),
            (headers(&[]), None),
        ] {
            let mut unified = sent.clone();
            unify_length(&mut unified);
            let lengths: Vec<_> = unified.get_all(CONTENT_LENGTH).iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(lengths, Vec::from_iter(expected), "{sent:?}");
        }
    }
}

//! What of the origin's answer reaches the visitor.

use everfresh_core::config::HttpOrigin;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, LOCATION, SET_COOKIE};

use super::PassReason;
use crate::http::Reply;

/// Headers by which caches keep an answer, or recognise a copy. On a page's path no version stands
/// behind such a copy, so nothing could invalidate it.
const OF_CACHES: [&str; 10] = [
    "age",
    "cache-control",
    "cache-groups",
    "cache-tag",
    "cdn-cache-control",
    "everfresh-cdn-cache-control",
    "expires",
    "pragma",
    "surrogate-control",
    "surrogate-key",
];

/// The status and headers for the visitor; the body follows as a stream.
pub(super) fn reply(status: StatusCode, headers: &HeaderMap, origin: &HttpOrigin, reason: PassReason) -> Reply {
    let mut reply = Reply::new(status.as_u16());
    for (name, value) in headers {
        if !is_kept(name, reason) {
            continue;
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        let text = if name == LOCATION { public_location(&text, origin) } else { text.into_owned() };
        reply = reply.with(name.as_str(), text);
    }
    if reason.is_page() {
        reply = reply.with("cache-control", "private, no-store").with("cdn-cache-control", "private, no-store");
    }
    reply.with("cache-status", reason.cache_status().to_string())
}

fn is_kept(name: &HeaderName, reason: PassReason) -> bool {
    let name = name.as_str();
    let personal = reason == PassReason::Asset && name == SET_COOKIE;
    let of_caches = reason.is_page() && OF_CACHES.contains(&name);
    !personal && !of_caches && !name.starts_with("x-everfresh-") && name != "everfresh-cdn-cache-control"
}

/// An address on the origin's own host as one on the site: visitors may not reach that host.
fn public_location(location: &str, origin: &HttpOrigin) -> String {
    match location.strip_prefix(origin.url()) {
        Some("") => "/".to_owned(),
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        Some(rest) if rest.starts_with(['?', '#']) => format!("/{rest}"),
        Some(_) | None => location.to_owned(),
    }
}

/// Whether the answer to an unsafe method was no error, so that the page has probably changed (RFC
/// 9111, section 4.4).
pub(crate) fn may_have_changed(method: &str, status: u16) -> bool {
    let safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
    !safe && (200..400).contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::domain::bypass::BypassReason;
    use http::header::HeaderValue;

    fn answer(reason: PassReason) -> Reply {
        let origin = HttpOrigin::parse("http://127.0.0.1:8000").unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2; Path=/"),
            ("cache-control", "public, max-age=31536000, immutable"),
            ("cdn-cache-control", "max-age=60"),
            ("cache-tag", "x"),
            ("location", "http://127.0.0.1:8000/login?next=/"),
            ("strict-transport-security", "max-age=1"),
            ("x-everfresh-debug", "forged"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        reply(StatusCode::FOUND, &headers, &origin, reason)
    }

    #[test]
    fn answer_on_a_page_route_is_kept_by_no_cache() {
        for reason in [PassReason::Method, PassReason::Bypass(BypassReason::SetCookie), PassReason::NotReady("x")] {
            let reply = answer(reason);
            assert_eq!(reply.header("cache-control"), Some("private, no-store"));
            assert_eq!(reply.header("cdn-cache-control"), Some("private, no-store"));
            assert_eq!(reply.header("cache-tag"), None);
            assert_eq!(reply.headers.iter().filter(|(name, _)| name == "set-cookie").count(), 2);
        }
    }

    #[test]
    fn other_routes_keep_the_origins_cache_headers() {
        for reason in [PassReason::Route, PassReason::Asset] {
            let reply = answer(reason);
            assert_eq!(reply.header("cache-control"), Some("public, max-age=31536000, immutable"));
            assert_eq!(reply.header("cache-tag"), Some("x"));
            assert_eq!(reply.header("set-cookie").is_some(), reason == PassReason::Route);
            assert_eq!(reply.header("x-everfresh-debug"), None);
            assert_eq!(reply.header("strict-transport-security"), Some("max-age=1"));
        }
    }

    #[test]
    fn location_on_the_origins_host_becomes_one_on_the_site() {
        assert_eq!(answer(PassReason::Route).header("location"), Some("/login?next=/"));
        let origin = HttpOrigin::parse("https://origin.example").unwrap();
        for (location, public) in [
            ("https://origin.example", "/"),
            ("https://origin.example?a", "/?a"),
            ("https://origin.example.evil/", "https://origin.example.evil/"),
            ("https://other.example/x", "https://other.example/x"),
            ("/x", "/x"),
        ] {
            assert_eq!(public_location(location, &origin), public);
        }
    }

    #[test]
    fn only_unsafe_methods_without_error_change_a_page() {
        assert!(may_have_changed("POST", 303) && may_have_changed("DELETE", 204));
        assert!(!may_have_changed("GET", 200) && !may_have_changed("OPTIONS", 204) && !may_have_changed("POST", 422));
    }
}

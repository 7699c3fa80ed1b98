//! What of the origin's answer reaches the visitor.

use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::cache_control::{Syntax, directives};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_LOCATION, HeaderMap, HeaderName, LOCATION, SET_COOKIE, VARY};

use super::PassReason;
use crate::http::{Reply, reference};

/// Headers by which caches keep an answer, or recognise a copy. On a page's path no version stands
/// behind such a copy, so nothing could invalidate it.
const OF_CACHES: [&str; 5] = ["age", "cache-control", "cache-groups", "expires", "pragma"];

/// Of shared caches alone. Some of them obey these and not `Cache-Control`.
const OF_SHARED_CACHES: [&str; 5] =
    ["cache-tag", "edge-control", "surrogate-control", "surrogate-key", "x-accel-expires"];

/// The cache key of a shared cache in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheKey {
    /// Addresses, and the headers that the answer's `Vary` names.
    Vary,
    /// Addresses, and no header or cookie of a visitor: a distribution with a fixed key.
    Address,
}

/// Who may keep an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// No cache.
    Never,
    /// The visitor's browser, as the origin says.
    Browser,
    /// Every cache, as the origin says.
    AsSaid,
}

impl Keep {
    fn of(reason: PassReason, headers: &HeaderMap, key: CacheKey) -> Self {
        match key {
            _ if reason.is_page() => Keep::Never,
            CacheKey::Vary => Keep::AsSaid,
            // No cookie has reached the origin.
            CacheKey::Address if reason == PassReason::Asset && varies_by_encoding_alone(headers) => Keep::AsSaid,
            // The origin had everything of this visitor, and the cache would give its answer to all.
            CacheKey::Address => Keep::Browser,
        }
    }
}

/// The status and headers for the visitor; the body follows as a stream.
pub(super) fn reply(
    status: StatusCode,
    headers: &HeaderMap,
    origin: &HttpOrigin,
    reason: PassReason,
    key: CacheKey,
) -> Reply {
    let keep = Keep::of(reason, headers, key);
    let mut reply = Reply::new(status.as_u16());
    for (name, value) in headers {
        if !is_kept(name, reason, keep) {
            continue;
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        let is_reference = name == LOCATION || name == CONTENT_LOCATION;
        let text = if is_reference { public_location(&text, origin) } else { text.into_owned() };
        reply = reply.with(name.as_str(), text);
    }
    reply = match keep {
        Keep::Never => reply.with("cache-control", "private, no-store"),
        Keep::Browser => reply.with("cache-control", for_browser(&joined(headers, &CACHE_CONTROL))),
        Keep::AsSaid => reply,
    };
    if keep != Keep::AsSaid {
        reply = reply.with("cdn-cache-control", "private, no-store");
    }
    reply.with("cache-status", reason.cache_status().to_string())
}

fn is_kept(name: &HeaderName, reason: PassReason, keep: Keep) -> bool {
    let ours = name.as_str().starts_with("x-everfresh-") || name == "everfresh-cdn-cache-control";
    let personal = reason == PassReason::Asset && name == SET_COOKIE;
    // A CDN may have one of its own name, too.
    let of_shared = OF_SHARED_CACHES.contains(&name.as_str()) || name.as_str().ends_with("cdn-cache-control");
    let of_caches = match keep {
        Keep::Never => of_shared || OF_CACHES.contains(&name.as_str()),
        Keep::Browser => of_shared || name == CACHE_CONTROL,
        Keep::AsSaid => false,
    };
    !ours && !personal && !of_caches
}

/// All values of a header, as one.
fn joined(headers: &HeaderMap, name: &HeaderName) -> String {
    let values: Vec<_> = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    values.join(", ")
}

fn varies_by_encoding_alone(headers: &HeaderMap) -> bool {
    let vary = joined(headers, &VARY);
    vary.split(',').map(str::trim).all(|name| name.is_empty() || name.eq_ignore_ascii_case("accept-encoding"))
}

/// The origin's `Cache-Control` without what it says to shared caches, which may not keep the
/// answer.
fn for_browser(said: &str) -> String {
    // Some caches take `private="x"` for less than `private`.
    let Some(all) = directives(said, Syntax::CacheControl).filter(|_| !said.contains('"')) else {
        return "private, no-store".to_owned();
    };
    let for_others = ["private", "public", "s-maxage", "proxy-revalidate"];
    let kept = all.into_iter().filter(|(name, _)| !for_others.iter().any(|other| name.eq_ignore_ascii_case(other)));
    kept.fold("private".to_owned(), |line, (name, argument)| match argument {
        Some(argument) => format!("{line}, {name}={argument}"),
        None => format!("{line}, {name}"),
    })
}

/// An address on the origin's own host as one on the site: visitors may not reach that host. Behind
/// a proxy an origin may not know its own scheme.
fn public_location(location: &str, origin: &HttpOrigin) -> String {
    let own = origin.url().split_once("://").and_then(|(scheme, authority)| {
        let rest = reference::after_authority(location, scheme, authority)?;
        Some(reference::rooted(rest))
    });
    own.unwrap_or_else(|| location.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::domain::bypass::BypassReason;
    use http::header::HeaderValue;

    fn answer(reason: PassReason) -> Reply {
        answer_with(reason, CacheKey::Vary, &[])
    }

    fn answer_with(reason: PassReason, key: CacheKey, more: &[(&'static str, &'static str)]) -> Reply {
        let origin = HttpOrigin::parse("http://127.0.0.1:8000").unwrap();
        let mut headers = HeaderMap::new();
        for &(name, value) in [
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2; Path=/"),
            ("cache-control", "public, max-age=31536000, immutable"),
            ("cdn-cache-control", "max-age=60"),
            ("cache-tag", "x"),
            ("location", "http://127.0.0.1:8000/login?next=/"),
            ("strict-transport-security", "max-age=1"),
            ("x-everfresh-debug", "forged"),
            ("x-accel-expires", "60"),
        ]
        .iter()
        .chain(more)
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        reply(StatusCode::FOUND, &headers, &origin, reason, key)
    }

    #[test]
    fn answer_on_a_page_route_is_kept_by_no_cache() {
        for reason in [PassReason::Method, PassReason::Bypass(BypassReason::SetCookie), PassReason::NotReady("x")] {
            let reply = answer(reason);
            assert_eq!(reply.header("cache-control"), Some("private, no-store"));
            assert_eq!(reply.header("cdn-cache-control"), Some("private, no-store"));
            assert_eq!((reply.header("cache-tag"), reply.header("x-accel-expires")), (None, None));
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
    fn fixed_cache_key_leaves_personal_answers_to_the_browser() {
        let private = Some("private, max-age=31536000, immutable");
        let personal = answer_with(PassReason::Route, CacheKey::Address, &[]);
        assert!(personal.header("set-cookie").is_some());
        let varying = answer_with(PassReason::Asset, CacheKey::Address, &[("vary", "Accept")]);
        for reply in [personal, varying] {
            assert_eq!(reply.header("cache-control"), private);
            assert_eq!(reply.header("cdn-cache-control"), Some("private, no-store"));
            assert_eq!((reply.header("cache-tag"), reply.header("x-accel-expires")), (None, None));
        }
        let file = answer_with(PassReason::Asset, CacheKey::Address, &[("vary", "accept-encoding")]);
        assert_eq!(file.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(file.header("set-cookie"), None);
    }

    #[test]
    fn browsers_keep_their_part_of_cache_control() {
        for (said, left) in [
            ("", "private"),
            ("s-maxage=600, public", "private"),
            ("max-age=600, S-MaxAge=9, must-revalidate", "private, max-age=600, must-revalidate"),
            ("private, no-store", "private, no-store"),
            ("private=\"x\", max-age=9", "private, no-store"),
            ("max-age=9 public", "private, no-store"),
        ] {
            assert_eq!(for_browser(said), left, "{said}");
        }
    }

    #[test]
    fn location_on_the_origins_host_becomes_one_on_the_site() {
        assert_eq!(answer(PassReason::Route).header("location"), Some("/login?next=/"));
        let origin = HttpOrigin::parse("https://origin.example").unwrap();
        for (location, public) in [
            ("https://origin.example", "/"),
            ("https://origin.example?a", "/?a"),
            ("http://origin.example/login", "/login"),
            ("https://origin.example:443/login", "/login"),
            ("//origin.example/login", "/login"),
            ("https://origin.example//evil.example/", "/.//evil.example/"),
            ("https://origin.example.evil/", "https://origin.example.evil/"),
            ("https://other.example/x", "https://other.example/x"),
            ("/x", "/x"),
        ] {
            assert_eq!(public_location(location, &origin), public);
        }
    }
}

//! What of a visitor's request reaches the origin.

use std::borrow::Cow;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::{PassReason, is_signature};
use crate::http::Request;
use crate::page::error::PageError;
use crate::preview::cookie;

/// Never passed on, in lower case: what a proxy in front says of the visitor, which a visitor could
/// forge; what makes some servers answer for another path or method; and what frameworks use among
/// themselves. The distribution's viewer functions have the same list.
const NOT_PASSED: [&str; 13] = [
    "cf-connecting-ip",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "proxy",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
];

const NOT_PASSED_PREFIXES: [&str; 10] = [
    "proxy-",
    "x-amz-",
    "x-amzn-",
    "x-everfresh-",
    "x-forwarded",
    "x-invoke-",
    "x-middleware-",
    "x-original-",
    "x-prerender-",
    "x-rewrite-",
];

/// The one header of a framework's own that browsers send.
const PASSED: &str = "x-middleware-prefetch";

/// Sent by Everfresh itself: the cookies without ours, and its own values of the others. CloudFront
/// lets no function change them.
const REWRITTEN: [&str; 3] = ["cookie", "host", "via"];

/// Ours mean nothing to the origin: its 304 would revive a copy that was withdrawn.
const CONDITIONS: [&str; 7] =
    ["if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range", "cache-control"];

/// Path and query as received. The path has a canonical form, so every server reads it alike.
pub(super) fn target(target: &str) -> Result<Cow<'_, str>, PageError> {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'#');
    if target.bytes().all(allowed) {
        return Ok(Cow::Borrowed(target));
    }
    // Browsers encode these; what is left comes from other programs, and from paths that the
    // normaliser accepts as UTF-8.
    if target.chars().any(char::is_control) || target.contains(['\\', '#', ' ']) {
        return Err(PageError::BadPath);
    }
    let mut encoded = String::with_capacity(target.len() + 16);
    for byte in target.bytes() {
        match allowed(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(Cow::Owned(encoded))
}

/// The headers that are passed on, without those that the tenant's configuration `adds`. A value
/// that is not valid in a header is left out.
pub(super) fn headers(request: &Request, reason: PassReason, adds: impl Fn(&str) -> bool) -> HeaderMap {
    let mut passed = HeaderMap::new();
    for (name, value) in &request.headers {
        if !is_passed(name, reason) || adds(name) || (name == "authorization" && is_signature(value)) {
            continue;
        }
        let name = HeaderName::try_from(name.as_str());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            passed.append(name, value);
        }
    }
    if reason != PassReason::Asset {
        let ours = |cookie: &&str| cookie.split('=').next() == Some(cookie::COOKIE);
        let cookies: Vec<&str> =
            request.cookies.iter().map(|cookie| cookie.trim()).filter(|cookie| !ours(cookie)).collect();
        if let (false, Ok(value)) = (cookies.is_empty(), HeaderValue::try_from(cookies.join("; "))) {
            passed.insert(http::header::COOKIE, value);
        }
    }
    passed
}

fn is_passed(name: &str, reason: PassReason) -> bool {
    // Some servers read both spellings as one header.
    let name = &*name.replace('_', "-");
    let listed = NOT_PASSED.contains(&name) || NOT_PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let refused = (listed && name != PASSED) || REWRITTEN.contains(&name);
    let personal = reason == PassReason::Asset && name == "authorization";
    // A condition of a write is the visitor's own.
    let safe = !matches!(reason, PassReason::Method);
    let condition = reason.is_page() && safe && CONDITIONS.contains(&name);
    !refused && !personal && !condition
}

#[cfg(test)]
mod tests {
    use super::*;
    use everfresh_core::domain::bypass::BypassReason;

    fn headers(request: &Request, reason: PassReason) -> HeaderMap {
        super::headers(request, reason, |name| name == "x-token")
    }

    fn request(headers: &[(&str, &str)]) -> Request {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let cookies = vec!["session=1".to_owned(), " everfresh-preview=x.y".to_owned(), "lang=de".to_owned()];
        Request { headers, cookies, ..Request::default() }
    }

    #[test]
    fn headers_that_a_visitor_could_forge_are_not_passed() {
        let forged: Vec<(&str, &str)> = NOT_PASSED.iter().chain(&REWRITTEN).map(|name| (*name, "x")).collect();
        for reason in [PassReason::Route, PassReason::Asset, PassReason::Method] {
            let passed = headers(&request(&forged), reason);
            assert!(passed.keys().all(|name| name == "cookie"), "{passed:?}");
        }
        let prefixed = NOT_PASSED_PREFIXES.map(|prefix| format!("{prefix}x"));
        for name in prefixed.iter().map(String::as_str).chain(["x-forwarded", "x-invoke-path", "x-original-host"]) {
            assert!(headers(&request(&[(name, "x")]), PassReason::Route).get(name).is_none(), "{name}");
        }
        let underscores = request(&[("x_forwarded_for", "x"), ("x_everfresh_preview", "1")]);
        assert_eq!(headers(&underscores, PassReason::Route).len(), 1, "the cookie alone");
        assert_eq!(headers(&request(&[(PASSED, "1")]), PassReason::Route)[PASSED], "1");
    }

    #[test]
    fn viewer_functions_remove_the_same_headers() {
        let prefixes = NOT_PASSED_PREFIXES.map(|prefix| format!("{prefix}.*"));
        let mut all: Vec<&str> = NOT_PASSED.into_iter().chain(prefixes.iter().map(String::as_str)).collect();
        all.sort_unstable();
        let line = format!("const NEVER_FORWARDED = /^(?!{PASSED}$)({})$/;\n", all.join("|"));
        for code in [include_str!("../../../../infra/viewer-page.js"), include_str!("../../../../infra/viewer-app.js")]
        {
            assert!(code.contains(&line), "{line}");
        }
    }

    #[test]
    fn cookies_are_passed_without_ours_and_never_for_an_asset() {
        assert_eq!(headers(&request(&[]), PassReason::Route)["cookie"], "session=1; lang=de");
        assert!(headers(&request(&[("authorization", "x")]), PassReason::Asset).is_empty());
        assert_eq!(headers(&request(&[("authorization", "x")]), PassReason::Method)["authorization"], "x");
    }

    #[test]
    fn signature_of_the_distribution_is_no_visitors_authorization() {
        let signed = request(&[("authorization", "AWS4-HMAC-SHA256 Credential=x, Signature=y")]);
        assert!(headers(&signed, PassReason::Route).get("authorization").is_none());
        let signed = Request { method: "GET".to_owned(), ..signed };
        assert_eq!(PassReason::of_page_request(&signed, &[], false), None);
        let basic = Request { method: "GET".to_owned(), ..request(&[("authorization", "Basic eA==")]) };
        assert_eq!(PassReason::of_page_request(&basic, &[], false), Some(PassReason::Authorization));
    }

    #[test]
    fn conditions_are_passed_only_where_the_origin_issued_the_validators() {
        let conditions: Vec<(&str, &str)> = CONDITIONS.iter().map(|name| (*name, "x")).collect();
        for reason in [PassReason::Bypass(BypassReason::Private), PassReason::Header, PassReason::NotReady("waiting")] {
            assert_eq!(headers(&request(&conditions), reason).len(), 1, "the cookie alone");
        }
        for reason in [PassReason::Route, PassReason::Method] {
            assert_eq!(headers(&request(&conditions), reason).len(), 1 + CONDITIONS.len());
        }
    }

    #[test]
    fn visitor_cannot_send_a_header_that_the_tenant_adds() {
        assert!(headers(&request(&[("x-token", "guess")]), PassReason::Route).get("x-token").is_none());
    }

    #[test]
    fn target_is_one_that_fits_a_request_line() {
        assert_eq!(target("/a?b=c&d=%20").unwrap(), "/a?b=c&d=%20");
        assert_eq!(target("/caf\u{e9}?q=\"x\"").unwrap(), "/caf%C3%A9?q=%22x%22");
        for bad in ["/a b", "/a\r\nx: y", "/a#b", "/a\\b"] {
            assert!(target(bad).is_err(), "{bad:?}");
        }
    }
}

use super::*;
use everfresh_core::domain::freshness::Why;

const FRESH: Freshness = Freshness::Fresh { until_ms: 1_043_000 };
const NOW_MS: u64 = 1_000_000;
const MODIFIED: &str = "Thu, 01 Jan 1970 00:15:00 GMT";

fn meta() -> Meta {
    Meta {
        s3_key: "acme/h/v".into(),
        generated_at: 950,
        modified_at: Some(900),
        revalidate_seconds: 93,
        etag: Some("\"abc\"".into()),
        status: Some(200),
        headers: pairs(&[("content-type", "text/html"), ("x-frame-options", "DENY")]),
        ..Meta::default()
    }
}

fn body() -> StoredBody {
    StoredBody { bytes: "<p>hello".into(), status: None, content_type: None, content_security_policy: None }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn response(method: Method, headers: &[(&str, &str)], meta: &Meta, body: &StoredBody) -> Reply {
    let request = Request { headers: pairs(headers), ..Request::default() };
    let policy = Policy { deploy: 1, max_stale_seconds: Some(3600), epsilon_ms: 2_000 };
    let cache_status = CacheStatus::Hit { freshness: FRESH, ttl: 43, outage: None };
    let tags = Some(("cache-tag", "acme:products,acme:product-42"));
    let page = PageResponse { meta, body, freshness: FRESH, stale_ms: 0, policy, cache_status, stands_in: false, tags };
    page.reply(&request, method, NOW_MS)
}

#[test]
fn page_has_all_headers_and_its_body() {
    let reply = response(Method::Get, &[], &meta(), &body());
    assert_eq!((reply.status, reply.body.as_ref()), (200, b"<p>hello".as_slice()));
    let expected = pairs(&[
        ("content-type", "text/html"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "public, max-age=0, s-maxage=43, stale-while-revalidate=60, stale-if-error=3600"),
        ("cdn-cache-control", "max-age=43, stale-while-revalidate=60, stale-if-error=3600"),
        ("cache-status", "everfresh; hit; ttl=43"),
        ("etag", "\"abc\""),
        ("last-modified", MODIFIED),
        ("cache-tag", "acme:products,acme:product-42"),
    ]);
    assert_eq!(reply.headers, expected);
}

#[test]
fn origin_decides_how_long_caches_serve_without_it() {
    for (if_error_s, shown) in [(7_200, "stale-if-error=7200"), (60, "stale-if-error=3600")] {
        let meta = Meta { stale_if_error_seconds: Some(if_error_s), ..meta() };
        let reply = response(Method::Get, &[], &meta, &body());
        for name in ["cache-control", "cdn-cache-control"] {
            assert!(reply.header(name).unwrap().ends_with(shown), "{:?}", reply.headers);
        }
    }
}

#[test]
fn head_has_the_same_headers_without_a_body() {
    let (get, head) = (response(Method::Get, &[], &meta(), &body()), response(Method::Head, &[], &meta(), &body()));
    assert_eq!(head.body.len(), 0);
    let length = ("content-length".to_owned(), "8".to_owned());
    assert_eq!(head.headers, [get.headers, vec![length]].concat());
}

#[test]
fn matching_validator_gets_304_with_every_header_and_no_body() {
    let full = response(Method::Get, &[], &meta(), &body());
    for headers in [
        [("if-none-match", "\"abc\"")],
        [("if-none-match", "W/\"x\", W/\"abc\"")],
        [("if-none-match", "*")],
        [("if-modified-since", MODIFIED)],
    ] {
        for method in [Method::Get, Method::Head] {
            let reply = response(method, &headers, &meta(), &body());
            assert_eq!((reply.status, reply.body.len()), (304, 0), "{headers:?}");
            assert_eq!(reply.headers, full.headers);
        }
    }
}

#[test]
fn other_validator_gets_the_whole_page() {
    for headers in [
        vec![("if-none-match", "\"x\"")],
        vec![("if-none-match", "\"x\""), ("if-modified-since", MODIFIED)],
        vec![("if-modified-since", "Thu, 01 Jan 1970 00:14:59 GMT")],
        vec![("range", "bytes=0-3")],
        vec![("if-match", "\"x\"")],
    ] {
        let reply = response(Method::Get, &headers, &meta(), &body());
        assert_eq!((reply.status, reply.body.len()), (200, 8), "{headers:?}");
        assert_eq!(reply.header("content-range"), None);
    }
}

#[test]
fn not_found_and_redirects_are_never_304() {
    for (status, headers) in [(404, vec![]), (410, vec![]), (301, vec![("location", "/new")]), (308, vec![])] {
        let meta = Meta { status: Some(status), headers: pairs(&headers), ..meta() };
        let reply = response(Method::Get, &[("if-none-match", "*")], &meta, &body());
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("location"), headers.first().map(|(_, value)| *value));
        assert_eq!((reply.header("etag"), reply.header("last-modified")), (None, None), "{status}");
    }
}

#[test]
fn foreign_row_takes_headers_from_its_object() {
    let meta = Meta { status: None, headers: vec![], modified_at: None, etag: None, ..meta() };
    let body = StoredBody {
        status: Some(404),
        content_type: Some("text/plain".into()),
        content_security_policy: Some("default-src 'self'".into()),
        ..body()
    };
    let reply = response(Method::Get, &[], &meta, &body);
    assert_eq!(reply.status, 404);
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(reply.header("content-security-policy"), Some("default-src 'self'"));
    assert_eq!(
        (reply.header("etag"), reply.header("last-modified")),
        (None, None),
        "no validator: the page may come back"
    );
    let reply = response(Method::Get, &[], &meta, &StoredBody { status: None, ..body });
    assert_eq!(reply.header("last-modified"), Some("Thu, 01 Jan 1970 00:15:50 GMT"));
    assert_eq!(reply.header("etag"), Some(etag(Digest::of(b"<p>hello")).as_str()));
}

#[test]
fn object_without_content_type_is_html() {
    let meta = Meta { status: None, headers: vec![], ..meta() };
    let reply = response(Method::Get, &[], &meta, &body());
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/html; charset=utf-8")));
}

#[test]
fn forbidden_headers_are_not_replayed_from_foreign_rows() {
    let headers = pairs(&[
        ("set-cookie", "session=1"),
        ("content-type", "text/html\r\nset-cookie: x=1"),
        ("x-powered-by", "x"),
        ("link", "</a.css>; rel=preload"),
    ]);
    let reply = response(Method::Get, &[], &Meta { headers, ..meta() }, &body());
    assert_eq!(reply.header("set-cookie"), None);
    assert_eq!(reply.header("x-powered-by"), None);
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(reply.header("link"), Some("</a.css>; rel=preload"));
    let body = StoredBody { content_security_policy: Some("x\ny".into()), ..body() };
    let reply = response(Method::Get, &[], &Meta { headers: vec![], ..meta() }, &body);
    assert_eq!(reply.header("content-security-policy"), None);
}

#[test]
fn status_without_body_becomes_200() {
    for status in [0, 100, 199, 204, 205, 304, 600, 999] {
        let reply = response(Method::Get, &[], &Meta { status: Some(status), ..meta() }, &body());
        assert_eq!(reply.status, 200, "{status}");
    }
}

#[test]
fn foreign_etags_become_valid_http_etags() {
    let digest = etag(Digest::of(b"<p>hello"));
    for (written, sent) in [
        ("\"v1\"", "\"v1\""),
        ("W/\"v1\"", "W/\"v1\""),
        ("v1", "\"v1\""),
        ("", digest.as_str()),
        ("\"v\"1\"", digest.as_str()),
        ("v\r\n1", digest.as_str()),
        ("é", digest.as_str()),
        ("\"", digest.as_str()),
    ] {
        let meta = Meta { etag: Some(written.into()), ..meta() };
        assert_eq!(response(Method::Get, &[], &meta, &body()).header("etag"), Some(sent), "{written:?}");
    }
}

#[test]
fn stale_page_is_cached_for_two_seconds() {
    let request = Request::default();
    let policy = Policy { deploy: 1, max_stale_seconds: None, epsilon_ms: 2_000 };
    let freshness = Freshness::Stale { why: Why::Age };
    let cache_status = CacheStatus::Hit { freshness, ttl: -7, outage: None };
    let (meta, body) = (meta(), body());
    let page = PageResponse {
        meta: &meta,
        body: &body,
        freshness,
        stale_ms: 7_000,
        policy,
        cache_status,
        stands_in: false,
        tags: None,
    };
    let reply = page.reply(&request, Method::Get, NOW_MS);
    assert_eq!((reply.status, reply.body.len()), (200, 8));
    assert!(reply.header("cache-control").unwrap().contains("s-maxage=2,"));
    assert_eq!(reply.header("age"), None);
}

#[test]
fn stored_204_is_served_without_a_body() {
    let meta = Meta { status: Some(204), ..meta() };
    let empty = StoredBody { bytes: "".into(), ..body() };
    for method in [Method::Get, Method::Head] {
        let reply = response(method, &[], &meta, &empty);
        assert_eq!((reply.status, reply.body.len(), reply.header("content-length")), (204, 0, None));
    }
    assert_eq!(response(Method::Get, &[], &meta, &body()).status, 200);
}

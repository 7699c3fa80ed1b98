use super::*;
use bytes::Bytes;
use proptest::prelude::*;

const HTML: &str = "<html>hello</html>";

fn rendered(status: u16, headers: &[(&str, &str)], body: &str) -> Rendered {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let headers = headers.iter().map(own).collect();
    let body = Bytes::copy_from_slice(body.as_bytes());
    Rendered { status, headers, body, declared_bytes: None }
}

fn check_with(rules: GateRules, previous_bytes: Option<u64>, response: Rendered) -> Result<Passed, GateError> {
    let page = CanonicalPath::stored("/products/42?color=red").unwrap();
    let hosts = ["www.acme.example".to_owned()];
    let gate = Gate { page: &page, rules: &rules, hosts: &hosts, max_bytes: 100, previous_bytes };
    gate.check(response)
}

fn check(response: Rendered) -> Result<Passed, GateError> {
    check_with(GateRules::default(), None, response)
}

#[test]
fn good_page_passes_with_the_life_of_its_route() {
    let passed = check(rendered(200, &[("content-type", "text/html")], HTML)).unwrap();
    assert_eq!(passed.life, Life::Route);
    assert_eq!(passed.life.seconds(60), 60);
    assert_eq!(passed.artifact.status(), 200);
    assert_eq!(passed.artifact.body(), HTML.as_bytes());
}

#[test]
fn not_found_and_gone_pass_with_a_short_life() {
    for status in [404, 410] {
        for body in ["", HTML] {
            let passed = check(rendered(status, &[], body)).unwrap();
            assert_eq!(passed.life, Life::Short);
        }
    }
    assert_eq!(Life::Short.seconds(3600), SHORT_LIFE_SECONDS);
    assert_eq!(Life::Short.seconds(5), 5);
}

#[test]
fn every_other_status_keeps_the_last_good_page() {
    let published = [200, 301, 308, 404, 410];
    for status in (100..600).filter(|status| !published.contains(status)) {
        let refused = check(rendered(status, &[("location", "/x")], HTML));
        assert_eq!(refused, Err(GateError::Status { status }));
        assert_eq!(refused.unwrap_err().class(), ErrorClass::OriginStatus);
    }
}

#[test]
fn responses_meant_for_one_reader_are_refused() {
    use GateError::*;
    let private = NotShared { directive: "private" };
    let no_store = NotShared { directive: "no-store" };
    let cases = [
        (("Set-Cookie", "a=b"), SetCookie),
        (("set-cookie", ""), SetCookie),
        (("Cache-Control", "private"), private.clone()),
        (("Cache-Control", "max-age=60, PRIVATE"), private.clone()),
        (("Cache-Control", "private=\"set-cookie, x\""), private),
        (("Cache-Control", "public,no-store"), no_store.clone()),
        (("CDN-Cache-Control", "no-store"), no_store.clone()),
        (("Surrogate-Control", "no-store"), no_store),
        (("Vary", "*"), Varies { header: "*" }),
        (("Vary", "Accept-Encoding, Cookie"), Varies { header: "cookie" }),
        (("Vary", "authorization"), Varies { header: "authorization" }),
        (("Content-Encoding", "gzip"), Encoded),
    ];
    for status in [200, 404] {
        for (header, expected) in &cases {
            let refused = check(rendered(status, &[*header], HTML));
            assert_eq!(refused.as_ref(), Err(expected), "{header:?}");
        }
    }
}

#[test]
fn cache_control_that_cannot_be_parsed_counts_as_private() {
    for value in [
        "private; max-age=0",
        "max-age=60; private",
        "no-store;max-age=60",
        "max-age=60 no-store",
        "\"private\"",
        "max-age=60, \"private",
        "max-age =60",
        "max-age=\u{fffd}",
    ] {
        let refused = check(rendered(200, &[("Cache-Control", value)], HTML));
        assert_eq!(refused, Err(GateError::BadCacheControl { header: "cache-control" }), "{value}");
        let second = check(rendered(200, &[("cache-control", "public"), ("Cache-Control", value)], HTML));
        assert_eq!(second, refused, "{value}");
    }
    for (name, value) in
        [("CDN-Cache-Control", "max-age=60; private"), ("Surrogate-Control", "no-store;cdn, max-age=60")]
    {
        let refused = check(rendered(200, &[(name, value)], HTML)).unwrap_err();
        assert!(matches!(refused, GateError::NotShared { .. }), "{value}: {refused}");
    }
}

#[test]
fn harmless_headers_pass() {
    for header in [
        ("Cache-Control", ""),
        ("Cache-Control", " , max-age=60,, public,"),
        ("Cache-Control", "MAX-AGE=60, S-MaxAge=\"60\""),
        ("Cache-Control", "no-cache=\"set-cookie, private\", x-unknown=1, immutable"),
        ("CDN-Cache-Control", "max-age=60;x=1"),
        ("Surrogate-Control", "max-age=3600+600, content=\"ESI/1.0\";cdn"),
        ("Cache-Control", "public, max-age=60"),
        ("Cache-Control", "no-cache"),
        ("Cache-Control", "x-private-ish"),
        ("Vary", "Accept-Encoding"),
        ("Content-Encoding", "identity"),
    ] {
        assert!(check(rendered(200, &[header], HTML)).is_ok(), "{header:?}");
    }
}

#[test]
fn location_without_redirect_is_not_replayed() {
    let passed = check(rendered(404, &[("Location", "https://evil.example/")], HTML)).unwrap();
    assert_eq!(passed.artifact.headers(), []);
}

#[test]
fn headers_that_cannot_be_replayed_are_refused() {
    let refused = check(rendered(200, &[("content-type", "a\r\nb")], HTML));
    assert!(matches!(refused, Err(GateError::Headers(HeaderError::BadValue { .. }))));
}

#[test]
fn wrong_content_length_is_refused() {
    for declared in [17, 19] {
        let mut answer = rendered(200, &[], HTML);
        answer.declared_bytes = Some(declared);
        assert_eq!(check(answer), Err(GateError::Truncated { declared, actual: 18 }));
    }
    let mut honest = rendered(200, &[], HTML);
    honest.declared_bytes = Some(18);
    assert!(check(honest).is_ok());
}

#[test]
fn empty_and_oversize_bodies_are_refused() {
    assert_eq!(check(rendered(200, &[], "")), Err(GateError::Empty));
    assert!(check(rendered(200, &[], &"x".repeat(100))).is_ok());
    let too_large = GateError::TooLarge { bytes: 101, allowed: 100 };
    assert_eq!(check(rendered(200, &[], &"x".repeat(101))), Err(too_large.clone()));
    assert_eq!(check(rendered(404, &[], &"x".repeat(101))), Err(too_large));
}

#[test]
fn route_rules_hold_for_pages_and_not_for_missing_ones() {
    let rules = || GateRules { min_bytes: 10, max_shrink: Some(0.5), must_contain: Some("</html>".into()) };
    let judge = |body, previous| check_with(rules(), previous, rendered(200, &[], body));
    assert!(judge(HTML, Some(36)).is_ok());
    assert!(judge(HTML, None).is_ok());
    assert!(judge("x </html>!", None).is_ok());
    let shrunk = GateError::Shrunk { bytes: 18, previous_bytes: 37 };
    assert_eq!(judge(HTML, Some(37)), Err(shrunk));
    assert_eq!(judge("short", None), Err(GateError::TooSmall { bytes: 5, min_bytes: 10 }));
    assert_eq!(judge("<html>cut off in the mid", None), Err(GateError::MarkerMissing));
    assert!(check_with(rules(), Some(90), rendered(404, &[], "no")).is_ok());
}

#[test]
fn permanent_redirect_within_the_site_passes_with_a_short_life() {
    for location in [
        "/products/43",
        "/",
        "/a?b=c#top",
        "https://www.acme.example/products/43",
        "https://WWW.acme.example",
        "http://www.acme.example/x",
    ] {
        for status in [301, 308] {
            let passed = check(rendered(status, &[("Location", location)], "")).unwrap();
            assert_eq!(passed.life, Life::Short, "{location}");
            assert_eq!(passed.artifact.headers(), [("location".to_owned(), location.to_owned())]);
        }
    }
}

#[test]
fn redirect_out_of_the_site_is_refused() {
    for location in [
        "",
        "products",
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "https://www.acme.example.evil.example/",
        "https://www.acme.example@evil.example/",
        "https://www.acme.example:8443/",
        "https://www.acme.example\\@evil.example/",
        "javascript:alert(1)",
        "/a/../b",
    ] {
        let refused = check(rendered(301, &[("location", location)], ""));
        assert_eq!(refused, Err(GateError::BadRedirect), "{location}");
    }
    assert_eq!(check(rendered(301, &[], "")), Err(GateError::BadRedirect));
}

#[test]
fn redirect_to_the_page_itself_is_refused() {
    for location in [
        "/products/42",
        "/products/42?color=red",
        "/products/42?color=red&session=1",
        "/%70roducts/42#x",
        "https://www.acme.example/products/42?color=red",
    ] {
        let refused = check(rendered(308, &[("location", location)], ""));
        assert_eq!(refused, Err(GateError::RedirectLoop), "{location}");
    }
}

proptest! {
    #[test]
    fn nothing_private_ever_passes(
        status in 100..600u16,
        body in "[a-z]{0,20}",
        place in 0..3usize,
        private in prop::sample::select(vec![
            ("Set-Cookie", "s=1"), ("Cache-Control", "private"), ("cache-control", "No-Store"),
            ("Vary", "*"), ("VARY", "cookie"),
        ]),
    ) {
        let mut headers = vec![("content-type", "text/html"), ("link", "x")];
        headers.insert(place, private);
        prop_assert!(check(rendered(status, &headers, &body)).is_err());
    }

    #[test]
    fn passed_response_has_only_listed_headers(
        names in prop::collection::vec("[A-Za-z-]{1,20}|content-type|x-robots-tag|link", 0..6),
    ) {
        let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
        if let Ok(passed) = check(rendered(200, &headers, HTML)) {
            for (name, _) in passed.artifact.headers() {
                prop_assert!(crate::domain::headers::STORED.contains(&name.as_str()));
            }
        }
    }
}

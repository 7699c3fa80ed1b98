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

fn gate<'a>(page: &'a CanonicalPath, rules: &'a GateRules, hosts: &'a [String]) -> Gate<'a> {
    Gate {
        page,
        rules,
        origin_rules: OriginRules::default(),
        pass_when: &[],
        hosts,
        site: &hosts[0],
        max_bytes: 100,
        has_page: true,
        previous_bytes: None,
    }
}

fn judge_with(rules: GateRules, has_page: bool, previous_bytes: Option<u64>, response: Rendered) -> Verdict {
    let page = CanonicalPath::stored("/products/42?color=red").unwrap();
    let (hosts, pass_when) = (["www.acme.example".to_owned()], ["x-shop".to_owned()]);
    let gate = Gate { pass_when: &pass_when, has_page, previous_bytes, ..gate(&page, &rules, &hosts) };
    gate.judge(response)
}

fn judge(response: Rendered) -> Verdict {
    judge_with(GateRules::default(), true, None, response)
}

/// The stored page, or the verdict if it is not stored.
fn check(response: Rendered) -> Result<Storable, Box<Verdict>> {
    match judge(response) {
        Verdict::Store(storable) => Ok(storable),
        other @ (Verdict::Bypass(_) | Verdict::Failure(_)) => Err(Box::new(other)),
    }
}

fn bypass<T>(reason: BypassReason) -> Result<T, Box<Verdict>> {
    Err(Box::new(Verdict::Bypass(reason)))
}

fn failure<T>(error: GateError) -> Result<T, Box<Verdict>> {
    Err(Box::new(Verdict::Failure(error)))
}

#[test]
fn good_page_passes_with_the_life_of_its_route() {
    let storable = check(rendered(200, &[("content-type", "text/html")], HTML)).unwrap();
    assert_eq!(storable.life, Life::Route);
    assert_eq!(storable.life.seconds(60), 60);
    assert_eq!(storable.artifact.status(), 200);
    assert_eq!(storable.artifact.body(), HTML.as_bytes());
}

#[test]
fn not_found_and_gone_pass_with_a_short_life() {
    for status in [404, 410] {
        for body in ["", HTML] {
            let storable = check(rendered(status, &[], body)).unwrap();
            assert_eq!(storable.life, Life::Short);
        }
    }
    assert_eq!(Life::Short.seconds(3600), SHORT_LIFE_SECONDS);
    assert_eq!(Life::Short.seconds(5), 5);
}

#[test]
fn every_status_is_stored_or_a_bypass_or_a_failure() {
    use BypassReason::*;
    for status in 100..600 {
        for has_page in [true, false] {
            let response = rendered(status, &[("location", "/x")], HTML);
            let verdict = judge_with(GateRules::default(), has_page, None, response);
            let expected = match status {
                200 | 301 | 308 | 404 | 410 => None,
                201..=299 => Some(NoContent),
                300..=303 | 305..=399 => Some(Redirect),
                401 => Some(Unauthorized),
                403 => Some(Forbidden),
                451 => Some(LegalReasons),
                408 | 421 | 425 | 429 => None,
                400..=499 if !has_page => Some(ClientError),
                _ => None,
            };
            let stored = matches!(status, 200 | 301 | 308 | 404 | 410);
            match (stored, expected) {
                (true, _) => assert!(matches!(verdict, Verdict::Store(_)), "{status} {verdict:?}"),
                (false, Some(reason)) => assert_eq!(verdict, Verdict::Bypass(reason), "{status}"),
                (false, None) => {
                    let failure = GateError::Status { status };
                    assert_eq!(failure.class(), ErrorClass::OriginStatus);
                    assert_eq!(verdict, Verdict::Failure(failure), "{status}");
                }
            }
        }
    }
}

#[test]
fn temporary_redirect_is_stored_only_with_a_lifetime_of_its_own() {
    for status in [302, 303, 307] {
        assert_eq!(check(rendered(status, &[("location", "/login")], "")), bypass(BypassReason::Redirect));
        let public = [("location", "/de/"), ("cache-control", "s-maxage=60")];
        let storable = check(rendered(status, &public, "")).unwrap();
        assert_eq!((storable.life, storable.sharing.fresh_s), (Life::Short, Some(60)));
        let away = [("location", "https://evil.example/"), ("cache-control", "s-maxage=60")];
        assert_eq!(check(rendered(status, &away, "")), bypass(BypassReason::Redirect));
    }
}

#[test]
fn unusual_status_is_stored_only_with_a_lifetime_of_its_own() {
    use BypassReason::*;
    for (status, reason) in
        [(203, NoContent), (204, NoContent), (299, NoContent), (400, ClientError), (499, ClientError)]
    {
        let content = if status == 204 { "" } else { HTML };
        let judged = |headers: &[(&str, &str)], has_page| {
            judge_with(GateRules::default(), has_page, None, rendered(status, headers, content))
        };
        assert_eq!(judged(&[], false), Verdict::Bypass(reason), "{status}");
        let one_readers = [("cache-control", "max-age=60"), ("set-cookie", "a=b")];
        assert_eq!(judged(&one_readers, false), Verdict::Bypass(reason), "{status}");
        let Verdict::Store(stored) = judged(&[("cache-control", "max-age=60")], false) else { panic!("{status}") };
        assert_eq!((stored.artifact.status(), stored.life), (status, Life::Short));
        let replaces_page = matches!(judged(&[("cache-control", "max-age=60")], true), Verdict::Store(_));
        assert_eq!(replaces_page, !is_client_error(status), "{status}");
    }
    let empty = rendered(202, &[("cache-control", "max-age=60")], "");
    assert_eq!(judge_with(GateRules::default(), true, None, empty), Verdict::Bypass(NoContent));
    for status in [205, 206, 226] {
        assert_eq!(check(rendered(status, &[("cache-control", "max-age=60")], HTML)), bypass(NoContent));
    }
}

#[test]
fn redirect_without_target_is_stored_with_a_lifetime_of_its_own() {
    for status in [301, 302, 303, 307, 308] {
        assert_eq!(check(rendered(status, &[], "")), bypass(BypassReason::Redirect));
        let storable = check(rendered(status, &[("cache-control", "max-age=60")], "")).unwrap();
        assert_eq!((storable.artifact.status(), storable.life), (status, Life::Short));
    }
}

#[test]
fn responses_meant_for_one_reader_are_a_bypass() {
    use BypassReason::*;
    let cases = [
        (("Set-Cookie", "a=b"), SetCookie),
        (("set-cookie", ""), SetCookie),
        (("Cache-Control", "private"), Private),
        (("Cache-Control", "max-age=60, PRIVATE"), Private),
        (("Cache-Control", "private=\"set-cookie, x\""), Private),
        (("Cache-Control", "public,no-store"), NoStore),
        (("CDN-Cache-Control", "no-store"), NoStore),
        (("Surrogate-Control", "no-store"), NoStore),
        (("Vary", "*"), Vary),
        (("Vary", "Accept-Encoding, Cookie"), Vary),
        (("Vary", "authorization"), Vary),
        (("Content-Encoding", "gzip"), Encoded),
    ];
    for status in [200, 404] {
        for (header, reason) in &cases {
            assert_eq!(check(rendered(status, &[*header], HTML)), bypass(*reason), "{header:?}");
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
        assert_eq!(refused, bypass(BypassReason::Private), "{value}");
        let second = check(rendered(200, &[("cache-control", "public"), ("Cache-Control", value)], HTML));
        assert_eq!(second, refused, "{value}");
    }
    for (name, value) in
        [("CDN-Cache-Control", "max-age=60; private"), ("Surrogate-Control", "no-store;cdn, max-age=60")]
    {
        let refused = check(rendered(200, &[(name, value)], HTML)).unwrap_err();
        assert!(matches!(*refused, Verdict::Bypass(_)), "{value}");
    }
}

#[test]
fn vary_on_headers_that_pass_is_keyed_by_their_absence() {
    for header in ["RSC, Next-Router-State-Tree, Next-Router-Prefetch", "X-Shop", "Origin, accept-encoding"] {
        assert!(check(rendered(200, &[("vary", header)], HTML)).is_ok(), "{header}");
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
        ("Cache-Control", "no-cache, s-maxage=60"),
        ("Cache-Control", "x-private-ish"),
        ("Vary", "Accept-Encoding"),
        ("Content-Encoding", "identity"),
    ] {
        assert!(check(rendered(200, &[header], HTML)).is_ok(), "{header:?}");
    }
}

#[test]
fn location_without_redirect_is_not_replayed() {
    let storable = check(rendered(404, &[("Location", "https://evil.example/")], HTML)).unwrap();
    assert_eq!(storable.artifact.headers(), []);
}

#[test]
fn headers_that_cannot_be_replayed_are_refused() {
    let refused = check(rendered(200, &[("content-type", "a\r\nb")], HTML));
    let refused = refused.unwrap_err();
    assert!(matches!(*refused, Verdict::Failure(GateError::Headers(HeaderError::BadValue { .. }))));
}

#[test]
fn wrong_content_length_is_refused() {
    for declared in [17, 19] {
        let mut answer = rendered(200, &[], HTML);
        answer.declared_bytes = Some(declared);
        assert_eq!(check(answer), failure(GateError::Truncated { declared, actual: 18 }));
    }
    let mut honest = rendered(200, &[], HTML);
    honest.declared_bytes = Some(18);
    assert!(check(honest).is_ok());
}

#[test]
fn empty_body_is_a_failure_and_an_oversize_one_a_bypass() {
    assert_eq!(check(rendered(200, &[], "")), failure(GateError::Empty));
    assert!(check(rendered(200, &[], &"x".repeat(100))).is_ok());
    for status in [200, 404] {
        assert_eq!(check(rendered(status, &[], &"x".repeat(101))), bypass(BypassReason::TooLarge));
    }
}

#[test]
fn route_rules_hold_for_pages_and_not_for_missing_ones() {
    let rules = || GateRules { min_bytes: 10, max_shrink: Some(0.5), must_contain: Some("</html>".into()) };
    let judge = |body, previous| judge_with(rules(), true, previous, rendered(200, &[], body));
    let passes = |verdict| matches!(verdict, Verdict::Store(_));
    assert!(passes(judge(HTML, Some(36))));
    assert!(passes(judge(HTML, None)));
    assert!(passes(judge("x </html>!", None)));
    let fails = |body, previous, error| assert_eq!(judge(body, previous), Verdict::Failure(error));
    fails(HTML, Some(37), GateError::Shrunk { bytes: 18, previous_bytes: 37 });
    fails("short", None, GateError::TooSmall { bytes: 5, min_bytes: 10 });
    fails("<html>cut off in the mid", None, GateError::MarkerMissing);
    assert!(passes(judge_with(rules(), true, Some(90), rendered(404, &[], "no"))));
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
            let storable = check(rendered(status, &[("Location", location)], "")).unwrap();
            assert_eq!(storable.life, Life::Short, "{location}");
            assert_eq!(storable.artifact.headers(), [("location".to_owned(), location.to_owned())]);
        }
    }
}

#[test]
fn redirect_out_of_the_site_is_a_bypass() {
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
        assert_eq!(refused, bypass(BypassReason::Redirect), "{location}");
    }
    assert_eq!(check(rendered(301, &[], "")), bypass(BypassReason::Redirect));
}

#[test]
fn redirect_to_the_page_itself_is_a_bypass() {
    for location in [
        "/products/42",
        "/products/42?color=red",
        "/products/42?color=red&session=1",
        "/%70roducts/42#x",
        "https://www.acme.example/products/42?color=red",
    ] {
        let refused = check(rendered(308, &[("location", location)], ""));
        assert_eq!(refused, bypass(BypassReason::Redirect), "{location}");
    }
}

#[test]
fn personal_page_is_a_bypass_whatever_its_body() {
    let rules = || GateRules { min_bytes: 10, max_shrink: Some(0.5), must_contain: Some("</html>".into()) };
    for body in ["", "log in", "<html>cut off in the mid"] {
        let response = |headers: &[(&str, &str)]| rendered(200, headers, body);
        let private = judge_with(rules(), true, Some(100), response(&[("cache-control", "private")]));
        assert_eq!(private, Verdict::Bypass(BypassReason::Private), "{body:?}");
        let public = judge_with(rules(), true, Some(100), response(&[]));
        assert!(matches!(public, Verdict::Failure(_)), "{body:?}: the published page is kept");
    }
}

#[test]
fn oversize_response_is_judged_by_its_status() {
    let rules = GateRules::default();
    let page = CanonicalPath::stored("/products/42").unwrap();
    let hosts = ["www.acme.example".to_owned()];
    let gate = gate(&page, &rules, &hosts);
    for status in [200, 404, 410, 301] {
        let verdict = gate.judge_too_large(&rendered(status, &[], ""));
        assert_eq!(verdict, Verdict::Bypass(BypassReason::TooLarge), "{status}");
    }
    assert_eq!(gate.judge_too_large(&rendered(403, &[], "")), Verdict::Bypass(BypassReason::Forbidden));
    for status in [400, 429, 500, 503] {
        let verdict = gate.judge_too_large(&rendered(status, &[], ""));
        assert_eq!(verdict, Verdict::Failure(GateError::Status { status }), "{status}");
    }
}

#[test]
fn vary_on_the_host_is_harmless_with_one_host() {
    let rules = GateRules::default();
    let page = CanonicalPath::stored("/products/42").unwrap();
    let [one, two] = ["www.acme.example", "de.acme.example"].map(str::to_owned);
    let wildcard = ["*.acme.example".to_owned()];
    for vary in ["Host", "X-Forwarded-Host, Accept-Encoding"] {
        let judged = |hosts: &[String]| gate(&page, &rules, hosts).judge(rendered(200, &[("vary", vary)], HTML));
        assert!(matches!(judged(std::slice::from_ref(&one)), Verdict::Store(_)), "{vary}");
        for several in [&[one.clone(), two.clone()][..], &wildcard] {
            assert_eq!(judged(several), Verdict::Bypass(BypassReason::Vary), "{vary}");
        }
    }
    let scheme = rendered(200, &[("vary", "X-Forwarded-Proto")], HTML);
    assert!(matches!(gate(&page, &rules, &[one, two]).judge(scheme), Verdict::Store(_)));
}

#[test]
fn redirect_to_the_site_with_its_port_is_stored() {
    let rules = GateRules::default();
    let page = CanonicalPath::stored("/products/42").unwrap();
    let hosts = ["localhost".to_owned()];
    let gate = Gate { site: "localhost:3000", ..gate(&page, &rules, &hosts) };
    let judged = |location| gate.judge(rendered(301, &[("location", location)], ""));
    assert!(matches!(judged("http://localhost:3000/login"), Verdict::Store(_)));
    assert_eq!(judged("http://localhost:4000/login"), Verdict::Bypass(BypassReason::Redirect));
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
    fn storable_response_has_no_header_that_is_not_stored(
        names in prop::collection::vec("[A-Za-z-]{1,20}|content-type|x-robots-tag|link", 0..6),
    ) {
        let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
        if let Ok(storable) = check(rendered(200, &headers, HTML)) {
            for (name, _) in storable.artifact.headers() {
                prop_assert!(crate::domain::headers::is_stored(name));
            }
        }
    }
}

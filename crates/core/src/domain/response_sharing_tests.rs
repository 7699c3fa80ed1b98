use super::*;
use bytes::Bytes;
use proptest::prelude::*;

fn answer(headers: &[(&str, &str)]) -> Rendered {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Rendered { status: 200, headers, body: Bytes::new(), declared_bytes: None }
}

fn read(headers: &[(&str, &str)]) -> Result<Sharing, BypassReason> {
    sharing(&answer(headers), OriginRules::default(), |name| name == "rsc")
}

fn life(headers: &[(&str, &str)]) -> (Option<u64>, Option<u64>, bool) {
    let sharing = read(headers).unwrap();
    (sharing.fresh_s, sharing.stale_s, sharing.must_revalidate)
}

#[test]
fn answer_without_headers_is_shared_as_the_route_says() {
    assert_eq!(read(&[]), Ok(Sharing::default()));
}

#[test]
fn lifetime_comes_from_the_most_specific_header() {
    let control = ("cache-control", "max-age=5, s-maxage=10");
    assert_eq!(life(&[("cache-control", "max-age=5")]), (Some(5), None, false));
    assert_eq!(life(&[control]), (Some(10), None, true));
    assert_eq!(life(&[control, ("surrogate-control", "max-age=15")]), (Some(15), None, true));
    let cdn = ("CDN-Cache-Control", "max-age=20, stale-while-revalidate=7");
    assert_eq!(life(&[control, ("surrogate-control", "max-age=15"), cdn]), (Some(20), Some(7), true));
    let ours = ("Everfresh-CDN-Cache-Control", "max-age=30");
    assert_eq!(life(&[cdn, control, ours]), (Some(30), None, true));
}

#[test]
fn targeted_header_replaces_the_one_for_browsers() {
    let browser = ("cache-control", "private, no-store, max-age=0");
    assert_eq!(life(&[browser, ("cdn-cache-control", "max-age=60")]), (Some(60), None, true));
    assert_eq!(read(&[browser, ("cdn-cache-control", "")]), Err(BypassReason::Private));
    assert_eq!(life(&[("cache-control", "s-maxage=9"), ("cdn-cache-control", "max-age: 60")]), (Some(9), None, true));
    for restricted in ["no-store max-age=1", "max-age=60, private x", "(no-cache)"] {
        assert_eq!(read(&[("cdn-cache-control", restricted)]), Err(BypassReason::Private), "{restricted}");
    }
}

#[test]
fn what_is_for_browsers_alone_leaves_the_life_to_the_route() {
    for value in ["max-age=0", "max-age=0, must-revalidate", "must-revalidate", "public", "max-age=soon"] {
        assert_eq!(life(&[("cache-control", value)]), (None, None, false), "{value}");
    }
    assert_eq!(life(&[("cache-control", "max-age=60, must-revalidate")]), (Some(60), None, true));
}

#[test]
fn answer_that_no_cache_may_reuse_is_a_bypass() {
    use BypassReason::*;
    for (headers, reason) in [
        (&[("set-cookie", "a=b")][..], SetCookie),
        (&[("cache-control", "private")], Private),
        (&[("cache-control", "max-age=60; private")], Private),
        (&[("cache-control", "public, no-store")], NoStore),
        (&[("cache-control", "no-cache")], NoCache),
        (&[("cache-control", "no-cache, max-age=60")], NoCache),
        (&[("cache-control", "s-maxage=0")], NoCache),
        (&[("cache-control", "s-maxage=soon")], NoCache),
        (&[("cdn-cache-control", "no-cache, max-age=60")], NoCache),
        (&[("cdn-cache-control", "max-age=0")], NoCache),
        (&[("vary", "*")], Vary),
        (&[("vary", "Accept-Encoding, Cookie")], Vary),
        (&[("vary", "RSC, accept-language")], Vary),
        (&[("vary", "x-forwarded-host")], Vary),
        (&[("content-encoding", "exi")], Encoded),
    ] {
        assert_eq!(read(headers), Err(reason), "{headers:?}");
    }
    assert!(read(&[("cache-control", "no-cache, s-maxage=60")]).is_ok());
    assert!(read(&[("cache-control", "no-cache=\"set-cookie\"")]).is_ok());
    assert!(read(&[("vary", "RSC, Accept-Encoding"), ("content-encoding", "identity")]).is_ok());
}

#[test]
fn route_can_strip_cookies_and_ignore_cache_control() {
    let headers = [("set-cookie", "a=b"), ("vary", "Cookie"), ("cache-control", "private, max-age=9")];
    let rules = OriginRules { cookies: CookieRule::Strip, cache_control: CacheControlRule::Ignore };
    assert_eq!(sharing(&answer(&headers), rules, |_| false), Ok(Sharing::default()));
    let strip = OriginRules { cookies: CookieRule::Strip, ..OriginRules::default() };
    assert_eq!(sharing(&answer(&headers), strip, |_| false), Err(BypassReason::Private));
    let ignore = OriginRules { cache_control: CacheControlRule::Ignore, ..OriginRules::default() };
    assert_eq!(sharing(&answer(&headers), ignore, |_| false), Err(BypassReason::SetCookie));
}

#[test]
fn expires_counts_from_the_date_of_the_answer() {
    let date = ("date", "Wed, 18 Nov 2026 10:00:00 GMT");
    assert_eq!(life(&[date, ("expires", "Wed, 18 Nov 2026 10:01:00 GMT")]), (Some(60), None, false));
    for expires in ["0", "-1", "soon", "Wed, 18 Nov 2026 09:00:00 GMT"] {
        assert_eq!(life(&[date, ("expires", expires)]), (None, None, false), "{expires}");
    }
    let both = [date, ("expires", "Wed, 18 Nov 2026 10:01:00 GMT"), ("cache-control", "max-age=5")];
    assert_eq!(life(&both), (Some(5), None, false));
}

#[test]
fn tags_come_from_all_three_headers() {
    let tags = |headers: &[(&str, &str)]| -> Vec<String> {
        read(headers).unwrap().tags.iter().map(|tag| tag.as_str().to_owned()).collect()
    };
    let three =
        [("Cache-Tag", "a, b,,bad tag"), ("surrogate-key", "c a\td"), ("cache-groups", "\"e\";x=1, \"f\", plain")];
    assert_eq!(tags(&three), ["a", "b", "c", "d", "e", "f"]);
    let many: Vec<String> = (0..100).map(|number| format!("t{number}")).collect();
    assert_eq!(tags(&[("cache-tag", &many.join(","))]).len(), MAX_ORIGIN_TAGS);
}

proptest! {
    #[test]
    fn private_answer_is_never_shared(
        name in prop::sample::select(vec!["Cache-Control", "CDN-Cache-Control", "everfresh-cdn-cache-control"]),
        word in prop::sample::select(vec!["private", "No-Store", "no-cache"]),
        before in "[a-z=0-9 ,;\"]{0,12}",
    ) {
        let value = format!("{before},{word}");
        // A quote may swallow the word: then the field cannot be parsed, or it is an argument.
        prop_assume!(!before.contains('"'));
        prop_assert!(read(&[(name, &value)]).is_err(), "{}", value);
    }

    #[test]
    fn any_headers_are_read_without_panic(
        headers in prop::collection::vec(
            ("cache-control|vary|cache-tag|surrogate-key|cache-groups|expires|date|cdn-cache-control", "[ -~]{0,40}"),
            0..6,
        ),
    ) {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let _ = read(&headers);
    }
}

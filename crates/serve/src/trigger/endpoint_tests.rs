use super::*;

#[test]
fn body_is_read_up_to_64_kib() {
    assert_eq!(MOST_BODY_BYTES, 65_536);
}

#[test]
fn everything_below_the_prefix_is_reserved_in_any_spelling() {
    for target in [
        "/_everfresh",
        "/_everfresh/",
        "/_everfresh?x",
        "/_everfresh/revalidate?x=1",
        "/%5Feverfresh/revalidate",
        "/_everfres%68/x",
        "/_everfresh/../products/42",
        "/_everfresh/a%2fb",
        "/_everfresh//",
    ] {
        assert!(reserved(target), "{target}");
    }
    for target in ["/", "", "/_everfreshly", "/a/_everfresh/b", "/_Everfresh/x", "/a?/_everfresh/", "/__everfresh/"] {
        assert!(!reserved(target), "{target}");
    }
}

#[test]
fn each_endpoint_has_one_spelling_and_one_method() {
    let revalidate = |query| Ok(Endpoint::Revalidate { query });
    let request = |handle, query| Ok(Endpoint::Request { handle, query });
    let wrong = |allowed| Err(TriggerError::Method { allowed });
    for (method, target, expected) in [
        ("POST", "/_everfresh/revalidate", revalidate(None)),
        ("POST", "/_everfresh/revalidate?", revalidate(Some(""))),
        ("GET", "/_everfresh/requests/inval.k", request("inval.k", None)),
        ("GET", "/_everfresh/requests/a/b?after=1?", request("a/b", Some("after=1?"))),
        ("GET", "/_everfresh/revalidate", wrong("POST")),
        ("post", "/_everfresh/revalidate", wrong("POST")),
        ("HEAD", "/_everfresh/requests/inval.k", wrong("GET")),
        ("OPTIONS", "/_everfresh/requests/inval.k", wrong("GET")),
        ("GET", "/_everfresh/requests/", Err(TriggerError::NotFound)),
        ("POST", "/_everfresh/revalidate/", Err(TriggerError::NotFound)),
        ("POST", "/%5Feverfresh/revalidate", Err(TriggerError::NotFound)),
        ("GET", "/_everfresh", Err(TriggerError::NotFound)),
    ] {
        assert_eq!(Endpoint::find(method, target), expected, "{method} {target}");
    }
}

#[test]
fn body_has_one_of_two_fields_and_nothing_else() {
    let parse = |body: &str| RevalidateTarget::parse(None, body.as_bytes());
    assert_eq!(parse(r#" {"path":"/a?b=c"} "#), Ok(RevalidateTarget::Path("/a?b=c".to_owned())));
    assert_eq!(parse(r#"{"tag":"t"}"#), Ok(RevalidateTarget::Tag("t".to_owned())));
    for (body, expected) in [
        ("", "JSON object"),
        ("null", "JSON object"),
        (r#"["/a"]"#, "JSON object"),
        (r#"["/a","t"]"#, "JSON object"),
        ("{", "EOF"),
        ("{}", "is needed"),
        (r#"{"path":"/a","tag":"t"}"#, "exclude each other"),
        (r#"{"path":"/a"} x"#, "trailing"),
        (r#"{"path":"/a","path":"/b"}"#, "duplicate field `path`"),
        (r#"{"path":null}"#, "invalid type: null"),
        (r#"{"path":7}"#, "invalid type: integer"),
        (r#"{"path":["/a"]}"#, "invalid type"),
        (r#"{"path":"/a","reason":"expired"}"#, "unknown field `reason`"),
        (r#"{"path":"/a","tenant":"globex"}"#, "unknown field `tenant`"),
        (r#"{"path":"/a","idempotency_key":"k"}"#, "unknown field `idempotency_key`"),
    ] {
        let Err(TriggerError::Bad { why, .. }) = parse(body) else { panic!("{body} was accepted") };
        assert!(why.contains(expected), "{body}: {why}");
    }
    let deep = format!(r#"{{"path":{}"#, "[".repeat(60_000));
    assert!(parse(&deep).is_err());
    assert!(RevalidateTarget::parse(Some(""), br#"{"tag":"t"}"#).is_err());
    assert!(RevalidateTarget::parse(None, b"{\"tag\":\"\xff\"}").is_err());
}

#[test]
fn repeated_text_is_cut_and_escaped_to_ascii() {
    let body = format!("{{\"\\u001b[2J\\r\\n\\u202e\u{e9}\\\"<script>{}\":1}}", "x".repeat(10_000));
    let error = RevalidateTarget::parse(None, body.as_bytes()).unwrap_err();
    let reply = error.reply();
    assert!(reply.body.len() < 1_000 && reply.body.iter().all(|byte| matches!(byte, b' '..=b'~')));
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert!(body["error"].as_str().unwrap().starts_with("unknown field `\\u{1b}[2J\\u{d}\\u{a}\\u{202e}"));
}

#[test]
fn after_is_one_canonical_number() {
    for (query, after) in [(None, 0), (Some(""), 0), (Some("after=0"), 0), (Some("after=160"), 160)] {
        assert_eq!(parse_after(query), Ok(after));
    }
    for query in ["after", "after=", "after=-1", "after=1&after=2", "before=1", "after=01", "after=1&x", "x&after=1"] {
        assert!(parse_after(Some(query)).is_err(), "{query}");
    }
}

use super::super::page_error::PageError;
use super::*;
use everfresh_core::domain::events::Stage;

fn said(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

#[test]
fn a_body_is_looked_at_up_to_64_kib() {
    assert_eq!(MOST_BODY_BYTES, 65_536);
}

#[test]
fn everything_below_the_prefix_is_reserved_however_it_is_spelt() {
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
fn a_body_has_one_of_two_fields_and_nothing_else() {
    let parse = |body: &str| Wanted::parse(None, body.as_bytes());
    assert_eq!(parse(r#" {"path":"/a?b=c"} "#), Ok(Wanted::Path("/a?b=c".to_owned())));
    assert_eq!(parse(r#"{"tag":"t"}"#), Ok(Wanted::Tag("t".to_owned())));
    for (body, word) in [
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
        let Err(TriggerError::Bad { why, .. }) = parse(body) else { panic!("{body} was taken") };
        assert!(why.contains(word), "{body}: {why}");
    }
    let deep = format!(r#"{{"path":{}"#, "[".repeat(60_000));
    assert!(parse(&deep).is_err());
    assert!(Wanted::parse(Some(""), br#"{"tag":"t"}"#).is_err());
    assert!(Wanted::parse(None, b"{\"tag\":\"\xff\"}").is_err());
}

#[test]
fn a_strangers_words_are_repeated_in_plain_characters_and_not_for_long() {
    let body = format!("{{\"\\u001b[2J\\r\\n\\u202e\u{e9}\\\"<script>{}\":1}}", "x".repeat(10_000));
    let refused = Wanted::parse(None, body.as_bytes()).unwrap_err();
    let reply = refused.reply();
    assert!(reply.body.len() < 1_000 && reply.body.iter().all(|byte| matches!(byte, b' '..=b'~')));
    assert!(said(&reply)["error"].as_str().unwrap().starts_with("unknown field `\\u{1b}[2J\\u{d}\\u{a}\\u{202e}"));
}

#[test]
fn after_is_one_whole_number() {
    for (query, after) in [(None, 0), (Some(""), 0), (Some("after=0"), 0), (Some("after=160"), 160)] {
        assert_eq!(parse_after(query), Ok(after));
    }
    for query in ["after", "after=", "after=-1", "after=1&after=2", "before=1", "after=01", "after=1&x", "x&after=1"] {
        assert!(parse_after(Some(query)).is_err(), "{query}");
    }
}

fn row(status: ReqStatus, rejected_at_ms: Option<u64>) -> ReqRow {
    let stages = [Stage::Received, Stage::Claimed, Stage::Failed];
    ReqRow {
        request_hash: String::new(),
        status,
        result_s3_key: Some("acme/secret".to_owned()),
        ttl: None,
        owner: Some("owner".to_owned()),
        claim_expires_ms: None,
        attempts: 1,
        stale_answers: 0,
        error_class: None,
        rejected_at_ms,
        events: stages.map(|stage| Event::new(1, stage, 5)).to_vec(),
    }
}

#[test]
fn who_is_accepted_is_told_where_to_ask() {
    let key = IdempotencyKey::parse("order-4711").unwrap();
    let reply = accepted(&Handle::Inval { key: key.clone() }, &key);
    assert_eq!(reply.status, 202);
    let expected = json!({"handle": "inval.order-4711", "key": "order-4711", "status_url": "/_everfresh/requests/inval.order-4711"});
    assert_eq!(said(&reply), expected);
}

#[test]
fn a_request_is_told_by_its_record() {
    let handle: Handle = "inval.k".parse().unwrap();
    for (status, rejected, state) in [
        (ReqStatus::Started, None, "started"),
        (ReqStatus::Completed, None, "completed"),
        (ReqStatus::Completed, Some(1), "completed"),
        (ReqStatus::Failed, None, "failed"),
        (ReqStatus::Failed, Some(1), "rejected"),
        (ReqStatus::Started, Some(1), "rejected"),
    ] {
        assert_eq!(said(&told(&handle, Some(&row(status, rejected)), 0))["state"], state);
    }
    let nothing = said(&told(&handle, None, 120));
    assert_eq!((&nothing["state"], &nothing["events"], &nothing["after"]), (&json!("queued"), &json!([]), &json!(120)));
}

#[test]
fn events_come_once_each_to_whoever_repeats_the_last_number() {
    let handle: Handle = "inval.k".parse().unwrap();
    let row = row(ReqStatus::Failed, None);
    let (mut seen, mut after) = (Vec::new(), 0);
    for written in 0..=row.events.len() {
        let so_far = ReqRow { events: row.events[..written].to_vec(), ..row.clone() };
        let said = said(&told(&handle, Some(&so_far), after));
        seen.extend(said["events"].as_array().unwrap().iter().map(|event| event["stage"].clone()));
        after = said["after"].as_u64().unwrap();
    }
    assert_eq!(json!(seen), json!(["received", "claimed", "failed"]));
    let newer = ReqRow { events: vec![Event { seq: 199, at_ms: 0 }], ..row };
    let reply = told(&handle, Some(&newer), 0);
    assert_eq!(said(&reply)["events"][0]["stage"], 99);
    assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "where the body is concerns nobody");
}

#[test]
fn each_refusal_says_what_to_do_and_is_never_kept() {
    let key = IdempotencyKey::parse("k").ok();
    for (refused, status, header) in [
        (TriggerError::NotFound, 404, None),
        (TriggerError::Method { allowed: "POST" }, 405, Some(("allow", "POST"))),
        (TriggerError::TooLarge, 413, None),
        (TriggerError::Unsigned, 401, Some(("www-authenticate", "Everfresh"))),
        (TriggerError::bad("x", "y"), 400, None),
        (TriggerError::RawKeys, 404, None),
        (TriggerError::Limited { retry_after: 7 }, 429, Some(("retry-after", "7"))),
        (TriggerError::Unavailable { retry_after: 5, key }, 503, Some(("retry-after", "5"))),
        (TriggerError::Unavailable { retry_after: 5, key: None }, 503, Some(("retry-after", "5"))),
    ] {
        let reply = refused.reply();
        assert_eq!((reply.status, reply.header("cache-control")), (status, Some("no-store")), "{refused:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let said = said(&reply);
        assert!(["error", "next"].iter().all(|field| !said[field].as_str().unwrap().is_empty()), "{said}");
        if let Some((name, value)) = header {
            assert_eq!(reply.header(name), Some(value));
        }
    }
    assert_eq!(TriggerError::Host.reply(), PageError::Host.reply());
}

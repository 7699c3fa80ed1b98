//! Parsing of untrusted message bodies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use everfresh_enqueue::message::{FIELDS, MAX_MESSAGE_BYTES, MAX_PATH_BYTES, MAX_TAG_BYTES};
use everfresh_enqueue::{IdempotencyKey, KeyError, Message, MessageError, Reason, Target};
use proptest::prelude::*;

fn refused(body: &str) -> MessageError {
    Message::parse(body.as_bytes()).unwrap_err()
}

#[test]
fn full_message_is_read() {
    let body =
        r#"{"v":1, "tenant":"acme", "path":"/products/42?color=red", "reason":"expired", "idempotency_key":"k-1"}"#;
    let message = Message::parse(body.as_bytes()).unwrap();
    assert_eq!(message.tenant, "acme");
    assert_eq!(message.target, Target::Path("/products/42?color=red".into()));
    assert_eq!(message.reason, Reason::Expired);
    assert_eq!(message.idempotency_key, Some(IdempotencyKey::parse("k-1").unwrap()));
}

#[test]
fn reason_defaults_to_changed_and_key_to_none() {
    let message = Message::parse(br#"{"tenant":"acme","tag":"products","v":1}"#).unwrap();
    assert_eq!(message, Message::tag("acme", "products"));
    assert_eq!((message.reason, message.idempotency_key), (Reason::Changed, None));
}

#[test]
fn written_form_is_fixed() {
    let mut message = Message::path("acme", "/a");
    assert_eq!(message.to_json().unwrap(), r#"{"v":1,"tenant":"acme","path":"/a","reason":"changed"}"#);
    message.idempotency_key = Some(IdempotencyKey::parse("k").unwrap());
    message.reason = Reason::Prewarm;
    assert_eq!(
        message.to_json().unwrap(),
        r#"{"v":1,"tenant":"acme","path":"/a","reason":"prewarm","idempotency_key":"k"}"#
    );
}

#[test]
fn every_invalid_field_is_named() {
    use MessageError::*;
    let unknown = |field: &str| UnknownField { field: field.into() };
    let text = |field| WrongType { field, expected: "a string" };
    let number = WrongType { field: "v", expected: "a whole number" };
    let cases: Vec<(&str, MessageError)> = vec![
        (r#"{"tenant":"a","path":"/"}"#, Missing { field: "v" }),
        (r#"{"v":1,"path":"/"}"#, Missing { field: "tenant" }),
        (r#"{"v":1,"tenant":"a"}"#, NoTarget),
        (r#"{"v":1,"tenant":"a","path":"/","tag":"t"}"#, TwoTargets),
        (r#"{"v":2,"tenant":"a","path":"/"}"#, UnsupportedVersion { found: 2 }),
        (r#"{"tenant":"a","path":"/","priority":"high","v":2}"#, UnsupportedVersion { found: 2 }),
        (r#"{"v":"1","tenant":"a","path":"/"}"#, number.clone()),
        (r#"{"v":1.0,"tenant":"a","path":"/"}"#, number.clone()),
        (r#"{"v":-1,"tenant":"a","path":"/"}"#, number),
        (r#"{"v":1,"tenant":7,"path":"/"}"#, text("tenant")),
        (r#"{"v":1,"tenant":"a","path":["/"]}"#, text("path")),
        (r#"{"v":1,"tenant":"a","path":{"p":"/"}}"#, text("path")),
        (r#"{"v":1,"tenant":"a","path":"/","tag":null}"#, text("tag")),
        (r#"{"v":1,"tenant":"a","path":"/","reason":true}"#, text("reason")),
        (r#"{"v":1,"tenant":"a","path":"/","reason":"Changed"}"#, UnknownReason),
        (r#"{"v":1,"tenant":"a","path":"/","idempotency_key":""}"#, BadKey(KeyError::Empty)),
        (r#"{"v":1,"tenant":"a","path":"/","key":"k"}"#, unknown("key")),
        (r#"{"v":1,"tenant":"a","path":"/","Path":"/"}"#, unknown("Path")),
        (r#"{"v":1,"tenant":"a","path":"/","x\u0007y":1}"#, unknown("x\\u{7}y")),
        (r#"{"v":1,"tenant":"a","path":"/","path":"/b"}"#, Duplicate { field: "path" }),
        (r#"{"v":1,"tenant":"","path":"/"}"#, Empty { field: "tenant" }),
        (r#"{"v":1,"tenant":"a","tag":""}"#, Empty { field: "tag" }),
        ("[1]", NotAnObject),
        ("\"text\"", NotAnObject),
        ("null", NotAnObject),
    ];
    for (body, expected) in cases {
        assert_eq!(refused(body), expected, "{body}");
    }
}

#[test]
fn invalid_json_is_refused() {
    for body in ["", "{", "nonsense", "{\"v\":1}{\"v\":1}", "{\"v\":1,}", "\u{feff}{}"] {
        assert!(matches!(refused(body), MessageError::NotJson { .. }), "{body:?}");
    }
    let latin1 = b"{\"v\":1,\"tenant\":\"\xe9\",\"path\":\"/\"}";
    assert!(matches!(Message::parse(latin1), Err(MessageError::NotJson { .. })));
}

#[test]
fn oversize_body_is_not_parsed_and_long_fields_are_named() {
    let body = " ".repeat(MAX_MESSAGE_BYTES + 1);
    assert_eq!(refused(&body), MessageError::TooLarge { bytes: MAX_MESSAGE_BYTES + 1 });
    let mut message = Message::path("a", format!("/{}", "p".repeat(MAX_PATH_BYTES)));
    let too_long = MessageError::FieldTooLong { field: "path", bytes: MAX_PATH_BYTES + 1, allowed: MAX_PATH_BYTES };
    assert_eq!(message.to_json(), Err(too_long));
    message.target = Target::Path("/".into());
    message.tenant = "t".repeat(65);
    let long_tenant = MessageError::FieldTooLong { field: "tenant", bytes: 65, allowed: 64 };
    assert_eq!(message.to_json(), Err(long_tenant));
}

#[test]
fn nesting_of_any_depth_is_skipped_without_recursion() {
    let depth = 100_000;
    let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let body = format!(r#"{{"v":1,"tenant":"a","path":{deep}}}"#);
    assert_eq!(refused(&body), MessageError::WrongType { field: "path", expected: "a string" });
    assert_eq!(refused(&deep), MessageError::NotAnObject);
    let open = "{\"a\":".repeat(40_000);
    assert!(matches!(refused(&open), MessageError::NotJson { .. }));
}

#[test]
fn thousands_of_unknown_fields_are_refused_by_name() {
    let mut body = String::from("{\"v\":1");
    for n in 0..10_000 {
        body.push_str(&format!(",\"f{n}\":0"));
    }
    body.push('}');
    assert_eq!(refused(&body), MessageError::UnknownField { field: "f0".into() });
}

#[test]
fn error_messages_never_contain_values() {
    let secret = "hunter2";
    for body in [
        format!(r#"{{"v":1,"tenant":"a","path":"/","reason":"{secret}"}}"#),
        format!(r#"{{"v":1,"tenant":"a","path":"/","idempotency_key":"{secret} #"}}"#),
        format!(r#"{{"v":"{secret}","tenant":"a","path":"/"}}"#),
    ] {
        assert!(!refused(&body).to_string().contains(secret), "{body}");
    }
}

#[test]
fn published_schema_matches_fields_and_limits() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("../schema/message-v1.json")).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    let mut fields: Vec<&str> = properties.keys().map(String::as_str).collect();
    let mut expected = FIELDS.to_vec();
    fields.sort_unstable();
    expected.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(properties["tenant"]["maxLength"], 64);
    assert_eq!(properties["path"]["maxLength"], MAX_PATH_BYTES);
    assert_eq!(properties["tag"]["maxLength"], MAX_TAG_BYTES);
    assert_eq!(properties["idempotency_key"]["maxLength"], IdempotencyKey::MAX_BYTES);
    let names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(properties["reason"]["enum"], serde_json::json!(names));
}

proptest! {
    #[test]
    fn written_message_parses_to_itself(
        tenant in "[a-z0-9_-]{1,64}",
        text in "\\PC{1,200}",
        is_tag: bool,
        reason in prop::sample::select(Reason::ALL.to_vec()),
        key in prop::option::of("[A-Za-z0-9._~:-]{1,128}"),
    ) {
        let target = if is_tag { Target::Tag(text) } else { Target::Path(text) };
        let idempotency_key = key.map(|key| IdempotencyKey::parse(&key).unwrap());
        let message = Message { tenant, target, reason, idempotency_key };
        match message.to_json() {
            Ok(json) => prop_assert_eq!(Message::parse(json.as_bytes()).unwrap(), message),
            Err(error) => {
                let too_long = matches!(error, MessageError::FieldTooLong { .. });
                prop_assert!(too_long);
            }
        }
    }

    #[test]
    fn parsing_never_panics(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::parse(&body);
    }
}

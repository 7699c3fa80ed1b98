//! The published JSON schema agrees with the parser and with what a worker accepts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use everfresh_core::config::Config;
use everfresh_enqueue::Message;
use everfresh_enqueue::message::FIELDS;
use proptest::prelude::*;
use regex_lite::Regex;
use serde_json::{Value, json};

/// Validates the keywords that our schema uses. Panics at any other, so that the schema cannot
/// outgrow the test.
fn valid(schema: &Value, value: &Value) -> bool {
    schema.as_object().unwrap().iter().all(|(keyword, rule)| match keyword.as_str() {
        "$schema" | "title" | "description" | "default" => true,
        "type" => match rule.as_str().unwrap() {
            "object" => value.is_object(),
            "string" => value.is_string(),
            other => panic!("type {other}"),
        },
        "const" => value == rule,
        "enum" => rule.as_array().unwrap().contains(value),
        "pattern" => value.as_str().is_none_or(|text| Regex::new(rule.as_str().unwrap()).unwrap().is_match(text)),
        "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= rule.as_u64().unwrap()),
        "maxLength" => value.as_str().is_none_or(|text| text.len() as u64 <= rule.as_u64().unwrap()),
        "required" => rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
        "oneOf" => rule.as_array().unwrap().iter().filter(|one| valid(one, value)).count() == 1,
        "properties" => value.as_object().is_none_or(|object| {
            object.iter().all(|(name, value)| rule.get(name).is_none_or(|rule| valid(rule, value)))
        }),
        "additionalProperties" => {
            let known = schema["properties"].as_object().unwrap();
            value.as_object().is_none_or(|object| object.keys().all(|name| known.contains_key(name)))
        }
        other => panic!("keyword {other}"),
    })
}

fn schema() -> Value {
    serde_json::from_str(include_str!("../schema/message-v1.json")).unwrap()
}

static CONFIG: LazyLock<Config> = LazyLock::new(|| Config::parse(everfresh_testing::CONFIG).unwrap());

/// Mostly valid, sometimes invalid, sometimes absent.
fn field(valid_values: Vec<Value>, invalid_values: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    let some = |values| prop::sample::select(values).prop_map(Some);
    prop_oneof![8 => some(valid_values), 1 => some(invalid_values), 1 => Just(None)]
}

/// Mostly absent, else valid or invalid.
fn rare_field(valid_values: Vec<Value>, invalid_values: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    let some = |values| prop::sample::select(values).prop_map(Some);
    prop_oneof![1 => some(valid_values), 1 => some(invalid_values), 6 => Just(None)]
}

prop_compose! {
    fn body()(
        v in field(vec![json!(1)], vec![json!(2), json!("1"), json!(null)]),
        tenant in field(vec![json!("acme")], vec![json!(""), json!("Acme"), json!("a b"), json!("a".repeat(65)), json!(7)]),
        path in field(
            vec![json!("/products/42"), json!("/products/42?color=red")],
            vec![json!("products"), json!(""), json!(format!("/{}", "p".repeat(4096))), json!([])],
        ),
        tag in rare_field(vec![json!("products")], vec![json!("a b"), json!(""), json!("t".repeat(257)), json!(true)]),
        reason in field(
            vec![json!("changed"), json!("expired"), json!("prewarm")],
            vec![json!("Changed"), json!(""), json!(null)],
        ),
        key in field(
            vec![json!("order-42:v3"), json!("k".repeat(128))],
            vec![json!("k".repeat(129)), json!(""), json!("a#b"), json!({})],
        ),
        other in rare_field(vec![json!("x")], vec![json!(null)]),
    ) -> Value {
        let named = [v, tenant, path, tag, reason, key, other].into_iter().zip(FIELDS.into_iter().chain(["other"]));
        Value::Object(named.filter_map(|(value, name)| Some((name.to_owned(), value?))).collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn schema_and_parser_accept_the_same_bodies(body in body()) {
        let allowed = valid(&schema(), &body);
        let read = Message::parse(body.to_string().as_bytes());
        prop_assert!(!allowed || read.is_ok(), "{body}: {read:?}");
        let accepted = read.is_ok_and(|message| CONFIG.accept(message, None, "id").is_ok());
        prop_assert!(!accepted || allowed, "{body}");
    }

    #[test]
    fn written_messages_match_the_schema(path in "/[a-z0-9/?=&%\"\\\\é-]{0,60}") {
        let json = Message::path("acme", path).to_json().unwrap();
        prop_assert!(valid(&schema(), &serde_json::from_str(&json).unwrap()), "{json}");
    }
}

#[test]
fn generated_bodies_are_both_valid_and_invalid() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let bodies: Vec<_> = (0..4_000).map(|_| body().new_tree(&mut runner).unwrap().current()).collect();
    let allowed = bodies.iter().filter(|body| valid(&schema(), body)).count();
    assert!((400..3_600).contains(&allowed), "{allowed} of 4000 are allowed");
}

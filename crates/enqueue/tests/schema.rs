//! The published schema and the parser agree: what other languages check against is what the worker reads.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use everfresh_core::config::Config;
use everfresh_enqueue::Message;
use everfresh_enqueue::message::FIELDS;
use proptest::prelude::*;
use regex_lite::Regex;
use serde_json::{Value, json};

/// As much of JSON Schema as ours uses. Panics at anything else, so that the schema does not outgrow the test.
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

/// Mostly good, sometimes bad, sometimes absent.
fn field(good: Vec<Value>, bad: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    let some = |values| prop::sample::select(values).prop_map(Some);
    prop_oneof![8 => some(good), 1 => some(bad), 1 => Just(None)]
}

/// Mostly absent, else good or bad.
fn rare_field(good: Vec<Value>, bad: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    let some = |values| prop::sample::select(values).prop_map(Some);
    prop_oneof![1 => some(good), 1 => some(bad), 6 => Just(None)]
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
    fn what_the_schema_allows_is_read_and_what_a_worker_accepts_is_allowed(body in body()) {
        let allowed = valid(&schema(), &body);
        let read = Message::parse(body.to_string().as_bytes());
        prop_assert!(!allowed || read.is_ok(), "{body}: {read:?}");
        let accepted = read.is_ok_and(|message| CONFIG.accept(message, None, "id").is_ok());
        prop_assert!(!accepted || allowed, "{body}");
    }

    #[test]
    fn what_this_crate_writes_for_a_tenants_page_is_allowed(path in "/[a-z0-9/?=&%\"\\\\é-]{0,60}") {
        let json = Message::path("acme", path).to_json().unwrap();
        prop_assert!(valid(&schema(), &serde_json::from_str(&json).unwrap()), "{json}");
    }
}

#[test]
fn the_generated_bodies_are_of_every_kind() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let bodies: Vec<_> = (0..4_000).map(|_| body().new_tree(&mut runner).unwrap().current()).collect();
    let allowed = bodies.iter().filter(|body| valid(&schema(), body)).count();
    assert!((400..3_600).contains(&allowed), "{allowed} of 4000 are allowed");
}

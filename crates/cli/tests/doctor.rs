//! `everfresh doctor` against a running `dev`, and against a stack whose resources are its.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::process::Output;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_sdk_sqs::types::QueueAttributeName;
use everfresh_core::domain::page_key::{CanonicalPath, KeyLayout, PageKey, Tenant};
use serde_json::{Value, json};
use support::stack::{answering, cloudformation_with, command, outputs};
use support::{Dev, eventually, run, text};

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

/// Level and text of a check.
fn check<'r>(report: &'r Value, name: &str) -> (&'r str, &'r str) {
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no check {name}: {report}"));
    (found["level"].as_str().unwrap(), found["found"].as_str().unwrap())
}

#[test]
fn healthy_dev_passes_every_check() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    eventually(&dev.data, &["page", "show", "/about"], |page| page["published"]["status"] == 200);
    let output = run(&dev.data, &["doctor"]);
    let report = report(&output);
    assert!(output.status.success(), "{report}");
    for check in report["checks"].as_array().unwrap() {
        assert_eq!((check["level"].as_str(), check["next"].as_str()), (Some("ok"), None), "{check}");
    }
    assert!(check(&report, "rows").1.starts_with(|digit: char| digit.is_ascii_digit()), "{report}");
    for name in ["dynamodb:UpdateItem", "s3:GetObject", "sqs:DeleteMessage", "timeouts", "clock", "index listing"] {
        assert_eq!(check(&report, name).0, "ok", "{name}");
    }
    let plain = support::everfresh(&["doctor", "--data", dev.data.to_str().unwrap()]);
    let plain = text(&plain.stdout);
    assert!(plain.lines().last().unwrap().ends_with("0 warnings, 0 failures"), "{plain}");
}

#[tokio::test]
async fn wrong_table_and_queues_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let clients = dev.clients();
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let string = |name: &str| {
        let definition = AttributeDefinition::builder().attribute_name(name);
        definition.attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    clients.dynamodb.delete_table().table_name("everfresh").send().await.unwrap();
    let create = clients.dynamodb.create_table().table_name("everfresh").billing_mode(BillingMode::PayPerRequest);
    let create = create.key_schema(key("pk", KeyType::Hash)).key_schema(key("sk", KeyType::Range));
    create.attribute_definitions(string("pk")).attribute_definitions(string("sk")).send().await.unwrap();
    let queue = dev.endpoints["stack"]["queue"].as_str().unwrap();
    let set = clients.sqs.set_queue_attributes().queue_url(queue);
    set.attributes(QueueAttributeName::VisibilityTimeout, "30").send().await.unwrap();
    let low = dev.endpoints["stack"]["low_priority_queue"].as_str().unwrap();
    let arn = "arn:aws:sqs:us-east-1:000000000000:everfresh-dead-letters";
    let policy = json!({"deadLetterTargetArn": arn, "maxReceiveCount": 3}).to_string();
    let set = clients.sqs.set_queue_attributes().queue_url(low).attributes(QueueAttributeName::RedrivePolicy, policy);
    set.attributes(QueueAttributeName::MessageRetentionPeriod, "1209600").send().await.unwrap();

    let output = run(&dev.data, &["doctor"]);
    let report = report(&output);
    assert_eq!((output.status.code(), &report["ok"]), (Some(1), &Value::Bool(false)), "{report}");
    for (name, level, found) in [
        ("index listing", "warn", "missing"),
        ("time to live", "warn", ""),
        ("queue main visibility", "fail", "EVERFRESH_VISIBILITY_MS (30000)"),
        ("queue low-priority redrive", "warn", "after 3 receives"),
        ("queue low-priority retention", "warn", "no shorter"),
        ("queue main redrive", "ok", "after 100 receives"),
        ("table", "ok", "everfresh"),
    ] {
        let (is, why) = check(&report, name);
        assert!(is == level && why.contains(found), "{name}: {is}, {why}");
    }
    let next = |check: &Value| check["level"] == "ok" || check["next"].as_str().is_some_and(|next| !next.is_empty());
    assert!(report["checks"].as_array().unwrap().iter().all(next), "{report}");
}

#[tokio::test]
async fn rows_of_a_newer_version_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    eventually(&dev.data, &["page", "show", "/about"], |page| page["published"]["status"] == 200);
    let set = async |attribute: &str, number: u64| {
        let page = PageKey::new(Tenant::parse("demo").unwrap(), CanonicalPath::stored("/about").unwrap());
        let update = dev.clients().dynamodb.update_item().table_name("everfresh");
        let update = update.key("pk", AttributeValue::S(page.pk(KeyLayout::default())));
        let update = update.key("sk", AttributeValue::S("META".into())).update_expression("SET #it = :number");
        let update = update.expression_attribute_names("#it", attribute);
        update.expression_attribute_values(":number", AttributeValue::N(number.to_string())).send().await.unwrap();
    };
    set("deploy", 9).await;
    let newer = report(&run(&dev.data, &["doctor"]));
    assert_eq!(check(&newer, "rows"), ("warn", "/about is of deployment 9, and this one is 0"));
    set("schema", 99).await;
    let output = run(&dev.data, &["doctor"]);
    let unreadable = report(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(check(&unreadable, "rows").1.contains("layout 99"), "{unreadable}");
}

#[test]
fn functions_of_a_stack_are_read() {
    let folder = tempfile::tempdir().unwrap();
    // The maintenance function needs a minute and more.
    let dev = Dev::start_with(folder.path(), |command| command.env("EVERFRESH_FUNCTION_TIMEOUT_MS", "66000"));
    let cloudformation = cloudformation_with(outputs(&dev), "");
    let engines = dev.endpoints["aws"].as_str().unwrap();
    let doctor = |timeout: u64, more: Value| {
        let mut variables = json!({
            "EVERFRESH_CONFIG": "everfresh.toml",
            "FACETHEORY_CACHE_TABLE_NAME": "everfresh",
            "EVERFRESH_BUCKET": "everfresh",
            "EVERFRESH_QUEUE_URL": "x",
            "EVERFRESH_LOW_PRIORITY_QUEUE_URL": "x",
            "EVERFRESH_DEAD_LETTER_QUEUE_URL": "x",
            "EVERFRESH_FUNCTION_TIMEOUT_MS": "66000",
            "EVERFRESH_RENDER_DEADLINE_MS": "50000",
            "EVERFRESH_CLAIM_EXPIRY_MS": "71000",
            "EVERFRESH_VISIBILITY_MS": "396000",
        });
        variables.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let function = json!({"FunctionName": "shop", "Timeout": timeout, "Environment": {"Variables": variables}});
        let lambda = answering("application/json", function.to_string());
        let mut doctor = command(&["doctor"], "shop", &cloudformation, engines);
        report(&doctor.env("AWS_ENDPOINT_URL_LAMBDA", lambda).output().unwrap())
    };
    let fits = doctor(66, json!({}));
    for name in ["worker", "serving function", "maintenance function", "timeouts", "queue main visibility"] {
        assert_eq!(check(&fits, name).0, "ok", "{fits}");
    }
    let other = doctor(90, json!({"EVERFRESH_DEPLOY": "4", "EVERFRESH_LEASE_MS": "1000"}));
    assert_eq!(check(&other, "worker timeout").0, "fail", "{other}");
    assert!(check(&other, "worker").1.contains("EVERFRESH_LEASE_MS"), "{other}");
    assert_eq!(check(&other, "serving function version"), ("warn", "deployment 4, and the stack says 0"));
    // A stack without these functions, or without the permission to see them.
    let mut blind = command(&["doctor"], "shop", &cloudformation, engines);
    let blind = report(&blind.env("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:1").output().unwrap());
    assert_eq!((check(&blind, "worker").0, &blind["failures"]), ("warn", &json!(0)), "{blind}");
}

//! `everfresh dlq` against a running `dev`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use aws_sdk_sqs::types::MessageAttributeValue;
use serde_json::Value;
use support::{Dev, EVERFRESH, eventually, json, run, text};

const FIGS: &str = r#"{"v":1,"tenant":"demo","path":"/products/figs"}"#;

/// Sends to one of the queues, by the name of its field in the endpoints.
async fn send(dev: &Dev, queue: &str, body: &str, attributes: &[(&str, &str)]) -> String {
    let queue = dev.endpoints["stack"][queue].as_str().unwrap();
    let mut send = dev.clients().sqs.send_message().queue_url(queue).message_body(body);
    for (name, value) in attributes {
        let value = MessageAttributeValue::builder().data_type("String").string_value(*value).build().unwrap();
        send = send.message_attributes(*name, value);
    }
    send.send().await.unwrap().message_id.unwrap()
}

fn texts(messages: &Value, field: &str) -> BTreeSet<String> {
    messages.as_array().unwrap().iter().map(|message| message[field].as_str().unwrap().to_owned()).collect()
}

fn listed(dev: &Dev) -> Value {
    json(&run(&dev.data, &["dlq", "list"]))["messages"].clone()
}

#[tokio::test]
async fn list_shows_each_dead_letter_and_leaves_it_visible() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let mut sent = BTreeSet::new();
    for number in 0..12 {
        let body = format!(r#"{{"v":1,"tenant":"demo","path":"/no/such/{number}"}}"#);
        sent.insert(send(&dev, "queue", &body, &[]).await);
    }
    let is_complete = |shown: &Value| shown["messages"].as_array().unwrap().len() == 12;
    let shown = eventually(&dev.data, &["dlq", "list"], is_complete);
    // The message id of the request is its key, and a dead letter has an id of its own.
    assert_eq!(texts(&shown["messages"], "key"), sent);
    let first = &shown["messages"][0];
    assert_eq!((&first["reason"], &first["tenant"]), (&"no_route".into(), &"demo".into()));
    assert!(first["path"].as_str().unwrap().starts_with("/no/such/"), "{first}");
    assert_eq!(texts(&listed(&dev), "id"), texts(&shown["messages"], "id"));
    let dead_letters = json(&run(&dev.data, &["status"]))["queues"][2].clone();
    assert_eq!((&dead_letters["waiting"], &dead_letters["in_flight"]), (&12.into(), &0.into()));

    let id = first["id"].as_str().unwrap();
    let one = json(&run(&dev.data, &["dlq", "show", id]));
    assert!(one["body"].as_str().unwrap().contains("/no/such/"), "{one}");
    assert_eq!(one["attributes"]["reason"], "no_route");
    assert_eq!(one["explanation"], "no route matches its path");
    let limited = json(&run(&dev.data, &["dlq", "list", "--limit", "3"]));
    assert_eq!((limited["messages"].as_array().unwrap().len(), &limited["complete"]), (3, &false.into()));
}

#[tokio::test]
async fn redriven_message_is_handled_under_its_old_key() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let attributes = [("everfresh-key", "order-1"), ("reason", "attempts"), ("own", "kept")];
    let id = send(&dev, "dead_letter_queue", FIGS, &attributes).await;
    let moved_by_sqs = send(&dev, "dead_letter_queue", &FIGS.replace("figs", "pears"), &[]).await;
    let planned = json(&run(&dev.data, &["dlq", "redrive", &id, "--dry-run"]));
    assert_eq!(
        (&planned["redriven"][0]["key"], &planned["redriven"][0]["queue"]),
        (&"order-1".into(), &"everfresh".into())
    );
    assert_eq!(listed(&dev).as_array().unwrap().len(), 2, "a dry run sends nothing");
    let redriven = json(&run(&dev.data, &["dlq", "redrive", "--all"]));
    assert_eq!(texts(&redriven["redriven"], "id"), [id, moved_by_sqs.clone()].into());
    for (path, key) in [("/products/figs", "order-1"), ("/products/pears", moved_by_sqs.as_str())] {
        // Published or not: the hash is known.
        let page: Value = serde_json::from_slice(&run(&dev.data, &["page", "show", path]).stdout).unwrap();
        let hash = page["hash"].as_str().unwrap().to_owned();
        let handle = format!("{hash}.{key}");
        eventually(&dev.data, &["request", "show", &handle], |request| request["state"] == "completed");
    }
    assert_eq!(listed(&dev), serde_json::json!([]));
}

#[tokio::test]
async fn message_that_is_rejected_again_is_redriven_once() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let keys: BTreeSet<String> = (0..25).map(|number| format!("bad-{number}")).collect();
    for key in &keys {
        send(&dev, "dead_letter_queue", "no message", &[("everfresh-key", key), ("reason", "bad_message")]).await;
    }
    let redriven = json(&run(&dev.data, &["dlq", "redrive", "--reason", "bad_message"]));
    assert_eq!(texts(&redriven["redriven"], "key"), keys);
    assert_eq!(redriven["redriven"].as_array().unwrap().len(), 25);
    let back = |shown: &Value| texts(&shown["messages"], "key") == keys;
    eventually(&dev.data, &["dlq", "list"], back);
}

#[tokio::test]
async fn two_redrives_at_once_lose_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let keys: BTreeSet<String> = (0..40).map(|number| format!("bad-{number}")).collect();
    for key in &keys {
        send(&dev, "dead_letter_queue", "no message", &[("everfresh-key", key), ("reason", "bad_message")]).await;
    }
    let redrive = || {
        let mut command = Command::new(EVERFRESH);
        command.args(["dlq", "redrive", "--all", "--json", "--data"]).arg(&dev.data);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    for process in [redrive(), redrive()] {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stdout));
    }
    let back = |shown: &Value| texts(&shown["messages"], "key") == keys;
    eventually(&dev.data, &["dlq", "list"], back);
}

#[tokio::test]
async fn drop_deletes_only_the_selected_messages() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let kept = send(&dev, "dead_letter_queue", FIGS, &[("reason", "attempts")]).await;
    let by_path = FIGS.replace("figs", "pears");
    let dropped = send(&dev, "dead_letter_queue", &by_path, &[("reason", "attempts")]).await;
    let other = send(&dev, "dead_letter_queue", "no message", &[("reason", "bad_message")]).await;
    let all: BTreeSet<String> = [kept.clone(), dropped.clone(), other.clone()].into();
    for (arguments, code) in [
        (vec!["dlq", "drop", "--all"], 2),
        (vec!["dlq", "drop", "--yes"], 2),
        (vec!["dlq", "drop", "--all", "--dry-run"], 0),
        (vec!["dlq", "drop", "no-such-id", "--yes"], 3),
        (vec!["dlq", "redrive", "no-such-id"], 3),
        (vec!["dlq", "show", "no-such-id"], 3),
    ] {
        assert_eq!(run(&dev.data, &arguments).status.code(), Some(code), "{arguments:?}");
    }
    let missing = run(&dev.data, &["dlq", "show", "no-such-id"]);
    let printed: Value = serde_json::from_slice(&missing.stdout).unwrap();
    assert!(printed["error"].as_str().unwrap().contains("no-such-id"), "{printed}");
    assert_eq!(texts(&listed(&dev), "id"), all);
    let done = json(&run(&dev.data, &["dlq", "drop", "--path", "/products/pears", "--reason", "attempts", "--yes"]));
    assert_eq!(texts(&done["dropped"], "id"), [dropped].into());
    json(&run(&dev.data, &["dlq", "drop", &other, "--yes"]));
    assert_eq!(texts(&listed(&dev), "id"), [kept].into());
}

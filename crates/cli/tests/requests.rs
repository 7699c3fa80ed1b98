//! `everfresh request`, `enqueue --wait` and `prewarm` against a running `dev`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::domain::page_key::{CanonicalPath, KeyLayout, PageKey, Tenant};
use everfresh_core::ledger::Ledger;
use serde_json::Value;
use support::{Dev, eventually, json, run, text};

fn ledger(dev: &Dev) -> Ledger {
    Ledger::new(&dev.clients(), "everfresh", KeyLayout::default())
}

fn page(path: &str) -> PageKey {
    PageKey::new(Tenant::parse("demo").unwrap(), CanonicalPath::stored(path).unwrap())
}

/// The handle of a request that was never sent.
fn unsent(path: &str, sent_ms: u64) -> String {
    format!("{}.never-sent@{sent_ms}", page(path).hash())
}

#[test]
fn enqueue_waits_for_each_request() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let paths = ["/products/figs", "/products/greengages", "/about"];
    let waited = json(&run(&dev.data, &[&["enqueue", "--wait"], &paths[..]].concat()));
    let requests = waited["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 3);
    for (request, path) in requests.iter().zip(paths) {
        assert_eq!(request["state"], "completed", "{request}");
        let handle = request["handle"].as_str().unwrap();
        assert!(handle.ends_with(&format!("@{}", request["sent_ms"])), "{handle}");
        assert_eq!(json(&run(&dev.data, &["request", "show", handle]))["state"], "completed");
        assert_eq!(json(&run(&dev.data, &["page", "show", path]))["published"]["status"], 200);
    }
    // Fresh already: there is nothing to render, and no record either.
    let covered = json(&run(&dev.data, &["enqueue", "/about", "--reason", "expired", "--wait"]));
    assert_eq!(covered["state"], "completed");
    let refused = run(&dev.data, &["enqueue", "/about", "/no/such/route", "--wait"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stdout));
}

#[tokio::test]
async fn request_without_a_record_has_the_state_of_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let published = |page: &Value| page["published"]["status"] == 200;
    let version = eventually(&dev.data, &["page", "show", "/about"], published)["published"]["version"].clone();
    let show = |handle: &str| json(&run(&dev.data, &["request", "show", handle]));
    let covered = show(&unsent("/about", 1_000));
    assert_eq!((&covered["state"], &covered["version"]), (&"completed".into(), &version));
    // A plain handle does not say when it was sent.
    assert_eq!(show(unsent("/about", 0).split('@').next().unwrap())["state"], "unknown");
    let later = unsent("/about", 99_999_999_999_999);
    eventually(&dev.data, &["request", "show", &later], |request| request["state"] == "unknown");
    let ledger = ledger(&dev);
    ledger.pause(None).await.unwrap();
    let waiting = show(&later);
    assert_eq!((&waiting["state"], &waiting["why"]), (&"waiting".into(), &"paused".into()));
    ledger.resume(None).await.unwrap();

    ledger.pin(&page("/about")).await.unwrap();
    let pinned = run(&dev.data, &["enqueue", "/about", "--wait"]);
    assert_eq!(pinned.status.code(), Some(1), "{}", text(&pinned.stderr));
    let printed: Value = serde_json::from_slice(&pinned.stdout).unwrap();
    assert_eq!(printed["state"], "pinned");
    assert_eq!(show(printed["handle"].as_str().unwrap())["state"], "pinned");
}

#[test]
fn tail_prints_each_event_once_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let handle = json(&run(&dev.data, &["enqueue", "/products/figs"]))["handle"].as_str().unwrap().to_owned();
    let tail = |more: &[&str]| -> Vec<Value> {
        let output = run(&dev.data, &[&["request", "tail"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let lines = tail(&[&handle]);
    let stages: Vec<&str> = lines.iter().filter_map(|line| line["stage"].as_str()).collect();
    assert_eq!(stages, ["received", "claimed", "leased", "rendered", "uploaded", "committed"]);
    assert_eq!(lines.last().unwrap()["state"], "completed");
    assert_eq!(tail(&[&handle, "--after", &lines[2]["seq"].to_string()]), lines[3..]);
    assert_eq!(tail(&["/products/figs"]), lines);

    let never = unsent("/products/figs", 99_999_999_999_999);
    let unfinished = run(&dev.data, &["request", "tail", &never, "--timeout", "1s"]);
    assert_eq!(unfinished.status.code(), Some(4), "{}", text(&unfinished.stderr));
    let none = run(&dev.data, &["request", "tail", "/products/cherries"]);
    assert_eq!(none.status.code(), Some(3), "{}", text(&none.stderr));
}

#[tokio::test]
async fn cleanup_deletes_only_expired_claims() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    for key in ["one", "two", "three"] {
        // The renders must be so far apart that each request needs its own.
        let handle = json(&run(&dev.data, &["enqueue", "/products/figs", "--key", key]))["handle"].clone();
        let tailed = run(&dev.data, &["request", "tail", handle.as_str().unwrap(), "--timeout", "30s"]);
        assert!(tailed.status.success(), "{}", text(&tailed.stderr));
        tokio::time::sleep(Duration::from_millis(2_500)).await;
    }
    let listed = json(&run(&dev.data, &["request", "list", "/products/figs"]));
    let keys: Vec<&str> =
        listed["requests"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["one", "three", "two"]);
    let clients = dev.clients();
    for (key, expires_ms) in [("one", 1_u64), ("two", 99_999_999_999_999)] {
        let update = clients.dynamodb.update_item().table_name("everfresh");
        let rows = clients.dynamodb.scan().table_name("everfresh").send().await.unwrap().items.unwrap();
        let sk = AttributeValue::S(format!("REQ#{key}"));
        let row = rows.iter().find(|row| row["sk"] == sk).unwrap();
        let update = update.key("pk", row["pk"].clone()).key("sk", sk);
        let update = update.update_expression("SET #status = :started, claim_expires_ms = :expires");
        let update = update.expression_attribute_names("#status", "status");
        let update = update.expression_attribute_values(":started", AttributeValue::S("STARTED".into()));
        update.expression_attribute_values(":expires", AttributeValue::N(expires_ms.to_string())).send().await.unwrap();
    }
    let cleanup = |more: &[&str]| {
        let arguments = ["request", "cleanup", "/products/figs", "--status", "started"];
        let done = json(&run(&dev.data, &[&arguments, more].concat()));
        let deleted = done["deleted"].as_array().unwrap().iter();
        deleted.map(|row| row["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(cleanup(&["--older-than", "1h"]).is_empty());
    assert_eq!(cleanup(&["--older-than", "1s", "--dry-run"]), ["one"]);
    assert_eq!(cleanup(&["--older-than", "1s"]), ["one"]);
    assert!(cleanup(&["--older-than", "1s"]).is_empty());
}

#[tokio::test]
async fn forced_request_renders_a_page_that_cools_down() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    eventually(&dev.data, &["page", "show", "/about"], |page| page["published"]["status"] == 200);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let pk = {
        let rows = dev.clients().dynamodb.scan().table_name("everfresh").send().await.unwrap().items.unwrap();
        let hash = page("/about").hash().to_string();
        let own = |row: &&std::collections::HashMap<String, AttributeValue>| row["pk"].as_s().unwrap().contains(&hash);
        rows.iter().find(own).unwrap()["pk"].clone()
    };
    let put = dev.clients().dynamodb.put_item().table_name("everfresh").item("pk", pk);
    let put = put.item("sk", AttributeValue::S("HEALTH".into())).item("failures", AttributeValue::N("3".into()));
    put.item("next_attempt_ms", AttributeValue::N("99999999999999".into())).send().await.unwrap();
    let cooling = run(&dev.data, &["enqueue", "/about", "--wait", "--timeout", "2s"]);
    assert_eq!(cooling.status.code(), Some(4), "{}", text(&cooling.stderr));
    let printed: Value = serde_json::from_slice(&cooling.stdout).unwrap();
    assert_eq!((&printed["state"], &printed["why"]), (&"waiting".into(), &"cooldown".into()));
    let forced = json(&run(&dev.data, &["enqueue", "/about", "--force", "--wait"]));
    assert_eq!(forced["state"], "completed");
}

#[test]
fn prewarm_requests_the_tenants_pages_of_a_sitemap() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(&folder.path().join("data"));
    let sitemap = folder.path().join("sitemap.xml");
    let urls = ["http://localhost/products/figs", "https://other.example/about", "http://localhost/no/such/route"];
    let entries: String = urls.iter().map(|url| format!("<url><loc>{url}</loc></url>")).collect();
    fs::write(&sitemap, format!("<urlset>{entries}</urlset>")).unwrap();
    let done = json(&run(&dev.data, &["prewarm", "--sitemap", sitemap.to_str().unwrap()]));
    assert_eq!((&done["enqueued"], &done["other_hosts"], &done["not_pages"]), (&1.into(), &1.into(), &1.into()));
    eventually(&dev.data, &["page", "show", "/products/figs"], |page| page["published"]["status"] == 200);
    let list = folder.path().join("list");
    fs::write(&list, "/products/greengages\n\n/about\n/about\n").unwrap();
    let done = json(&run(&dev.data, &["prewarm", "--file", list.to_str().unwrap(), "--rate", "100/s"]));
    assert_eq!((&done["enqueued"], &done["failed"]), (&2.into(), &0.into()));
    eventually(&dev.data, &["page", "show", "/products/greengages"], |page| page["published"]["status"] == 200);
    for arguments in
        [&["prewarm"][..], &["prewarm", "--file", "a", "--sitemap", "b"], &["prewarm", "--file", "a", "--rate", "0"]]
    {
        let refused = run(&dev.data, arguments);
        assert_eq!(refused.status.code(), Some(2));
        assert!(serde_json::from_slice::<Value>(&refused.stdout).unwrap()["error"].is_string());
    }
}

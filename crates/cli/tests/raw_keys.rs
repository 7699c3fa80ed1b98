//! Every command in a table with raw keys, as the TypeScript library writes them, with rows that
//! name their body by `s3://bucket/key`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;
use support::{Dev, eventually, everfresh, json, run, text};

const FIGS: &str = "/products/figs";
const PK: &str = "TENANT#demo#CACHE#/products/figs";

fn started(folder: &std::path::Path) -> Dev {
    Dev::start_with(folder, |command| command.env("EVERFRESH_RAW_KEYS", "true"))
}

#[test]
fn requests_are_found_by_page_and_bare_handles_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let data = dev.data.to_str().unwrap();
    let waited = json(&run(&dev.data, &["enqueue", FIGS, "--wait"]));
    assert_eq!(waited["state"], "completed", "{waited}");
    let handle = waited["handle"].as_str().unwrap();
    for request in [&[FIGS][..], &[handle, "--page", FIGS]] {
        let shown = json(&run(&dev.data, &[&["request", "show"], request].concat()));
        assert_eq!(shown["state"], "completed", "{shown}");
        let tailed = run(&dev.data, &[&["request", "tail"], request].concat());
        assert!(tailed.status.success() && text(&tailed.stdout).contains("committed"), "{}", text(&tailed.stdout));
    }
    for command in ["show", "tail"] {
        let refused = run(&dev.data, &["request", command, handle]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("everfresh request list PATH"), "{}", text(&refused.stderr));
        let other = run(&dev.data, &["request", command, handle, "--page", "/about"]);
        assert!(text(&other.stderr).contains("of another page"), "{}", text(&other.stderr));
    }
    let listed = json(&run(&dev.data, &["request", "list", FIGS]));
    assert_eq!(listed["requests"].as_array().unwrap().len(), 1);
    let enqueued = text(&everfresh(&["enqueue", FIGS, "--data", data]).stdout);
    assert!(enqueued.contains(&format!("--page {FIGS}")), "{enqueued}");
}

#[tokio::test]
async fn row_with_an_s3_address_is_read_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let old = json(&run(&dev.data, &["enqueue", FIGS, "--wait"]));
    assert_eq!(old["state"], "completed");
    let page = json(&run(&dev.data, &["page", "show", FIGS]));
    let (key, version) =
        (page["published"]["s3_key"].as_str().unwrap(), page["published"]["version"].as_str().unwrap());
    for sk in ["META".to_owned(), format!("VER#{version}")] {
        let update = dev.clients().dynamodb.update_item().table_name("everfresh");
        let update = update.key("pk", AttributeValue::S(PK.into())).key("sk", AttributeValue::S(sk));
        let update = update.update_expression("SET s3_key = :key").condition_expression("attribute_exists(pk)");
        let address = AttributeValue::S(format!("s3://everfresh/{key}"));
        update.expression_attribute_values(":key", address).send().await.unwrap();
    }
    let plain = |arguments: &[&str]| {
        let output = everfresh(&[arguments, &["--data", dev.data.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(plain(&["page", "show", FIGS]).contains(&format!("s3://everfresh/{key}\n")));
    let body = plain(&["page", "show", FIGS, "--body"]);
    assert!(body.contains("<html"), "{body}");
    assert_eq!(plain(&["page", "show", FIGS, "--version", version]), body);
    assert_eq!(json(&run(&dev.data, &["page", "diff", FIGS, version]))["same"], true);
    assert!(plain(&["page", "history", FIGS]).contains(version));
    assert!(plain(&["explain", FIGS]).contains("request"));
    assert!(plain(&["page", "list", "--prefix", "/products"]).contains(FIGS));
    assert!(plain(&["lease", "show", FIGS]).contains("no lease"));
    json(&run(&dev.data, &["sweep"]));
    json(&run(&dev.data, &["page", "rollback", FIGS, version]));
    assert_eq!(plain(&["page", "show", FIGS, "--body"]), body);
    json(&run(&dev.data, &["page", "unpin", FIGS]));
    json(&run(&dev.data, &["page", "invalidate", FIGS, "--hard"]));
    json(&run(&dev.data, &["page", "purge", FIGS]));
    eventually(&dev.data, &["page", "show", FIGS], |page: &Value| page["state"] == "purged");
    let doctor = json(&run(&dev.data, &["doctor"]));
    assert_eq!(doctor["ok"], true, "{doctor}");
}

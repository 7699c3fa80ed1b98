//! An operator's commands against a running `dev`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;
use support::{Dev, everfresh, run, text};

const FIGS: &str = "/products/figs";

/// Runs a command with --json, and returns its lines of JSON, or its one document.
fn json(dev: &Dev, arguments: &[&str]) -> Vec<Value> {
    let data = dev.data.to_str().unwrap();
    let output = everfresh(&[arguments, &["--json", "--data", data]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    documents.map(Result::unwrap).collect()
}

fn one(dev: &Dev, arguments: &[&str]) -> Value {
    json(dev, arguments).remove(0)
}

/// What a command prints, also if it fails.
fn document(dev: &Dev, arguments: &[&str]) -> Value {
    serde_json::from_slice(&run(&dev.data, arguments).stdout).unwrap()
}

fn code(dev: &Dev, arguments: &[&str]) -> Option<i32> {
    run(&dev.data, arguments).status.code()
}

fn plain(dev: &Dev, arguments: &[&str]) -> String {
    let output = everfresh(&[arguments, &["--data", dev.data.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Repeats a command until its document is as expected, for at most half a minute.
fn eventually(dev: &Dev, arguments: &[&str], expected: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let output = run(&dev.data, arguments);
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() && expected(&shown) {
            return shown;
        }
        assert!(Instant::now() < end, "{arguments:?} never printed what was expected: {shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Edits the demo's data, and waits until the page shows it as a new version.
fn publish(dev: &Dev, folder: &Path, stock: u32) -> String {
    let before = document(dev, &["page", "show", FIGS])["published"]["version"].clone();
    let file = folder.join("demo/site/data.json");
    let edited = fs::read_to_string(&file).unwrap().replacen("\"version\": ", &format!("\"version\": {stock}"), 1);
    fs::write(&file, edited).unwrap();
    one(dev, &["enqueue", FIGS]);
    let after = eventually(dev, &["page", "show", FIGS], |page| page["published"]["version"] != before);
    after["published"]["version"].as_str().unwrap().to_owned()
}

fn started(folder: &Path) -> Dev {
    let dev = Dev::start(folder);
    eventually(&dev, &["page", "show", "/about"], |page| page["published"]["status"] == 200);
    dev
}

#[test]
fn page_is_rolled_back_pinned_and_unpinned() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let (old, new) = (publish(&dev, folder.path(), 1), publish(&dev, folder.path(), 2));
    let history = one(&dev, &["page", "history", FIGS]);
    let versions: Vec<&str> =
        history["versions"].as_array().unwrap().iter().map(|row| row["version"].as_str().unwrap()).collect();
    assert_eq!(versions, [new.as_str(), old.as_str()]);
    let diff = one(&dev, &["page", "diff", FIGS, &old]);
    assert_eq!((&diff["same"], diff["new"].as_str()), (&Value::Bool(false), Some(new.as_str())));
    assert!(diff["diff"].as_str().unwrap().contains("\n+"), "{diff}");

    assert_eq!(one(&dev, &["page", "diff", FIGS, "previous"])["old"], old);

    let would = one(&dev, &["page", "rollback", FIGS, "previous", "--dry-run"]);
    assert_eq!(
        (would["dry_run"].as_bool(), one(&dev, &["page", "show", FIGS])["pinned"].as_bool()),
        (Some(true), Some(false))
    );
    one(&dev, &["page", "rollback", FIGS, "previous"]);
    let older = everfresh(&["page", "rollback", FIGS, "previous", "--data", dev.data.to_str().unwrap()]);
    assert_eq!(older.status.code(), Some(3), "{}", text(&older.stderr));
    let shown = one(&dev, &["page", "show", FIGS]);
    assert_eq!((shown["state"].as_str(), shown["pinned"].as_bool()), (Some("pinned"), Some(true)));
    assert_eq!(one(&dev, &["page", "diff", FIGS, &old])["same"], true);
    assert_eq!(plain(&dev, &["page", "show", FIGS, "--body"]), plain(&dev, &["page", "show", FIGS, "--version", &old]));
    for state in ["pinned", "fresh"] {
        let listed = json(&dev, &["page", "list", "--state", state, "--prefix", FIGS]);
        assert_eq!((listed.len(), listed[0]["path"].as_str()), (1, Some(FIGS)), "{state}");
        assert_eq!(listed[0]["states"], serde_json::json!(["pinned", "fresh"]));
    }
    let missing = "0000000000000001-00000001";
    assert_eq!(code(&dev, &["page", "show", FIGS, "--version", missing]), Some(3));
    assert_eq!(code(&dev, &["page", "diff", FIGS, missing]), Some(3));

    one(&dev, &["page", "unpin", FIGS]);
    eventually(&dev, &["page", "diff", FIGS, &old], |diff| diff["same"] == false);
}

#[test]
fn purged_page_is_gone_until_it_is_unpinned() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let would = json(&dev, &["page", "purge", "--prefix", "/about", "--dry-run"]);
    assert_eq!(would[0]["would"], "purge /about");
    let purged = json(&dev, &["page", "purge", "--prefix", "/about"]);
    assert_eq!((purged.len(), purged[0]["path"].as_str()), (1, Some("/about")));
    assert_eq!(one(&dev, &["page", "show", "/about"])["state"], "purged");
    assert!(plain(&dev, &["explain", "/about"]).contains("410: the page was purged"));
    one(&dev, &["page", "unpin", "/about"]);
    eventually(&dev, &["page", "show", "/about"], |page| page["published"]["status"] == 200);
}

#[test]
fn invalidated_pages_are_stale_by_path_prefix_and_tag() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    for (arguments, path) in
        [(&["/about"][..], "/about"), (&["--prefix", "/products"], "/products"), (&["--tag", "products"], "/")]
    {
        eventually(&dev, &["page", "show", path], |page| page["published"]["status"] == 200);
        let invalidated = [&["page", "invalidate"], arguments].concat();
        one(&dev, &[&invalidated[..], &["--dry-run"]].concat());
        one(&dev, &invalidated);
        let stale = |page: &Value| page["freshness"].as_str().unwrap().contains("invalidated");
        eventually(&dev, &["page", "show", path], stale);
    }
}

#[test]
fn hard_invalidation_expires_pages_by_path_prefix_and_tag() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    for (arguments, path) in
        [(&["/about"][..], "/about"), (&["--prefix", "/products"], "/products"), (&["--tag", "products"], "/")]
    {
        eventually(&dev, &["page", "show", path], |page| page["published"]["status"] == 200);
        let invalidate = [&["page", "invalidate", "--hard"], arguments].concat();
        let would = one(&dev, &[&invalidate[..], &["--dry-run"]].concat());
        assert!(would["would"].as_str().unwrap().starts_with("make expired: "), "{would}");
        assert_eq!(one(&dev, &invalidate)["hard"], true);
        let shown = one(&dev, &["page", "show", path]);
        assert_eq!(shown["freshness"], "expired: invalidated hard since it was rendered", "{path}");
        let explained = one(&dev, &["explain", path]);
        let watermarks = explained["watermarks"].as_array().unwrap();
        assert!(watermarks.iter().any(|text| text.as_str().unwrap().ends_with("(hard)")), "{explained}");
    }
}

#[test]
fn missing_page_ends_with_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let shown = document(&dev, &["page", "show", FIGS]);
    assert_eq!((shown["state"].as_str(), shown["published"].is_null()), (Some("missing"), true), "{shown}");
    for arguments in [
        &["page", "show", FIGS][..],
        &["page", "show", FIGS, "--body"],
        &["page", "diff", FIGS, "previous"],
        &["page", "diff", FIGS, "0000000000000001-00000001"],
    ] {
        assert_eq!(code(&dev, arguments), Some(3), "{arguments:?}");
    }
}

#[test]
fn pages_are_purged_by_tag_once_each() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    for path in [FIGS, "/products/pears", "/products"] {
        eventually(&dev, &["enqueue", path, "--wait"], |request| request["state"] == "completed");
    }
    let purge = |more: &[&str]| -> Vec<String> {
        let purged = json(&dev, &[&["page", "purge"], more].concat());
        let path = |line: &Value| line["path"].as_str().or(line["would"].as_str()).unwrap().to_owned();
        purged.iter().map(path).collect()
    };
    let would = purge(&["--tag", "products", "--dry-run"]);
    assert!(would.contains(&format!("purge {FIGS}")) && !would.contains(&"purge /about".to_owned()), "{would:?}");
    let purged = purge(&["--tag", "products"]);
    assert_eq!(purged.len(), would.len(), "{purged:?}");
    let tombstone = one(&dev, &["page", "show", FIGS])["published"]["version"].clone();
    assert!(purge(&["--prefix", "/products"]).iter().all(|path| !purged.contains(path)), "they are purged already");
    assert_eq!(one(&dev, &["page", "show", FIGS])["published"]["version"], tombstone);
    assert_ne!(one(&dev, &["page", "show", "/about"])["state"], "purged");
}

#[test]
fn dry_run_of_enqueue_and_prewarm_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let list = folder.path().join("paths.txt");
    fs::write(&list, format!("{FIGS}\n/no/page/here/at/all\n")).unwrap();
    let would = json(&dev, &["enqueue", FIGS, "/products/pears", "--dry-run"]);
    assert_eq!((would.len(), would[0]["would"].as_str()), (2, Some("enqueue /products/figs (changed)")));
    let would = json(&dev, &["prewarm", "--file", list.to_str().unwrap(), "--dry-run"]);
    assert_eq!((would.len(), would[0]["would"].as_str()), (1, Some("enqueue /products/figs")));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(one(&dev, &["request", "list", FIGS])["requests"], serde_json::json!([]));
    assert_eq!(code(&dev, &["page", "show", FIGS]), Some(3));
}

#[test]
fn paused_request_waits_until_resume() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    one(&dev, &["pause", "--tenant", "demo"]);
    assert!(plain(&dev, &["explain", "http://localhost/about"]).contains("everfresh resume"));
    assert_eq!(one(&dev, &["resume", "--tenant", "demo"])["paused"], false);
    assert!(!plain(&dev, &["explain", "/about"]).contains("everfresh resume"));
}

#[test]
fn explain_follows_a_url_to_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let explained = plain(&dev, &["explain", "http://127.0.0.1:3000/about?utm_source=x"]);
    for shown in ["tenant    demo", "route     /about, fresh for 10s", "answer    the stored version", "next "] {
        assert!(explained.contains(shown), "{shown}: {explained}");
    }
    one(&dev, &["enqueue", "/about", "--wait", "--key", "seen-1"]);
    let named = one(&dev, &["explain", "/about", "--tenant", "demo"]);
    assert!(named["requests"][0].as_str().unwrap().starts_with("seen-1  completed, "), "{named}");
    assert_ne!(code(&dev, &["explain", "/about", "--tenant", "other"]), Some(0));
    assert!(plain(&dev, &["explain", "/nothing/here"]).contains("404"));
    let refused = everfresh(&["explain", "http://elsewhere.example/", "--data", dev.data.to_str().unwrap()]);
    assert!(text(&refused.stderr).contains("no tenant has the host elsewhere.example"), "{}", text(&refused.stderr));
}

#[tokio::test]
async fn refused_render_is_shown_with_its_reason_and_body() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    let none = everfresh(&["page", "quarantine", "/about", "--data", dev.data.to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(3), "{}", text(&none.stderr));
    // As the worker writes it.
    let hash = one(&dev, &["page", "show", "/about"])["hash"].as_str().unwrap().to_owned();
    let clients = dev.clients();
    let rows = clients.dynamodb.scan().table_name("everfresh").send().await.unwrap().items.unwrap();
    let pk = rows.iter().map(|row| &row["pk"]).find(|pk| pk.as_s().unwrap().ends_with(&hash)).unwrap();
    let now_ms = clients.time.now_ms();
    let put = clients.dynamodb.put_item().table_name("everfresh").item("pk", pk.clone());
    let put = put.item("sk", AttributeValue::S("HEALTH".into()));
    let put = put.item("refused_reason", AttributeValue::S("body has 9 bytes, the route requires 20".into()));
    let key = format!("_quarantine/demo/{hash}/0001763270000500-000000aa");
    let put = put.item("refused_s3_key", AttributeValue::S(key.clone()));
    put.item("refused_at_ms", AttributeValue::N(now_ms.to_string())).send().await.unwrap();
    let put = clients.s3.put_object().bucket("everfresh").key(&key);
    put.body(b"<p>broken".to_vec().into()).send().await.unwrap();

    let shown = one(&dev, &["page", "quarantine", "/about"]);
    assert_eq!((shown["s3_key"].as_str(), shown["at_ms"].as_u64()), (Some(key.as_str()), Some(now_ms)));
    for command in [&["page", "quarantine", "/about"][..], &["page", "show", "/about"]] {
        let shown = plain(&dev, command);
        assert!(shown.contains("body has 9 bytes, the route requires 20"), "{shown}");
    }
    assert_eq!(plain(&dev, &["page", "quarantine", "/about", "--body"]), "<p>broken");
}

#[test]
fn lease_that_is_not_held_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    assert_eq!(one(&dev, &["lease", "show", "/about"])["held"], false);
    assert!(plain(&dev, &["lease", "release", "/about"]).contains("no worker renders it"));
}

#[test]
fn sweep_keeps_what_is_younger_than_a_render_may_last() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    publish(&dev, folder.path(), 1);
    for dry_run in [&["--dry-run"][..], &[]] {
        let swept = one(&dev, &[&["sweep"], dry_run].concat());
        assert!(swept["pages"].as_u64().unwrap() >= 4, "{swept}");
        assert_eq!((swept["objects"].as_u64(), swept["busy"].as_u64()), (Some(0), Some(0)));
    }
}

#[test]
fn pages_are_listed_by_prefix_in_the_order_of_their_paths() {
    let folder = tempfile::tempdir().unwrap();
    let dev = started(folder.path());
    eventually(&dev, &["page", "show", "/products"], |page| page["published"]["status"] == 200);
    eventually(&dev, &["page", "show", "/"], |page| page["published"]["status"] == 200);
    let paths = |arguments: &[&str]| -> Vec<String> {
        json(&dev, arguments).iter().map(|page| page["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&["page", "list"]), ["/", "/about", "/products"]);
    assert_eq!(paths(&["page", "list", "--prefix", "/p"]), ["/products"]);
}

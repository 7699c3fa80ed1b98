//! Commands that are killed, and a lease that is ended, while work goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use everfresh_core::domain::digest::Digest;
use serde_json::Value;
use support::origin::Origin;
use support::{Dev, EVERFRESH, eventually, everfresh, json, run, text};

const PAGE: &str = "/a";

fn started(folder: &std::path::Path, origin: &Origin) -> Dev {
    Dev::start_with(folder, |command| command.args(["--origin", &origin.url]))
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn released_lease_refuses_its_worker_and_the_request_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::shut();
    let dev = started(folder.path(), &origin);
    let handle = json(&run(&dev.data, &["enqueue", PAGE]))["handle"].as_str().unwrap().to_owned();
    let held = eventually(&dev.data, &["lease", "show", PAGE], |lease| lease["held"] == true);
    wait_until("the origin is asked", || origin.renders() == 1);
    let holder = held["holder"].as_str().unwrap();
    assert!(holder.len() > 8 && holder.ends_with('…'), "{held}");
    let plain = text(&everfresh(&["lease", "show", PAGE, "--data", dev.data.to_str().unwrap()]).stdout);
    assert!(plain.contains(&format!("held by {holder}")), "{plain}");
    let would = json(&run(&dev.data, &["lease", "release", PAGE, "--dry-run"]));
    assert_eq!(would["released"], Value::Null, "{would}");
    assert_eq!(json(&run(&dev.data, &["lease", "release", PAGE]))["released"], true);
    origin.open();
    let ended = eventually(&dev.data, &["request", "show", &handle], |request| request["state"] == "completed");
    let body = text(&everfresh(&["page", "show", PAGE, "--body", "--data", dev.data.to_str().unwrap()]).stdout);
    assert!(!body.contains("render 1<"), "the first worker's commit is refused: {body}");
    assert!(origin.renders() >= 2, "{ended}");
    let stages: Vec<&str> =
        ended["events"].as_array().unwrap().iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages.iter().filter(|stage| **stage == "committed").count(), 1, "{stages:?}");
    assert!(stages.iter().filter(|stage| **stage == "leased").count() >= 2, "{stages:?}");
}

#[test]
fn killed_tail_goes_on_without_gap_or_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::shut();
    let dev = started(folder.path(), &origin);
    let handle = json(&run(&dev.data, &["enqueue", PAGE]))["handle"].as_str().unwrap().to_owned();
    let mut tail = Command::new(EVERFRESH);
    tail.args(["request", "tail", &handle, "--json", "--data"]).arg(&dev.data);
    let mut tail = tail.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    // The render is held back: no further event follows.
    let before = vec![next(), next()];
    assert_eq!((before[0]["stage"].as_str(), before[1]["stage"].as_str()), (Some("received"), Some("claimed")));
    tail.kill().unwrap();
    tail.wait().unwrap();
    origin.open();
    let seen = |more: &[&str]| -> Vec<Value> {
        let output = run(&dev.data, &[&["request", "tail", &handle], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let after = seen(&["--after", &before[1]["seq"].to_string()]);
    assert_eq!([before, after].concat(), seen(&[]));
    let stages: Vec<Value> = seen(&[]).iter().filter_map(|line| line.get("stage").cloned()).collect();
    assert_eq!(stages, ["received", "claimed", "leased", "rendered", "uploaded", "committed"]);
}

/// Bodies of pages that have no row, in the folder of a stopped `dev`, uploaded long ago.
fn add_orphans(folder: &std::path::Path, count: u64) {
    let mut objects = rusqlite::Connection::open(folder.join("s3.db")).unwrap();
    let transaction = objects.transaction().unwrap();
    for number in 0..count {
        let key = format!("demo/{}/0001700000000000-{number:08x}", Digest::of(&number.to_be_bytes()));
        let row = "INSERT INTO object (bucket, key, etag, modified_ms, headers, body) \
                   SELECT bucket, ?1, etag, 1700000000000, headers, body FROM object LIMIT 1";
        assert_eq!(transaction.execute(row, [key]).unwrap(), 1);
    }
    transaction.commit().unwrap();
}

#[test]
fn killed_sweep_goes_on_where_it_was() {
    const ORPHANS: u64 = 1_600;
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    eventually(&dev.data, &["page", "show", "/about"], |page| page["published"]["status"] == 200);
    assert!(dev.stop());
    add_orphans(folder.path(), ORPHANS);
    let dev = Dev::start(folder.path());
    let planned = json(&run(&dev.data, &["sweep", "--dry-run"]));
    assert_eq!(planned["objects"], ORPHANS, "{planned}");

    let mut sweep = Command::new(EVERFRESH);
    sweep.args(["sweep", "--data"]).arg(&dev.data);
    let mut sweep = sweep.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut notes = BufReader::new(sweep.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(notes.any(|note| note.starts_with('…')), "the sweep ended before it was killed");
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    let left = json(&run(&dev.data, &["sweep", "--dry-run"]))["objects"].as_u64().unwrap();
    assert!((1..ORPHANS).contains(&left), "{left}");

    let output = run(&dev.data, &["sweep"]);
    assert!(text(&output.stderr).contains("going on after demo/"), "{}", text(&output.stderr));
    let swept = json(&output);
    // A page whose lease the killed sweep left behind is for the next sweep.
    let busy = swept["busy"].as_u64().unwrap();
    assert!(busy <= 8 && swept["objects"].as_u64().unwrap() + busy >= left, "{swept}, {left} were left");
    let body = everfresh(&["page", "show", "/about", "--body", "--data", dev.data.to_str().unwrap()]);
    assert!(body.status.success() && text(&body.stdout).contains("<html"), "{}", text(&body.stderr));
    // A crash leaves leases of a minute at most, and nothing else.
    let again = json(&run(&dev.data, &["sweep", "--dry-run"]));
    assert!(again["objects"].as_u64().unwrap() <= 8, "{again}");
}

//! The front door of `everfresh dev`: a browser's view of the demo site.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::{Dev, EVERFRESH, everfresh, text};

/// One request as a browser sends it, and the whole answer.
fn ask(dev: &Dev, method: &str, path: &str, host: &str, more: &str) -> String {
    let address = dev.endpoints["pages"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn get(dev: &Dev, path: &str) -> String {
    ask(dev, "GET", path, "127.0.0.1", "")
}

fn version(answer: &str) -> &str {
    answer.split_once("version=").unwrap().1.split(';').next().unwrap()
}

#[test]
fn a_page_is_made_goes_stale_is_served_stale_at_once_and_turns_fresh() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let first = get(&dev, "/products/figs");
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
    assert!(first.contains("</html>") && first.contains("etag: \""), "{first}");
    let patience = Instant::now() + Duration::from_secs(60);
    let stale = loop {
        let answer = get(&dev, "/products/figs");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        if answer.contains("detail=stale-age") {
            break answer;
        }
        assert!(Instant::now() < patience, "it does not become stale: {answer}");
        std::thread::sleep(Duration::from_millis(300));
    };
    assert_eq!(version(&stale), version(&first));
    loop {
        let answer = get(&dev, "/products/figs");
        if version(&answer) != version(&first) {
            assert!(answer.contains("cache-status: everfresh; hit; ttl="), "{answer}");
            break;
        }
        assert!(Instant::now() < patience, "it does not become fresh: {answer}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn loopback_names_reach_the_demo_and_unknown_hosts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    for host in ["localhost", "127.0.0.1:3000", "[::1]", "demo.localhost:3000"] {
        assert!(ask(&dev, "GET", "/about", host, "").starts_with("HTTP/1.1 200"), "{host}");
    }
    // A name that was made to lead here: DNS rebinding.
    assert!(ask(&dev, "GET", "/about", "evil.example", "").starts_with("HTTP/1.1 421"));
    assert!(ask(&dev, "DELETE", "/about", "localhost", "").contains("allow: GET, HEAD"));
    let head = ask(&dev, "HEAD", "/about", "localhost", "");
    assert!(head.ends_with("\r\n\r\n") && !head.contains("content-length: 0"), "{head}");
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = ask(&dev, "GET", "/about", "localhost", &format!("if-none-match: {etag}\r\n"));
    assert!(again.starts_with("HTTP/1.1 304"), "{again}");
}

#[test]
fn a_port_that_is_taken_is_named_with_the_way_out() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let refused = everfresh(&["dev", "--port", &port, "--data", folder.path().to_str().unwrap()]);
    assert!(!refused.status.success());
    let refusal = text(&refused.stderr);
    assert!(refusal.contains(&port) && refusal.contains("--port"), "{refusal}");
}

#[test]
fn a_preview_cookie_is_signed_for_one_tenant_and_needs_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("everfresh.toml");
    std::fs::write(&config, "[tenant.acme]\nhosts = [\"a.example\"]\nrender = { templates = \"site/\" }\n").unwrap();
    let cookie = |key: Option<&str>, time: &str| {
        let mut command = std::process::Command::new(EVERFRESH);
        command
            .args(["preview", "cookie", "--for", time, "--config"])
            .arg(&config)
            .env_remove("EVERFRESH_PREVIEW_KEYS");
        command.envs(key.map(|key| ("EVERFRESH_PREVIEW_KEYS", key))).output().unwrap()
    };
    let signed = cookie(Some("0123456789abcdef0123456789abcdef"), "30m");
    assert!(text(&signed.stdout).starts_with("everfresh-preview="), "{signed:?}");
    for (key, time, words) in [
        (None, "1h", "EVERFRESH_PREVIEW_KEYS is not set"),
        (Some("short"), "1h", "at least 32 characters"),
        (Some("0123456789abcdef0123456789abcdef"), "soon", "--for soon"),
    ] {
        let refused = cookie(key, time);
        assert!(!refused.status.success());
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
    }
}

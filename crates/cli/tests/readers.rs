//! The HTTP server of `everfresh dev`, as a browser uses it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use everfresh_core::clock::Clock;
use everfresh_serve::trigger::signature::{RevalidateKeys, SignedRequest};
use support::{Dev, EVERFRESH, everfresh, text};

/// Sends one request as a browser does, and returns the whole response.
fn request(dev: &Dev, method: &str, path: &str, host: &str, more: &str) -> String {
    let address = dev.endpoints["pages"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn get(dev: &Dev, path: &str) -> String {
    request(dev, "GET", path, "127.0.0.1", "")
}

fn version(answer: &str) -> &str {
    answer.split_once("version=").unwrap().1.split(';').next().unwrap()
}

#[test]
fn stale_page_is_served_and_then_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let first = get(&dev, "/products/figs");
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
    assert!(first.contains("</html>") && first.contains("etag: \""), "{first}");
    let deadline = Instant::now() + Duration::from_secs(60);
    let stale = loop {
        let answer = get(&dev, "/products/figs");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        if answer.contains("detail=stale-age") {
            break answer;
        }
        assert!(Instant::now() < deadline, "the page does not become stale: {answer}");
        std::thread::sleep(Duration::from_millis(300));
    };
    assert_eq!(version(&stale), version(&first));
    loop {
        let answer = get(&dev, "/products/figs");
        if version(&answer) != version(&first) {
            assert!(answer.contains("cache-status: everfresh; hit; ttl="), "{answer}");
            break;
        }
        assert!(Instant::now() < deadline, "the page is not replaced: {answer}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn loopback_names_reach_the_demo_and_unknown_hosts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    for host in ["localhost", "127.0.0.1:3000", "[::1]", "demo.localhost:3000"] {
        assert!(request(&dev, "GET", "/about", host, "").starts_with("HTTP/1.1 200"), "{host}");
    }
    // DNS rebinding: a foreign name that resolves to this machine.
    assert!(request(&dev, "GET", "/about", "evil.example", "").starts_with("HTTP/1.1 421"));
    assert!(request(&dev, "DELETE", "/about", "localhost", "").contains("allow: GET, HEAD"));
    let head = request(&dev, "HEAD", "/about", "localhost", "");
    assert!(head.ends_with("\r\n\r\n") && !head.contains("content-length: 0"), "{head}");
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = request(&dev, "GET", "/about", "localhost", &format!("if-none-match: {etag}\r\n"));
    assert!(again.starts_with("HTTP/1.1 304"), "{again}");
}

/// Sends a signed regeneration request, signed for `signed_for` and sent to `host`.
fn trigger(dev: &Dev, keys: &str, nonce: &str, signed_for: &str, host: &str) -> String {
    let timestamp = (Clock::system().now_ms() / 1000).to_string();
    let (target, body) = ("/_everfresh/revalidate", r#"{"path":"/about"}"#);
    let signed_request = SignedRequest {
        method: "POST",
        host: signed_for,
        target,
        timestamp: &timestamp,
        nonce,
        request_id: "",
        body: body.as_bytes(),
    };
    let signature = RevalidateKeys::parse(keys).unwrap().sign("cms", &signed_request).unwrap();
    let more = format!(
        "x-everfresh-key-id: cms\r\nx-everfresh-timestamp: {timestamp}\r\nx-everfresh-nonce: {nonce}\r\n\
         x-everfresh-signature: {signature}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    request(dev, "POST", target, host, &more)
}

#[test]
fn signed_request_is_accepted_at_the_host_it_is_signed_for() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "cms:0123456789abcdef0123456789abcdef";
    let config = folder.path().join("everfresh.toml");
    let text =
        include_str!("../demo/everfresh.toml").replace(r#"["localhost", "127.0.0.1"]"#, r#"["www.acme.example"]"#);
    assert!(text.contains("www.acme.example"));
    std::fs::write(&config, text).unwrap();
    let dev = Dev::start_with(&folder.path().join("data"), |command| {
        command.env("EVERFRESH_REVALIDATE_KEYS", keys).arg("--config").arg(&config)
    });
    let pages = dev.endpoints["pages"].as_str().unwrap().strip_prefix("http://").unwrap();
    for (index, (signed_for, host, status)) in [
        ("127.0.0.1", pages, 202),
        ("localhost", "LocalHost.:3000", 202),
        ("demo.localhost", "demo.localhost:3000", 202),
        ("www.acme.example", "www.acme.example", 202),
        ("www.acme.example", pages, 401),
        ("localhost", pages, 401),
        ("127.0.0.1", "www.acme.example", 401),
        ("evil.example", "evil.example", 421),
        ("localhost", "localhost:abc", 421),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = trigger(&dev, keys, &format!("nonce-0123456789-{index}"), signed_for, host);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{signed_for} at {host}: {answer}");
    }
}

#[test]
fn http_2_reaches_the_demo_and_refuses_unknown_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path());
    let address = dev.endpoints["pages"].as_str().unwrap().strip_prefix("http://").unwrap();
    // First byte of the HPACK header block: status 200 is entry 8 of the static table, any other
    // status is a literal value under its indexed name.
    for (host, first) in [(address, 0x88), ("evil.example", 0x48)] {
        let mut stream = TcpStream::connect(address).unwrap();
        let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
            let length = u8::try_from(payload.len()).unwrap();
            [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
        };
        // GET and http from the static table, then path and host as literals.
        let mut headers = vec![0x82, 0x86];
        for (name, value) in [(0x04, "/about"), (0x01, host)] {
            headers.extend([name, u8::try_from(value.len()).unwrap()]);
            headers.extend(value.as_bytes());
        }
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&frame(4, 0, 0, &[])).unwrap();
        stream.write_all(&frame(1, 0x5, 1, &headers)).unwrap();
        let block = loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            stream.read_exact(&mut payload).unwrap();
            if head[3] == 1 {
                break payload;
            }
        };
        assert_eq!(block[0], first, "{host}: {block:x?}");
    }
}

#[test]
fn page_port_in_use_is_named_with_its_option() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let refused = everfresh(&["dev", "--port", &port, "--data", folder.path().to_str().unwrap()]);
    assert!(!refused.status.success());
    let line = text(&refused.stderr);
    assert!(line.contains(&port) && line.contains("--port"), "{line}");
}

#[test]
fn preview_cookie_needs_a_key_and_a_valid_duration() {
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
    for (key, time, expected) in [
        (None, "1h", "EVERFRESH_PREVIEW_KEYS is not set"),
        (Some("short"), "1h", "at least 32 characters"),
        (Some("0123456789abcdef0123456789abcdef"), "soon", "--for soon"),
        (Some("0123456789abcdef0123456789abcdef"), "0s", "--for 0s"),
    ] {
        let refused = cookie(key, time);
        assert!(!refused.status.success());
        assert!(text(&refused.stderr).contains(expected), "{}", text(&refused.stderr));
    }
}

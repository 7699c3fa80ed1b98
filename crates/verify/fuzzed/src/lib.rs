//! Properties that hold for any input. The fuzz targets in `fuzz/`, the property tests and the
//! replay of the corpus call the same functions.
#![allow(clippy::expect_used, reason = "a violated property panics")]

mod origin;
mod rows;
mod worker_rows;

use everfresh_core::config::Config;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::{CanonicalPath, NormalPath, Tenant};
use everfresh_core::domain::publish_gate::{Gate, GateRules, Verdict};
use everfresh_core::domain::request::{Handle, IdempotencyKey};
use everfresh_core::domain::response_sharing::OriginRules;
use everfresh_core::domain::tag::Tag;
use everfresh_enqueue::Message;
use everfresh_serve::http::conditional::{any_match, unmodified_since};
use everfresh_serve::http::reply::Reply;
use everfresh_serve::http::request::{Method, Request};
use everfresh_serve::lambda::event::{HttpAnswer, HttpEvent};
use everfresh_serve::page::error::PageError;
use everfresh_serve::preview::cookie::PreviewKeys;
use everfresh_serve::trigger::endpoint::{Endpoint, RevalidateTarget, parse_after, reserved};
use everfresh_serve::trigger::signature::{RevalidateKeys, SignedRequest, WINDOW_S};

pub use self::origin::origin;
pub use self::rows::rows;
pub use self::worker_rows::worker_rows;

const CONFIG: &str = include_str!("../../../core/sample/everfresh.toml");

/// Panics if a property does not hold for the input.
pub type Target = fn(&[u8]);

pub const TARGETS: [(&str, Target); 10] = [
    ("message", message),
    ("config", config),
    ("keys", keys),
    ("http", http),
    ("conditional", conditional),
    ("gate", gate),
    ("trigger", trigger),
    ("origin", origin),
    ("rows", rows),
    ("worker_rows", worker_rows),
];

/// A message is parsed strictly or refused; a parsed message survives a round trip through JSON.
pub fn message(bytes: &[u8]) {
    let Ok(message) = Message::parse(bytes) else { return };
    let json = message.to_json().expect("a parsed message is serializable");
    let again = Message::parse(json.as_bytes()).expect("a serialized message parses");
    assert_eq!(again, message);
    let config = Config::parse(CONFIG).expect("the sample configuration");
    if let Ok(accepted) = config.accept(message, None, "m-1") {
        assert!(config.tenant(&accepted.request.tenant).is_some(), "an accepted request is for a known tenant");
    }
}

/// A configuration is parsed or refused with a message; a parsed one resolves paths without a
/// panic.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::parse(text) {
        Ok(config) => {
            for tenant in config.tenants() {
                for host in &tenant.hosts {
                    let found = config.tenant_of_host(host).map(|found| &found.tenant);
                    assert_eq!(found, Some(&tenant.tenant), "each host resolves to its tenant");
                }
                for path in ["/", "/a/b?c=d", "/products/1?color=red&color=blue"] {
                    let _ = tenant.resolve(path);
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Every accepted key is canonical and contains no separator of another key part.
pub fn keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(normal) = NormalPath::parse(text)
        && let Ok(path) = normal.keep(&["a", "color", "page"])
    {
        let canonical = path.as_str();
        assert_eq!(CanonicalPath::stored(canonical).as_ref(), Some(&path), "a canonical path stays as it is");
        assert!(canonical.starts_with('/') && canonical.is_ascii());
        assert!(!canonical.contains("//") && !canonical.contains(['#', '\\', ';', ' ']));
        assert!(!canonical.bytes().any(|byte| byte.is_ascii_control()));
    }
    if let Ok(tenant) = Tenant::parse(text) {
        assert!(!tenant.as_str().contains(['#', '/', '.', ' ']), "{tenant}");
    }
    if let Ok(key) = IdempotencyKey::parse(text) {
        assert_eq!(key.as_str(), text);
        assert!(!text.contains(['#', '/']));
    }
    if let Ok(tag) = Tag::parse(text) {
        assert!(!tag.as_str().contains([',', '#', ' ']));
    }
    if let Ok(handle) = text.parse::<Handle>() {
        assert_eq!(handle.to_string(), text);
    }
}

/// An HTTP event is a request or an error; an error does not echo the target.
pub fn http(bytes: &[u8]) {
    let Ok(event) = serde_json::from_slice::<HttpEvent>(bytes) else { return };
    let request = Request::from(event);
    let config = Config::parse(CONFIG).expect("the sample configuration");
    let page_error = match (Method::parse(&request.method), request.header("host")) {
        (None, _) => PageError::Method,
        (Some(_), None) => PageError::Host,
        (Some(_), Some(host)) => match config.tenant_of_host(host).map(|tenant| tenant.resolve(&request.target)) {
            None => PageError::Host,
            Some(Err(error)) => error.into(),
            Some(Ok(resolved)) => {
                assert!(resolved.page.path().as_str().starts_with('/'));
                return;
            }
        },
    };
    let keys = PreviewKeys::parse("0123456789abcdef0123456789abcdef").expect("long enough");
    let acme = Tenant::parse("acme").expect("a tenant");
    let cookie = request.cookie("everfresh-preview").unwrap_or_default();
    assert!(!keys.admits(cookie, &acme, 0), "an unsigned cookie is refused");
    let answer = serde_json::to_string(&HttpAnswer::from(page_error.reply())).expect("an answer is JSON");
    assert!(request.target.len() < 8 || !answer.contains(&request.target));
}

/// Conditional headers are parsed without a panic, and match only if they contain the ETag.
pub fn conditional(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let etag = "\"0123456789abcdef\"";
    if any_match(&text, etag) {
        assert!(text.trim_matches([' ', '\t']) == "*" || text.contains("0123456789abcdef"));
    }
    unmodified_since(&text, 1_763_270_000);
    let reply = Reply::new(200).body(bytes.to_vec());
    serde_json::to_string(&HttpAnswer::from(reply)).expect("any body is serializable");
}

/// An origin's response is published, or it is a bypass or a failure; a published one never sets a
/// cookie.
pub fn gate(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(200);
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect();
    let rendered = Rendered { status, headers, body: body.to_owned().into(), declared_bytes: None };
    let page = CanonicalPath::stored("/products/1").expect("canonical");
    let rules = GateRules::default();
    let hosts = ["www.acme.example".to_owned()];
    let gate = Gate {
        page: &page,
        rules: &rules,
        origin_rules: OriginRules::default(),
        pass_when: &[],
        hosts: &hosts,
        site: &hosts[0],
        max_bytes: 1 << 20,
        has_page: true,
        previous_bytes: None,
    };
    if let Verdict::Store(passed) = gate.judge(rendered) {
        let headers = passed.artifact.headers();
        assert!(headers.iter().all(|(name, _)| name != "set-cookie" && name != "cache-control"));
        assert!(headers.iter().all(|(_, value)| !value.contains(['\r', '\n', '\0'])));
    }
}

/// A trigger request is accepted only with a valid signature, and a signature is valid only for its
/// own request. Input: one line each for method, path and query, key id, signature, time, nonce,
/// request id; then an empty line and the body.
pub fn trigger(bytes: &[u8]) {
    const NOW_MS: u64 = 1_763_270_000_000;
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut lines = head.split('\n');
    let mut line = || lines.next().unwrap_or_default();
    let (method, target, key_id, signature) = (line(), line(), line(), line());
    let (timestamp, nonce, request_id) = (line(), line(), line());
    match Endpoint::find(method, target) {
        Ok(Endpoint::Revalidate { query }) => {
            assert!(reserved(target), "the path is reserved");
            if let Ok(RevalidateTarget::Path(name) | RevalidateTarget::Tag(name)) =
                RevalidateTarget::parse(query, body.as_bytes())
            {
                assert!(
                    body.contains('{') && (body.contains('\\') || body.contains(&name)),
                    "the path or tag comes from the body"
                );
            }
        }
        Ok(Endpoint::Request { handle, query }) => {
            assert!(reserved(target), "the path is reserved");
            let _ = (handle.parse::<Handle>(), parse_after(query));
        }
        Err(error) => drop(HttpAnswer::from(error.reply())),
    }
    if let Ok(keys) = RevalidateKeys::parse(body) {
        assert!(!format!("{keys:?}").contains(body) || body.len() < 32, "Debug output contains no secret");
    }

    let keys = RevalidateKeys::parse("cms:0123456789abcdef0123456789abcdef").expect("long enough");
    let request =
        SignedRequest { method, host: "www.acme.example", target, timestamp, nonce, request_id, body: body.as_bytes() };
    assert!(keys.admit(key_id, signature, &request, NOW_MS).is_err(), "a forged signature is refused");
    let signed = keys.sign("cms", &request).expect("a known key");
    if let Ok(admitted) = keys.admit("cms", &signed, &request, NOW_MS) {
        assert_eq!(admitted.nonce, nonce);
        assert!(
            admitted.keep_until > NOW_MS / 1000 + WINDOW_S,
            "the nonce is kept as long as a replay would be accepted"
        );
        let longer = [body.as_bytes(), b"!"].concat();
        let others = [
            SignedRequest { body: &longer, ..request },
            SignedRequest { host: "www.globex.example", ..request },
            SignedRequest { method: "PUT", ..request },
            SignedRequest { request_id: "another", ..request },
        ];
        for other in others {
            let same = other.text() == request.text();
            assert_eq!(
                keys.admit("cms", &signed, &other, NOW_MS).is_ok(),
                same,
                "the signature is valid for one request only"
            );
        }
    }
}

//! The bytes of an origin's response, through the HTTP client of the functions and the publish
//! gate.

use std::time::Duration;

use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::{CanonicalPath, Tenant};
use everfresh_core::domain::publish_gate::{Gate, GateRules, Verdict};
use everfresh_core::domain::response_sharing::OriginRules;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, fetch_over};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::{Builder, Runtime};

/// Small, so that inputs exceed it.
const MAX_BYTES: u64 = 256;

const TARGETED: [&str; 3] = ["everfresh-cdn-cache-control", "cdn-cache-control", "surrogate-control"];

/// A response is a page or a failure. No published page exceeds the limit or its declared length,
/// has an unknown transfer encoding, sets a cookie, or is marked private.
pub fn origin(bytes: &[u8]) {
    let result = RUNTIME.with(|runtime| runtime.block_on(fetch(bytes)));
    let rendered = match result {
        Ok(rendered) => rendered,
        Err(RenderFailure::Unreachable(_) | RenderFailure::Unreadable(_) | RenderFailure::TooLarge { .. }) => return,
        Err(failure) => panic!("unexpected failure of a response that ends with the connection: {failure:?}"),
    };
    assert!(rendered.body.len() as u64 <= MAX_BYTES, "the body exceeds the limit");
    if !is_published(rendered.clone()) {
        return;
    }
    assert!(rendered.declared_bytes.is_none_or(|declared| declared == rendered.body.len() as u64));
    // A header for caches like this one replaces the one for browsers (RFC 9213).
    if rendered.headers.iter().any(|(name, _)| TARGETED.contains(&name.as_str())) {
        return;
    }
    for (name, value) in &rendered.headers {
        check_published(name, value);
    }
    // The client may have parsed the head wrongly, so the raw head is checked too. An interim
    // response has its own head.
    if !bytes.starts_with(b"HTTP/1.1 1") {
        for (name, value) in head(bytes) {
            check_published(&name, &value);
        }
    }
}

/// Panics for a header that a published page must not have.
fn check_published(name: &str, value: &str) {
    match name {
        "set-cookie" => panic!("published with a cookie"),
        "transfer-encoding" => assert!(value.eq_ignore_ascii_case("chunked"), "published with {value:?}"),
        "cache-control" if !value.contains('"') => {
            // Any separator counts.
            for part in value.split([',', ';', ' ', '\t']) {
                let directive = part.split('=').next().unwrap_or_default().to_ascii_lowercase();
                assert!(directive != "private" && directive != "no-store", "published with {value:?}");
            }
        }
        _ => {}
    }
}

/// The header lines of the first head, parsed naively.
fn head(bytes: &[u8]) -> Vec<(String, String)> {
    let lines = bytes.split(|byte| *byte == b'\n').skip(1).map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = lines.take_while(|line| !line.is_empty()).map(String::from_utf8_lossy);
    let header = |line: std::borrow::Cow<'_, str>| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    lines.filter_map(header).collect()
}

fn is_published(rendered: Rendered) -> bool {
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
        max_bytes: MAX_BYTES,
        has_page: true,
        previous_bytes: None,
    };
    matches!(gate.judge(rendered), Verdict::Store(_))
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

async fn fetch(response: &[u8]) -> Result<Rendered, RenderFailure> {
    let origin = HttpOrigin::parse("http://origin.acme.example").expect("an origin");
    let tenant = Tenant::parse("acme").expect("a tenant");
    let request = OriginRequest {
        tenant: &tenant,
        path: "/products/1",
        host: "www.acme.example",
        headers: &[],
        added: &[],
        condition: None,
        max_bytes: MAX_BYTES,
        // Never reached: the connection always ends.
        time: Duration::from_secs(3600),
    };
    let (near, far) = duplex(64 * 1024);
    let (fetched, ()) = tokio::join!(fetch_over(near, &origin, request), respond_with(far, response));
    fetched
}

/// Reads a request, sends the response and closes the connection.
async fn respond_with(mut far: DuplexStream, response: &[u8]) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match far.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_closed) => return,
        }
    }
    // The client may close the connection before the end.
    let _ = far.write_all(response).await;
}

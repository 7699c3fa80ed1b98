//! An origin's answer, byte for byte, through the client that the functions use and through the publish gate.

use std::time::Duration;

use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::gate::{Gate, GateRules};
use everfresh_core::domain::page_key::{CanonicalPath, Tenant};
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, fetch_over};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::{Builder, Runtime};

/// Small, so that inputs get beyond it.
const MAX_BYTES: u64 = 256;

/// An answer is a page or a failure. No page is longer than the cap or than announced, has been decoded by half, sets a cookie, or is
/// marked as one reader's.
pub fn origin(bytes: &[u8]) {
    let answer = RUNTIME.with(|runtime| runtime.block_on(fetch(bytes)));
    let rendered = match answer {
        Ok(rendered) => rendered,
        Err(RenderFailure::Unreachable(_) | RenderFailure::Unreadable(_) | RenderFailure::TooLarge { .. }) => return,
        Err(failure) => panic!("an origin that answers and hangs up is never {failure:?}"),
    };
    assert!(rendered.body.len() as u64 <= MAX_BYTES, "never beyond the cap");
    if !is_published(rendered.clone()) {
        return;
    }
    assert!(rendered.declared_bytes.is_none_or(|declared| declared == rendered.body.len() as u64));
    for (name, value) in &rendered.headers {
        check_published(name, value);
    }
    // What the client made of the head could be wrong, so the head itself is looked at too. An interim answer has one of its own.
    if !bytes.starts_with(b"HTTP/1.1 1") {
        for (name, value) in head(bytes) {
            check_published(&name, &value);
        }
    }
}

/// Panics for a header that no published page has.
fn check_published(name: &str, value: &str) {
    match name {
        "set-cookie" => panic!("published with a cookie"),
        "transfer-encoding" => assert!(value.eq_ignore_ascii_case("chunked"), "published with {value:?}"),
        "cache-control" if !value.contains('"') => {
            // However the parts are separated.
            for part in value.split([',', ';', ' ', '\t']) {
                let directive = part.split('=').next().unwrap_or_default().to_ascii_lowercase();
                assert!(directive != "private" && directive != "no-store", "published with {value:?}");
            }
        }
        _ => {}
    }
}

/// The header lines of the first head, read as simply as can be.
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
    let gate = Gate { page: &page, rules: &rules, hosts: &hosts, max_bytes: MAX_BYTES, previous_bytes: None };
    gate.check(rendered).is_ok()
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

async fn fetch(answer: &[u8]) -> Result<Rendered, RenderFailure> {
    let origin = HttpOrigin::parse("http://origin.acme.example").expect("an origin");
    let tenant = Tenant::parse("acme").expect("a tenant");
    let request = OriginRequest {
        tenant: &tenant,
        path: "/products/1",
        host: "www.acme.example",
        headers: &[],
        max_bytes: MAX_BYTES,
        // Only an origin that holds the connection open could use it up.
        time: Duration::from_secs(3600),
    };
    let (near, far) = duplex(64 * 1024);
    let (fetched, ()) = tokio::join!(fetch_over(near, &origin, request), answer_with(far, answer));
    fetched
}

/// Reads a request, answers it and hangs up.
async fn answer_with(mut far: DuplexStream, answer: &[u8]) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match far.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_hung_up) => return,
        }
    }
    // A client that has seen enough hangs up before the end.
    let _ = far.write_all(answer).await;
}

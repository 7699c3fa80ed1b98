//! Requests and clients of the tests.
#![allow(dead_code, reason = "each suite uses its part")]

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::Tenant;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, OriginTimeouts, Origins, PassError, PassRequest, PassResponse};
use everfresh_testing::Server;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::BodyExt;

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Short, for tests that wait it out.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) static ACME: LazyLock<Tenant> = LazyLock::new(|| Tenant::parse("acme").unwrap());

pub(crate) fn page() -> OriginRequest<'static> {
    OriginRequest {
        tenant: &ACME,
        path: "/products/42?color=red",
        host: "www.acme.example",
        headers: &[],
        added: &[],
        condition: None,
        max_bytes: 1 << 20,
        time: LONG,
    }
}

pub(crate) fn origin(url: &str) -> HttpOrigin {
    HttpOrigin::parse(url).unwrap()
}

/// With loopback enabled, where the test servers are, and immediate reuse of connections.
pub(crate) fn origins() -> Origins {
    with(OriginTimeouts { min_idle: Duration::ZERO, ..OriginTimeouts::default() })
}

pub(crate) fn with(timeouts: OriginTimeouts) -> Origins {
    Origins::new(timeouts).with_loopback()
}

/// Fetches with a new pool.
pub(crate) async fn fetch(server: &Server, request: OriginRequest<'_>) -> Result<Rendered, RenderFailure> {
    origins().fetch(&origin(&server.url()), request).await
}

pub(crate) fn visit() -> PassRequest<'static> {
    PassRequest {
        tenant: &ACME,
        method: Method::GET,
        target: "/account?tab=orders",
        host: "www.acme.example",
        scheme: "https",
        client: Some("198.51.100.7"),
        headers: HeaderMap::new(),
        added: &[],
        body: Bytes::new(),
        time: LONG,
        upgrade: false,
    }
}

/// Passes a request on with a new pool.
pub(crate) async fn pass(server: &Server, request: PassRequest<'_>) -> Result<PassResponse, RenderFailure> {
    origins().pass(&origin(&server.url()), request).await
}

/// The whole body.
pub(crate) async fn read(response: PassResponse) -> Result<Bytes, PassError> {
    Ok(response.body.collect().await?.to_bytes())
}

pub(crate) fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let line =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    lines.iter().map(line).collect()
}

/// The header lines of a request, sorted, without the `host` of a test server.
pub(crate) fn sent_lines(request: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = request.trim_end().split("\r\n").skip(1).collect();
    lines.retain(|line| !line.starts_with("host: 127.0.0.1:"));
    lines.sort_unstable();
    lines
}

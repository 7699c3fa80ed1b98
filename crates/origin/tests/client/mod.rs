//! Requests and clients of the tests.
#![allow(dead_code, reason = "each suite uses its part")]

use std::sync::LazyLock;
use std::time::Duration;

use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::Tenant;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginRequest, OriginTimeouts, Origins};
use everfresh_testing::Server;

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

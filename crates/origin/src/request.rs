//! [`OriginRequest`]: a page to fetch.

use std::time::Duration;

use everfresh_core::domain::page_key::Tenant;
use everfresh_core::domain::validators::Condition;
use http::header::{HeaderName, HeaderValue};

/// A GET request to an origin.
#[derive(Clone, Copy, Debug)]
pub struct OriginRequest<'a> {
    /// Connections are never shared between tenants.
    pub tenant: &'a Tenant,
    /// Path and query as in a request line, beginning with `/`.
    pub path: &'a str,
    /// Host of the page's site, sent as `x-forwarded-host`.
    pub host: &'a str,
    /// More request headers. They can replace `accept` and `user-agent`, but not `host`,
    /// `x-forwarded-host`, `x-forwarded-proto` and `accept-encoding`; connection headers are
    /// dropped.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// The tenant's own headers, which replace those of the same name.
    pub added: &'a [(&'a str, &'a str)],
    /// Whether the origin may answer 304.
    pub condition: Option<Condition<'a>>,
    /// Limit for the size of the body.
    pub max_bytes: u64,
    /// Timeout of the whole fetch.
    pub time: Duration,
}

//! One line per request: what was answered, and why.
//!
//! The field `cache` is the outcome with its reason: the response's `Cache-Status`, so that a
//! developer who wonders why a page is not stored finds the reason in the log too. Queries, cookies
//! and addresses of visitors are not in the line.

use std::time::Duration;

use everfresh_core::domain::scrub;

use crate::http::Request;
use crate::http::reply::Reply;

/// The longest method that is shown: any text may be one.
const LONGEST_METHOD: usize = 20;

/// `time` is that until the reply's head; a passed body is sent after it.
pub(crate) fn log(request: &Request, tenant: Option<&str>, reply: &Reply, time: Duration) {
    let method: String = request.method.chars().take(LONGEST_METHOD).collect();
    let (page, status) = (scrub::path(&request.target), reply.status);
    let cache = reply.header("cache-status").unwrap_or("none");
    let duration_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        target: "everfresh_serve::access",
        tenant,
        method,
        page,
        status,
        cache,
        duration_ms,
        "{method} {page} {status} {cache} {duration_ms} ms"
    );
}

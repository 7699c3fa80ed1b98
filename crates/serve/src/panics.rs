//! A panic is a defect of Everfresh. It fails its own request and no other.
//!
//! Nothing that outlives a request is left half done: every lock is used after a panic as it is,
//! and a shared read that panicked is removed, so that the next request starts another.

use std::panic::AssertUnwindSafe;

use everfresh_core::metrics;
use futures::FutureExt;

use crate::metrics::MetricsBuffer;

/// None if `work` panicked, which is logged and counted. The panic's message may contain parts of
/// the request, so it is only in the line of the panic hook, which [`everfresh_core::logs`] scrubs
/// in Lambda.
pub(crate) async fn catch<T>(metrics: &MetricsBuffer, what: &'static str, work: impl Future<Output = T>) -> Option<T> {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    if result.is_err() {
        metrics.count(metrics::PANICS);
        tracing::error!(
            what,
            "{what} panicked; the instance continues; the panic's location and message are logged before this line"
        );
    }
    result.ok()
}

//! Metrics are added up and written as one line every ten seconds: a line per request would cost
//! more than serving it.
//!
//! Metrics that alarms wait for are written at once. If the sandbox ends before a line was written,
//! its metrics are lost.

use std::sync::{Mutex, MutexGuard, PoisonError};

use everfresh_core::domain::freshness::Freshness;
use everfresh_core::metrics::{self, Metric, Metrics};

const INTERVAL_MS: u64 = 10_000;

/// Written at once: alarms wait for them.
const URGENT: [Metric; 6] = [
    metrics::DYNAMODB_OUTAGE,
    metrics::S3_OUTAGE,
    metrics::SQS_OUTAGE,
    metrics::BODIES_LOST,
    metrics::UNAVAILABLE,
    metrics::PANICS,
];

#[derive(Debug, Default)]
pub(crate) struct MetricsBuffer(Mutex<Buffer>);

#[derive(Debug, Default)]
struct Buffer {
    metrics: Metrics,
    written_ms: u64,
}

impl MetricsBuffer {
    pub(crate) fn count(&self, metric: Metric) {
        self.locked().metrics.count(metric);
    }

    pub(crate) fn record(&self, metric: Metric, value: u64) {
        self.locked().metrics.record(metric, value);
    }

    /// Counts how fresh a page was when a request arrived.
    pub(crate) fn count_freshness(&self, freshness: &Freshness) {
        self.count(match freshness {
            Freshness::Fresh { .. } => metrics::FRESH,
            Freshness::Stale { .. } => metrics::STALE,
            Freshness::Expired { .. } => metrics::EXPIRED,
            Freshness::Missing => metrics::MISSING,
            Freshness::Bypass { .. } => metrics::BYPASS,
            // Counted with the error response.
            Freshness::Gone => return,
        });
    }

    /// A line of the embedded metric format, if one is due.
    pub(crate) fn line(&self, stack_name: &str, now_ms: u64) -> Option<String> {
        let mut buffer = self.locked();
        let Buffer { metrics, written_ms } = &mut *buffer;
        let urgent = URGENT.iter().any(|metric| metrics.total(*metric) > 0);
        let due = urgent || metrics.is_full() || now_ms.abs_diff(*written_ms) >= INTERVAL_MS;
        if !due || metrics.is_empty() {
            return None;
        }
        *written_ms = now_ms;
        Some(std::mem::take(metrics).line("serve", stack_name, now_ms))
    }

    pub(crate) fn take(&self) -> Metrics {
        std::mem::take(&mut self.locked().metrics)
    }

    fn locked(&self) -> MutexGuard<'_, Buffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

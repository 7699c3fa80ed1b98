//! What an instance counts, and when it tells.
//!
//! A log line per reader would cost more than serving them. An instance adds up and tells every ten seconds, at once if something is
//! wrong; what it has not told when its sandbox is taken away is lost, and nothing but figures is.

use std::sync::{Mutex, MutexGuard, PoisonError};

use everfresh_core::domain::freshness::Freshness;
use everfresh_core::metrics::{self, Metric, Metrics};

use crate::serve::Server;

const EVERY_MS: u64 = 10_000;

/// Metrics that are told at once: alarms wait for them.
const URGENT: [Metric; 6] = [
    metrics::DYNAMODB_OUTAGE,
    metrics::S3_OUTAGE,
    metrics::SQS_OUTAGE,
    metrics::BODIES_LOST,
    metrics::UNAVAILABLE,
    metrics::PANICS,
];

/// What was counted, and when it was last told.
#[derive(Debug, Default)]
pub(crate) struct MetricsBuffer(Mutex<(Metrics, u64)>);

impl MetricsBuffer {
    fn locked(&self) -> MutexGuard<'_, (Metrics, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    pub(crate) fn count(&self, metric: Metric) {
        self.telling.locked().0.count(metric);
    }

    pub(crate) fn record(&self, metric: Metric, value: u64) {
        self.telling.locked().0.record(metric, value);
    }

    pub(crate) fn count_met(&self, met: &Freshness) {
        self.count(match met {
            Freshness::Fresh { .. } => metrics::FRESH,
            Freshness::Stale { .. } => metrics::STALE,
            Freshness::Expired { .. } => metrics::EXPIRED,
            Freshness::Missing => metrics::MISSING,
            // Counted with the refusal.
            Freshness::Gone => return,
        });
    }

    /// A line of the embedded metric format, if it is time for one.
    pub fn metrics_line(&self, now_ms: u64) -> Option<String> {
        let mut telling = self.telling.locked();
        let (metrics, told_ms) = &mut *telling;
        let urgent = URGENT.iter().any(|metric| metrics.total(*metric) > 0);
        let due = urgent || metrics.is_full() || now_ms.abs_diff(*told_ms) >= EVERY_MS;
        if !due || metrics.is_empty() {
            return None;
        }
        *told_ms = now_ms;
        Some(std::mem::take(metrics).line("serve", &self.settings.stack_name, now_ms))
    }

    /// What was counted since the last time.
    pub fn take_metrics(&self) -> Metrics {
        std::mem::take(&mut self.telling.locked().0)
    }
}

//! Every metric by its name, and CloudWatch's embedded metric format: one log line per batch,
//! without a call or an agent. A log that fails loses only the metrics.

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub const NAMESPACE: &str = "Everfresh";

/// A metric. Each outcome has a metric of its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
}

const fn count(name: &'static str) -> Metric {
    Metric { name, unit: "Count" }
}

pub const RECEIVED: Metric = count("received");
/// A new version was published.
pub const COMMITTED: Metric = count("committed");
/// The content did not change.
pub const UNCHANGED: Metric = count("unchanged");
/// Commits of a version without a body: the origin answers each reader by itself.
pub const BYPASSED: Metric = count("bypassed");
/// Published pages that their origin took down.
pub const WITHDRAWN: Metric = count("withdrawn");
/// Withdrawals that were refused because the tenant has had too many.
pub const WITHDRAWALS_REFUSED: Metric = count("withdrawals_refused");
/// The published version covered the request.
pub const ALREADY_COVERED: Metric = count("already_covered");
/// The request had been completed before.
pub const REPLAYED: Metric = count("replayed");
/// The request cannot be handled now.
pub const BUSY: Metric = count("busy");
/// Of `busy`: another worker holds the page's lease or the request's claim.
pub const LOCK_CONTENTION: Metric = count("lock_contention");
/// Of `busy`: the sender computed another page than the worker.
pub const CONFIGURATION_SKEW: Metric = count("configuration_skew");
/// Of `busy`: the page is published or the tag invalidated, but CDN or subscribers have not been
/// notified yet.
pub const NOTIFICATIONS_PENDING: Metric = count("notifications_pending");
/// Sent so close to the published render that their order cannot be decided.
pub const TOO_CLOSE: Metric = count("too_close");
/// Another worker published first.
pub const SUPERSEDED: Metric = count("superseded");
pub const PINNED: Metric = count("pinned");
pub const FAILED: Metric = count("failed");
/// Sent to the dead-letter queue.
pub const REJECTED: Metric = count("rejected");
/// Of `rejected`: one key for two different requests. Alarm on it.
pub const KEY_CONFLICTS: Metric = count("key_conflicts");
/// Of `rejected`: a message of a contract version that this worker does not know. Its producer was
/// deployed before the worker; redrive it when the worker is.
pub const UNKNOWN_VERSION: Metric = count("unknown_version");
/// Requests that caused no render because another one covers them.
pub const DUPLICATES_PREVENTED: Metric = count("duplicates_prevented");
/// From a message's sending to its page's commit.
pub const REGENERATION_TIME: Metric = Metric { name: "regeneration_time", unit: "Milliseconds" };

/// Readers that got a fresh page.
pub const FRESH: Metric = count("fresh");
/// Readers that got a stale page at once.
pub const STALE: Metric = count("stale");
/// Readers that requested a page beyond its max-stale.
pub const EXPIRED: Metric = count("expired");
/// Readers that requested a page that has never been published.
pub const MISSING: Metric = count("missing");
/// Reads of pages whose origin answers each reader by itself.
pub const BYPASS: Metric = count("bypass");
/// Requests that were passed to an origin, for whatever reason.
pub const PASSED: Metric = count("passed");
/// Readers that requested a purged page.
pub const GONE: Metric = count("gone");
/// Readers that had the page already: 304.
pub const NOT_MODIFIED: Metric = count("not_modified");
/// Readers that were refused: method, host, path.
pub const REFUSED: Metric = count("refused");
/// Readers that got an error in place of a page: 503, 500 after a panic, or 502 for a preview.
pub const UNAVAILABLE: Metric = count("unavailable");
/// Requests, or deferred work after their responses, that panicked: a defect of Everfresh. The log
/// has the location.
pub const PANICS: Metric = count("panics");
/// Responses without a read of DynamoDB or S3.
pub const MEMORY_HITS: Metric = count("memory_hits");
/// Regenerations that readers enqueued.
pub const ENQUEUED: Metric = count("enqueued");
/// Regenerations that were not enqueued because this instance has just enqueued them, or because
/// sends to SQS are suspended after a failure.
pub const ENQUEUES_SUPPRESSED: Metric = count("enqueues_suppressed");
/// Regenerations that were not enqueued because of the rate limit.
pub const ENQUEUES_LIMITED: Metric = count("enqueues_limited");
/// Regenerations that a signed HTTP request enqueued.
pub const TRIGGERED: Metric = count("triggered");
/// Trigger requests without a valid signature, or replayed ones.
pub const TRIGGERS_UNSIGNED: Metric = count("triggers_unsigned");
/// Signed HTTP requests that were refused by the rate limit.
pub const TRIGGERS_LIMITED: Metric = count("triggers_limited");
/// Bodies that META points at and the bucket does not have, or that are too large to be served.
pub const BODIES_LOST: Metric = count("bodies_lost");
/// Reads of a page and trigger requests for which a DynamoDB call failed.
pub const DYNAMODB_OUTAGE: Metric = count("dynamodb_outage");
/// Reads of a page for which an S3 call failed.
pub const S3_OUTAGE: Metric = count("s3_outage");
/// Messages of readers and trigger requests that could not be sent to SQS.
pub const SQS_OUTAGE: Metric = count("sqs_outage");
/// How long a page had been stale when it was served; 0 if it was fresh.
pub const STALENESS: Metric = Metric { name: "staleness", unit: "Milliseconds" };

/// Pages that a sweep judged.
pub const PAGES_SWEPT: Metric = count("pages_swept");
/// Pages that a sweep removed whole.
pub const PAGES_EXPIRED: Metric = count("pages_expired");
/// Pages that a sweep left for the next one, because their lease was held.
pub const PAGES_BUSY: Metric = count("pages_busy");
/// Rows of kept versions that a sweep removed.
pub const VERSIONS_REMOVED: Metric = count("versions_removed");
/// Objects that a sweep removed.
pub const OBJECTS_REMOVED: Metric = count("objects_removed");
/// The size of these objects.
pub const BYTES_REMOVED: Metric = Metric { name: "bytes_removed", unit: "Bytes" };

/// CloudWatch takes at most this many values of one metric per line.
pub const MOST_VALUES: usize = 100;

/// The metrics of one batch of the worker, of some seconds of the serving function, or of one
/// invocation of the maintenance function.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    values: BTreeMap<Metric, Vec<u64>>,
}

impl Metrics {
    pub fn count(&mut self, metric: Metric) {
        match self.values.entry(metric).or_default().first_mut() {
            Some(total) => *total += 1,
            None => self.record(metric, 1),
        }
    }

    /// Adds one value of a distribution.
    pub fn record(&mut self, metric: Metric, value: u64) {
        self.values.entry(metric).or_default().push(value);
    }

    pub fn merge(&mut self, other: Metrics) {
        for (metric, values) in other.values {
            let own = self.values.entry(metric).or_default();
            match (metric.unit, own.first_mut()) {
                ("Count", Some(total)) => *total += values.iter().sum::<u64>(),
                _ => own.extend(values),
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether a distribution has reached [`MOST_VALUES`].
    pub fn is_full(&self) -> bool {
        self.values.values().any(|values| values.len() >= MOST_VALUES)
    }

    pub fn total(&self, metric: Metric) -> u64 {
        self.values.get(&metric).map_or(0, |values| values.iter().sum())
    }

    /// The batch as one line of the embedded metric format, of this service in this stack. An
    /// account may have several stacks.
    pub fn line(&self, service: &str, stack: &str, now_ms: u64) -> String {
        let declared: Vec<Value> =
            self.values.keys().map(|metric| json!({"Name": metric.name, "Unit": metric.unit})).collect();
        let mut line = json!({
            "_aws": {
                "Timestamp": now_ms,
                // Few dimensions with few values: what varies per page belongs in the logs.
                "CloudWatchMetrics": [{"Namespace": NAMESPACE, "Dimensions": [["service", "stack"]], "Metrics": declared}],
            },
            "service": service,
            "stack": stack,
        });
        for (metric, values) in &self.values {
            line[metric.name] = match values.as_slice() {
                [one] => json!(one),
                many => json!(many.iter().take(MOST_VALUES).collect::<Vec<_>>()),
            };
        }
        line.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_one_line_that_declares_its_metrics() {
        let mut metrics = Metrics::default();
        metrics.count(COMMITTED);
        metrics.count(COMMITTED);
        metrics.record(REGENERATION_TIME, 120);
        metrics.record(REGENERATION_TIME, 80);
        let line = metrics.line("worker", "everfresh", 1_763_270_000_000);
        assert_eq!(line.lines().count(), 1);
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["committed"], &line["regeneration_time"]), (&json!(2), &json!([120, 80])));
        let declared = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(declared["Namespace"], "Everfresh");
        assert_eq!(declared["Metrics"].as_array().unwrap().len(), 2);
        for dimension in declared["Dimensions"][0].as_array().unwrap() {
            assert!(line.get(dimension.as_str().unwrap()).is_some());
        }
        assert_eq!(metrics.total(COMMITTED), 2);
    }
}

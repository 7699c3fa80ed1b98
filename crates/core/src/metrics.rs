//! Every metric by its name, and how CloudWatch is told: one line of its embedded metric format per batch, read from the log. No
//! call, no agent, and a sink that fails costs nothing but the figure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The CloudWatch namespace.
pub const NAMESPACE: &str = "Everfresh";

/// A metric: its name and its unit. Names are words of the domain; outcomes count under their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// Its name in CloudWatch.
    pub name: &'static str,
    /// Its unit in CloudWatch.
    pub unit: &'static str,
}

const fn count(name: &'static str) -> Metric {
    Metric { name, unit: "Count" }
}

/// Records that came in.
pub const RECEIVED: Metric = count("received");
/// A new version was published.
pub const COMMITTED: Metric = count("committed");
/// The render gave what was there.
pub const UNCHANGED: Metric = count("unchanged");
/// Granted by what was published.
pub const ALREADY_COVERED: Metric = count("already_covered");
/// The same request again.
pub const REPLAYED: Metric = count("replayed");
/// Somebody or something is in the way.
pub const BUSY: Metric = count("busy");
/// Of those that are busy: somebody else holds the page's lease or the request's claim.
pub const LOCK_CONTENTION: Metric = count("lock_contention");
/// Of those that are busy: the sender computed another page than the worker.
pub const CONFIGURATION_SKEW: Metric = count("configuration_skew");
/// Of those that are busy: the page is published, but the CDN or the subscribers have not been told yet.
pub const NOTIFICATIONS_PENDING: Metric = count("notifications_pending");
/// Too close to the published render to tell which was first.
pub const TOO_CLOSE: Metric = count("too_close");
/// Somebody else published first.
pub const SUPERSEDED: Metric = count("superseded");
/// The page is pinned.
pub const PINNED: Metric = count("pinned");
/// An attempt failed.
pub const FAILED: Metric = count("failed");
/// Sent to the dead-letter queue.
pub const REJECTED: Metric = count("rejected");
/// Of those rejected: one key for two different requests. Alarm on it.
pub const HASH_MISMATCHES: Metric = count("hash_mismatches");
/// Of those rejected: a message of a contract version that this worker does not speak. Its producer was deployed before the worker;
/// redrive it when the worker is.
pub const UNKNOWN_VERSION: Metric = count("unknown_version");
/// Requests that caused no render because another one covers them.
pub const DUPLICATES_PREVENTED: Metric = count("duplicates_prevented");
/// From a message's sending to its page's commit.
pub const REGENERATION_TIME: Metric = Metric { name: "regeneration_time", unit: "Milliseconds" };

/// Readers that got a fresh page.
pub const FRESH: Metric = count("fresh");
/// Readers that got a stale page at once.
pub const STALE: Metric = count("stale");
/// Readers that met a page beyond its max-stale.
pub const EXPIRED: Metric = count("expired");
/// Readers that met no page at all.
pub const MISSING: Metric = count("missing");
/// Readers that met a purged page.
pub const GONE: Metric = count("gone");
/// Readers who had the page already: 304.
pub const NOT_MODIFIED: Metric = count("not_modified");
/// Readers who were refused: method, host, path.
pub const REFUSED: Metric = count("refused");
/// Readers who got an error although they asked for a page: 503, or 500 after a panic.
pub const UNAVAILABLE: Metric = count("unavailable");
/// Requests, or the work after their replies, that panicked: a defect of Everfresh. Where is on stderr.
pub const PANICS: Metric = count("panics");
/// Answers that cost no call.
pub const MEMORY_HITS: Metric = count("memory_hits");
/// Regenerations that readers asked for.
pub const ENQUEUED: Metric = count("enqueued");
/// Regenerations that were not asked for because this instance has just done so.
pub const ENQUEUES_SUPPRESSED: Metric = count("enqueues_suppressed");
/// Regenerations that were not asked for because readers have started too many.
pub const ENQUEUES_LIMITED: Metric = count("enqueues_limited");
/// Regenerations that were asked for by a signed HTTP request.
pub const TRIGGERED: Metric = count("triggered");
/// HTTP requests that should have been signed and were not, or not as they must be.
pub const TRIGGERS_UNSIGNED: Metric = count("triggers_unsigned");
/// Signed HTTP requests that were sent away because there were too many.
pub const TRIGGERS_LIMITED: Metric = count("triggers_limited");
/// Bodies that META points at and the bucket does not have.
pub const BODIES_LOST: Metric = count("bodies_lost");
/// Times the table did not answer a reader.
pub const DYNAMODB_OUTAGE: Metric = count("dynamodb_outage");
/// Times the bucket did not answer a reader.
pub const S3_OUTAGE: Metric = count("s3_outage");
/// Times the queue did not take a reader's request.
pub const SQS_OUTAGE: Metric = count("sqs_outage");
/// How long a page had been stale when it was served; 0 if it was fresh.
pub const STALENESS: Metric = Metric { name: "staleness", unit: "Milliseconds" };

/// The most values of one metric that a line carries; CloudWatch takes no more.
pub const MOST_VALUES: usize = 100;

/// What one batch adds up to.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    values: BTreeMap<Metric, Vec<u64>>,
}

impl Metrics {
    /// Counts one.
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

    /// Adds what another batch counted.
    pub fn merge(&mut self, other: Metrics) {
        for (metric, values) in other.values {
            let own = self.values.entry(metric).or_default();
            match (metric.unit, own.first_mut()) {
                ("Count", Some(total)) => *total += values.iter().sum::<u64>(),
                _ => own.extend(values),
            }
        }
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether a distribution has as many values as a line carries.
    pub fn is_full(&self) -> bool {
        self.values.values().any(|values| values.len() >= MOST_VALUES)
    }

    /// The total of a counter.
    pub fn total(&self, metric: Metric) -> u64 {
        self.values.get(&metric).map_or(0, |values| values.iter().sum())
    }

    /// The batch as one line of the embedded metric format, of this service in this stack: an account may have several.
    pub fn line(&self, service: &str, stack: &str, now_ms: u64) -> String {
        let declared: Vec<Value> =
            self.values.keys().map(|metric| json!({"Name": metric.name, "Unit": metric.unit})).collect();
        let mut line = json!({
            "_aws": {
                "Timestamp": now_ms,
                // Dimensions of few values: what varies per page belongs in the logs.
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
    fn a_batch_is_one_line_that_declares_what_it_carries() {
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

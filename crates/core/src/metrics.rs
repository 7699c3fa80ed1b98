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
/// Requests that caused no render because another one covers them.
pub const DUPLICATES_PREVENTED: Metric = count("duplicates_prevented");
/// From a message's sending to its page's commit.
pub const REGENERATION_TIME: Metric = Metric { name: "regeneration_time", unit: "Milliseconds" };

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

    /// The total of a counter.
    pub fn total(&self, metric: Metric) -> u64 {
        self.values.get(&metric).map_or(0, |values| values.iter().sum())
    }

    /// The batch as one line of the embedded metric format.
    pub fn line(&self, service: &str, now_ms: u64) -> String {
        let declared: Vec<Value> =
            self.values.keys().map(|metric| json!({"Name": metric.name, "Unit": metric.unit})).collect();
        let mut line = json!({
            "_aws": {
                "Timestamp": now_ms,
                // One dimension of few values: what varies per page belongs in the logs.
                "CloudWatchMetrics": [{"Namespace": NAMESPACE, "Dimensions": [["service"]], "Metrics": declared}],
            },
            "service": service,
        });
        for (metric, values) in &self.values {
            line[metric.name] = match values.as_slice() {
                [one] => json!(one),
                // CloudWatch takes at most a hundred values of one metric in a line.
                many => json!(many.iter().take(100).collect::<Vec<_>>()),
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
        let line = metrics.line("worker", 1_763_270_000_000);
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

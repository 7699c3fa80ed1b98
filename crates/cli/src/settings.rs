//! Settings of `dev`'s worker and server, read from the same variables and by the same code as in
//! the Lambda functions.
//!
//! Three differences from a deployment. The names of table, bucket and queues are ignored, because
//! `dev` creates its own. Both functions share one environment: `EVERFRESH_FUNCTION_TIMEOUT_MS`
//! applies to the worker, and the server has no function timeout. Some defaults are shorter, for
//! interactive use.

use everfresh_core::environment::{SettingsError, Variables};
use everfresh_core::stack::Stack;
use everfresh_serve::Settings as Serving;
use everfresh_worker::Settings as Worker;

/// Names of the resources that `dev` creates itself.
const PROVIDED: [&str; 5] = [
    "FACETHEORY_CACHE_TABLE_NAME",
    "EVERFRESH_BUCKET",
    "EVERFRESH_QUEUE_URL",
    "EVERFRESH_LOW_PRIORITY_QUEUE_URL",
    "EVERFRESH_DEAD_LETTER_QUEUE_URL",
];

const CONFIG: &str = "EVERFRESH_CONFIG";
const FUNCTION_TIMEOUT: &str = "EVERFRESH_FUNCTION_TIMEOUT_MS";

const FUNCTION_TIMEOUT_MS: u64 = 60_000;

/// Settings of the worker and the serving function. Table, bucket, queues and configuration are
/// placeholders until [`Settings::provide`].
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) worker: Worker,
    pub(crate) serving: Serving,
    /// Variables that are set but ignored.
    pub(crate) ignored: Vec<&'static str>,
    /// `EVERFRESH_CONFIG`, if it is set.
    pub(crate) config: Option<String>,
}

impl Settings {
    pub(crate) fn from_env() -> Result<Self, SettingsError> {
        Self::read(|variable| std::env::var(variable).ok())
    }

    fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variables = Variables::new(&get);
        let timeout_ms: u64 = variables.or(FUNCTION_TIMEOUT, FUNCTION_TIMEOUT_MS)?;
        let window_ms: u64 = variables.or("EVERFRESH_BATCHING_WINDOW_MS", 0)?;
        let placeholder =
            |variable: &str| (PROVIDED.contains(&variable) || variable == CONFIG).then(|| "placeholder".to_owned());
        let worker = Worker::read(|variable| {
            let default_ms = || {
                Some(match variable {
                    FUNCTION_TIMEOUT => timeout_ms,
                    "EVERFRESH_RENDER_DEADLINE_MS" => timeout_ms.saturating_mul(5) / 6,
                    "EVERFRESH_CLAIM_EXPIRY_MS" => timeout_ms.saturating_add(5_000),
                    "EVERFRESH_VISIBILITY_MS" => timeout_ms.saturating_mul(6).saturating_add(window_ms),
                    _ => return None,
                })
            };
            placeholder(variable).or_else(|| get(variable)).or_else(|| default_ms().map(|ms| ms.to_string()))
        })?;
        let serving = Serving::read(|variable| match variable {
            FUNCTION_TIMEOUT => None,
            // One visitor, who may open every page of a site.
            "EVERFRESH_ENQUEUES_PER_MINUTE" => get(variable).or_else(|| Some("6000".to_owned())),
            "EVERFRESH_DEBUG_HEADER" => get(variable).or_else(|| Some("true".to_owned())),
            _ => placeholder(variable).or_else(|| get(variable)),
        })?;
        let ignored = PROVIDED.into_iter().filter(|variable| variables.set(variable).is_some()).collect();
        Ok(Self { worker, serving, ignored, config: variables.set(CONFIG) })
    }

    /// Fills in the resources that `dev` has created.
    pub(crate) fn provide(&mut self, stack: &Stack, config: String) {
        self.serving.table = stack.table.clone();
        self.serving.bucket = stack.bucket.clone();
        self.serving.queue = stack.queue.clone();
        self.serving.config = config.clone();
        self.worker.stack = stack.clone();
        self.worker.config = config;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(|variable| set.iter().find(|(name, _)| *name == variable).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn variables_of_worker_and_serving_function_are_read() {
        let settings = read(&[
            ("EVERFRESH_DEPLOY", "7"),
            ("EVERFRESH_MAX_ATTEMPTS", "2"),
            ("EVERFRESH_CONCURRENCY", "3"),
            ("EVERFRESH_SINGLE_TENANT", "true"),
            ("EVERFRESH_CACHE_TTL_MS", "0"),
            ("EVERFRESH_WAIT_MS", "1000"),
            ("EVERFRESH_DEBUG_HEADER", "false"),
        ])
        .unwrap();
        let Settings { worker, serving, ignored, .. } = settings;
        assert_eq!((worker.regenerate.deploy, worker.regenerate.max_attempts, worker.concurrency), (7, 2, 3));
        assert_eq!((serving.deploy, serving.cache_ttl_ms, serving.wait_ms, serving.debug_header), (7, 0, 1_000, false));
        assert!(worker.layout.single_tenant && serving.layout.single_tenant && ignored.is_empty());
    }

    #[test]
    fn dependent_deadlines_follow_the_function_timeout() {
        let ladder = |set: &[(&str, &str)]| read(set).unwrap().worker.regenerate.ladder;
        let default = ladder(&[]);
        assert_eq!(
            (default.function_timeout_ms, default.render_deadline_ms, default.visibility_ms),
            (60_000, 50_000, 360_000)
        );
        let short = ladder(&[(FUNCTION_TIMEOUT, "6000"), ("EVERFRESH_BATCHING_WINDOW_MS", "500")]);
        assert_eq!((short.function_timeout_ms, short.render_deadline_ms, short.visibility_ms), (6_000, 5_000, 36_500));
        assert_eq!(ladder(&[("EVERFRESH_RENDER_DEADLINE_MS", "1000")]).render_deadline_ms, 1_000);
    }

    #[test]
    fn resource_names_are_ignored_and_listed() {
        let settings = read(&[("EVERFRESH_BUCKET", "production"), ("EVERFRESH_QUEUE_URL", "")]).unwrap();
        assert_eq!(settings.ignored, ["EVERFRESH_BUCKET"]);
        assert_ne!(
            (settings.serving.bucket.as_str(), settings.worker.stack.bucket.as_str()),
            ("production", "production")
        );
    }

    #[test]
    fn invalid_value_is_refused_with_its_variable() {
        for (variable, value) in [
            (FUNCTION_TIMEOUT, "soon"),
            ("EVERFRESH_MAX_ATTEMPTS", "many"),
            ("EVERFRESH_CACHE_TTL_MS", "-1"),
            ("EVERFRESH_EARLY_REFRESH_PERCENT", "51"),
            ("EVERFRESH_RAW_KEYS", "yes"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{variable}: ")), "{error}");
        }
        let error = read(&[("EVERFRESH_VISIBILITY_MS", "1000")]).unwrap_err().to_string();
        assert!(error.contains("EVERFRESH_VISIBILITY_MS (1000)"), "{error}");
    }
}

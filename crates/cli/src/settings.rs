//! The settings of `dev`'s worker and serving side: from the variables that the functions read, by the functions' own code.
//!
//! Three things are otherwise than in a deployment. What names the table, the bucket and the queues is not heeded, for `dev` has its own.
//! There is one environment for two functions: `EVERFRESH_FUNCTION_TIMEOUT_MS` is the worker's here, and nothing ends the serving side.
//! And some defaults are shorter, for somebody is waiting.

use everfresh_core::environment::{SettingsError, Variables};
use everfresh_core::stack::Stack;
use everfresh_serve::Settings as Serving;
use everfresh_worker::Settings as Worker;

/// What names the resources that `dev` provides itself.
const PROVIDED: [&str; 5] = [
    "FACETHEORY_CACHE_TABLE_NAME",
    "EVERFRESH_BUCKET",
    "EVERFRESH_QUEUE_URL",
    "EVERFRESH_LOW_PRIORITY_QUEUE_URL",
    "EVERFRESH_DEAD_LETTER_QUEUE_URL",
];

const CONFIG: &str = "EVERFRESH_CONFIG";
const FUNCTION_TIMEOUT: &str = "EVERFRESH_FUNCTION_TIMEOUT_MS";

/// The worker's time-out unless the environment has another one.
const FUNCTION_TIMEOUT_MS: u64 = 60_000;

/// The settings of both sides. Their table, bucket, queues and configuration are not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) worker: Worker,
    pub(crate) serving: Serving,
    /// Variables that are set and not heeded.
    pub(crate) ignored: Vec<&'static str>,
    /// `EVERFRESH_CONFIG`, if it is set.
    pub(crate) config: Option<String>,
}

impl Settings {
    /// Reads and checks the process's environment.
    pub(crate) fn from_env() -> Result<Self, SettingsError> {
        Self::read(|variable| std::env::var(variable).ok())
    }

    fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variables = Variables::new(&get);
        let time_out_ms: u64 = variables.or(FUNCTION_TIMEOUT, FUNCTION_TIMEOUT_MS)?;
        let window_ms: u64 = variables.or("EVERFRESH_BATCHING_WINDOW_MS", 0)?;
        let known_later =
            |variable: &str| (PROVIDED.contains(&variable) || variable == CONFIG).then(|| "known later".to_owned());
        let worker = Worker::read(|variable| {
            let default_ms = || {
                Some(match variable {
                    FUNCTION_TIMEOUT => time_out_ms,
                    "EVERFRESH_RENDER_DEADLINE_MS" => time_out_ms.saturating_mul(5) / 6,
                    "EVERFRESH_CLAIM_EXPIRY_MS" => time_out_ms.saturating_add(5_000),
                    "EVERFRESH_VISIBILITY_MS" => time_out_ms.saturating_mul(6).saturating_add(window_ms),
                    _ => return None,
                })
            };
            known_later(variable).or_else(|| get(variable)).or_else(|| default_ms().map(|ms| ms.to_string()))
        })?;
        let serving = Serving::read(|variable| match variable {
            FUNCTION_TIMEOUT => None,
            "EVERFRESH_DEBUG_HEADER" => get(variable).or_else(|| Some("true".to_owned())),
            _ => known_later(variable).or_else(|| get(variable)),
        })?;
        let ignored = PROVIDED.into_iter().filter(|variable| variables.set(variable).is_some()).collect();
        Ok(Self { worker, serving, ignored, config: variables.set(CONFIG) })
    }

    /// Puts in what `dev` provides.
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
    fn variables_of_both_functions_are_heeded() {
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
    fn a_time_out_takes_the_times_along_that_depend_on_it() {
        let ladder = |set: &[(&str, &str)]| read(set).unwrap().worker.regenerate.ladder;
        let usual = ladder(&[]);
        assert_eq!(
            (usual.function_timeout_ms, usual.render_deadline_ms, usual.visibility_ms),
            (60_000, 50_000, 360_000)
        );
        let short = ladder(&[(FUNCTION_TIMEOUT, "6000"), ("EVERFRESH_BATCHING_WINDOW_MS", "500")]);
        assert_eq!((short.function_timeout_ms, short.render_deadline_ms, short.visibility_ms), (6_000, 5_000, 36_500));
        assert_eq!(ladder(&[("EVERFRESH_RENDER_DEADLINE_MS", "1000")]).render_deadline_ms, 1_000);
    }

    #[test]
    fn resources_of_elsewhere_are_not_heeded_and_named() {
        let settings = read(&[("EVERFRESH_BUCKET", "production"), ("EVERFRESH_QUEUE_URL", "")]).unwrap();
        assert_eq!(settings.ignored, ["EVERFRESH_BUCKET"]);
        assert_ne!(
            (settings.serving.bucket.as_str(), settings.worker.stack.bucket.as_str()),
            ("production", "production")
        );
    }

    #[test]
    fn a_wrong_value_is_refused_by_the_name_of_its_variable() {
        for (variable, value) in [
            (FUNCTION_TIMEOUT, "soon"),
            ("EVERFRESH_MAX_ATTEMPTS", "many"),
            ("EVERFRESH_CACHE_TTL_MS", "-1"),
            ("EVERFRESH_EARLY_REFRESH_PERCENT", "51"),
            ("EVERFRESH_RAW_KEYS", "yes"),
        ] {
            let refusal = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("{variable}: ")), "{refusal}");
        }
        let refusal = read(&[("EVERFRESH_VISIBILITY_MS", "1000")]).unwrap_err().to_string();
        assert!(refusal.contains("visibility (1000 ms)"), "{refusal}");
    }
}

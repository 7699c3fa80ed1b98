//! The environment, read once at start. An error names the variables with invalid values.

use everfresh_core::config::Ladder;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::domain::publish_gate::MAX_BODY_BYTES;
use everfresh_core::environment::{SettingsError, Variables};
use everfresh_core::notifier::NotifierSettings;
use everfresh_core::regenerate;
use everfresh_core::stack::Stack;

#[derive(Clone, Debug)]
pub struct Settings {
    /// `EVERFRESH_CONFIG`: where `everfresh.toml` is, a path in the bundle or `s3://bucket/key`.
    pub config: String,
    /// `FACETHEORY_CACHE_TABLE_NAME`, `EVERFRESH_BUCKET`, `EVERFRESH_QUEUE_URL`,
    /// `EVERFRESH_LOW_PRIORITY_QUEUE_URL` and `EVERFRESH_DEAD_LETTER_QUEUE_URL`.
    pub stack: Stack,
    /// `EVERFRESH_SINGLE_TENANT` and `EVERFRESH_RAW_KEYS` (`true` or `false`): the key layout of a
    /// table shared with foreign writers.
    pub layout: KeyLayout,
    /// `EVERFRESH_DEPLOY`, `EVERFRESH_MAX_ATTEMPTS`, `EVERFRESH_MAX_BODY_BYTES`, and the ladder of
    /// deadlines: `EVERFRESH_RENDER_DEADLINE_MS`, `EVERFRESH_FUNCTION_TIMEOUT_MS`,
    /// `EVERFRESH_CLAIM_EXPIRY_MS`, `EVERFRESH_VISIBILITY_MS`, `EVERFRESH_BATCHING_WINDOW_MS`,
    /// `EVERFRESH_LEASE_MS`, `EVERFRESH_RENEW_INTERVAL_MS`, `EVERFRESH_EPSILON_MS`,
    /// `EVERFRESH_CLOCK_ERROR_MS`.
    pub regenerate: regenerate::Settings,
    /// `EVERFRESH_CDN_DISTRIBUTION`, `EVERFRESH_TAG_HEADER`, `EVERFRESH_EVENT_TARGET`: where
    /// notifications of published pages go.
    pub notifier: NotifierSettings,
    /// `EVERFRESH_STACK`: the metrics' dimension that distinguishes stacks.
    pub stack_name: String,
    /// `EVERFRESH_CONCURRENCY`: pages of one batch that are regenerated concurrently.
    pub concurrency: usize,
}

impl Settings {
    /// Reads and checks the process's environment.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|variable| std::env::var(variable).ok())
    }

    /// Reads and checks the variables that `get` returns.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variables = Variables::new(get);
        let default = Ladder::default();
        let ladder = Ladder {
            render_deadline_ms: variables.or("EVERFRESH_RENDER_DEADLINE_MS", default.render_deadline_ms)?,
            function_timeout_ms: variables.or("EVERFRESH_FUNCTION_TIMEOUT_MS", default.function_timeout_ms)?,
            claim_expiry_ms: variables.or("EVERFRESH_CLAIM_EXPIRY_MS", default.claim_expiry_ms)?,
            visibility_ms: variables.or("EVERFRESH_VISIBILITY_MS", default.visibility_ms)?,
            batching_window_ms: variables.or("EVERFRESH_BATCHING_WINDOW_MS", default.batching_window_ms)?,
            lease_ms: variables.or("EVERFRESH_LEASE_MS", default.lease_ms)?,
            renew_interval_ms: variables.or("EVERFRESH_RENEW_INTERVAL_MS", default.renew_interval_ms)?,
            epsilon_ms: variables.or("EVERFRESH_EPSILON_MS", default.epsilon_ms)?,
            clock_error_ms: variables.or("EVERFRESH_CLOCK_ERROR_MS", default.clock_error_ms)?,
        };
        ladder.check()?;
        Ok(Self {
            config: variables.needed("EVERFRESH_CONFIG")?,
            stack: Stack {
                table: variables.needed("FACETHEORY_CACHE_TABLE_NAME")?,
                bucket: variables.needed("EVERFRESH_BUCKET")?,
                queue: variables.needed("EVERFRESH_QUEUE_URL")?,
                low_priority_queue: variables.needed("EVERFRESH_LOW_PRIORITY_QUEUE_URL")?,
                dead_letter_queue: variables.needed("EVERFRESH_DEAD_LETTER_QUEUE_URL")?,
            },
            layout: variables.layout()?,
            regenerate: regenerate::Settings {
                ladder,
                deploy: variables.or("EVERFRESH_DEPLOY", 0)?,
                max_attempts: variables.or("EVERFRESH_MAX_ATTEMPTS", 5)?,
                max_body_bytes: variables.or("EVERFRESH_MAX_BODY_BYTES", MAX_BODY_BYTES)?,
            },
            notifier: NotifierSettings::read(&variables)?,
            stack_name: variables.stack_name(),
            concurrency: variables.or("EVERFRESH_CONCURRENCY", 10)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changed: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(|variable| {
            let found = changed.iter().find(|(name, _)| *name == variable).map(|(_, value)| (*value).to_owned());
            let needed = ["CONFIG", "TABLE_NAME", "BUCKET", "_URL"].iter().any(|end| variable.ends_with(end));
            found.or(needed.then(|| "x".to_owned()))
        })
    }

    #[test]
    fn missing_variable_is_named() {
        for variable in ["EVERFRESH_CONFIG", "FACETHEORY_CACHE_TABLE_NAME", "EVERFRESH_DEAD_LETTER_QUEUE_URL"] {
            let error = read(&[(variable, "")]).unwrap_err().to_string();
            assert_eq!(error, format!("{variable} is not set"));
        }
        assert!(read(&[]).is_ok());
    }

    #[test]
    fn invalid_value_is_refused_with_its_variable_name() {
        for (variable, value) in
            [("EVERFRESH_DEPLOY", "seven"), ("EVERFRESH_RAW_KEYS", "1"), ("EVERFRESH_LEASE_MS", "-1")]
        {
            let error = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{variable}: ")), "{error}");
        }
    }

    #[test]
    fn inconsistent_timeouts_are_refused() {
        let error = read(&[("EVERFRESH_VISIBILITY_MS", "1000")]).unwrap_err().to_string();
        assert!(error.contains("EVERFRESH_VISIBILITY_MS (1000)"), "{error}");
    }
}

//! The environment, read once at start. An error names the variable with an invalid value.

use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::environment::{SettingsError, Variables};

use crate::rounds::LEAST_TIME;

const FUNCTION_TIMEOUT: &str = "EVERFRESH_FUNCTION_TIMEOUT_MS";

#[derive(Clone, Debug)]
pub struct Settings {
    /// `EVERFRESH_CONFIG`: where `everfresh.toml` is, a path in the bundle or `s3://bucket/key`.
    pub config: String,
    /// `FACETHEORY_CACHE_TABLE_NAME`.
    pub table: String,
    /// `EVERFRESH_BUCKET`.
    pub bucket: String,
    /// `EVERFRESH_SINGLE_TENANT` and `EVERFRESH_RAW_KEYS` (`true` or `false`): the key layout of a
    /// table shared with foreign writers.
    pub layout: KeyLayout,
    /// `EVERFRESH_STACK`: the metrics' dimension that distinguishes stacks.
    pub stack_name: String,
    /// `EVERFRESH_FUNCTION_TIMEOUT_MS`: the function's Lambda timeout.
    pub function_timeout_ms: u64,
}

impl Settings {
    /// Reads and checks the process's environment.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|variable| std::env::var(variable).ok())
    }

    /// Reads and checks the variables that `get` returns.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let variables = Variables::new(get);
        let function_timeout_ms = variables.or("EVERFRESH_FUNCTION_TIMEOUT_MS", 900_000)?;
        let least_ms = LEAST_TIME.as_millis();
        if u128::from(function_timeout_ms) < least_ms {
            let why = format!("must be at least {least_ms}, or nothing would be swept");
            return Err(SettingsError::Invalid { variable: FUNCTION_TIMEOUT, why });
        }
        Ok(Self {
            config: variables.needed("EVERFRESH_CONFIG")?,
            table: variables.needed("FACETHEORY_CACHE_TABLE_NAME")?,
            bucket: variables.needed("EVERFRESH_BUCKET")?,
            layout: variables.layout()?,
            stack_name: variables.stack_name(),
            function_timeout_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changed: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(|variable| {
            let found = changed.iter().find(|(name, _)| *name == variable).map(|(_, value)| (*value).to_owned());
            let needed = ["CONFIG", "TABLE_NAME", "BUCKET"].iter().any(|end| variable.ends_with(end));
            found.or(needed.then(|| "x".to_owned()))
        })
    }

    #[test]
    fn missing_variable_is_named() {
        for variable in ["EVERFRESH_CONFIG", "FACETHEORY_CACHE_TABLE_NAME", "EVERFRESH_BUCKET"] {
            let error = read(&[(variable, "")]).unwrap_err().to_string();
            assert_eq!(error, format!("{variable} is not set"));
        }
        assert_eq!(read(&[]).unwrap().function_timeout_ms, 900_000);
    }

    #[test]
    fn timeout_too_short_for_a_part_is_refused() {
        let error = read(&[(FUNCTION_TIMEOUT, "64999")]).unwrap_err().to_string();
        assert!(error.starts_with("EVERFRESH_FUNCTION_TIMEOUT_MS: must be at least 65000"), "{error}");
        assert!(read(&[(FUNCTION_TIMEOUT, "65000")]).is_ok());
    }
}

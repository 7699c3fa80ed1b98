//! The environment of a function, read once at start. A wrong value is refused by the name of its
//! variable.

use std::fmt::Display;
use std::str::FromStr;

use crate::config::LadderError;
use crate::domain::page_key::KeyLayout;

/// What is wrong with the environment.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{variable} is not set")]
    Missing { variable: &'static str },
    #[error("{variable}: {why}")]
    Invalid { variable: &'static str, why: String },
    /// Values that do not fit together.
    #[error(transparent)]
    Ladder(#[from] LadderError),
}

/// Variables from the process's environment, or from `dev` and tests.
#[derive(Debug)]
pub struct Variables<Get>(Get);

impl<Get: Fn(&str) -> Option<String>> Variables<Get> {
    pub fn new(get: Get) -> Self {
        Self(get)
    }

    /// A variable that must be set.
    pub fn needed(&self, variable: &'static str) -> Result<String, SettingsError> {
        self.set(variable).ok_or(SettingsError::Missing { variable })
    }

    /// An optional variable. An empty one counts as not set.
    pub fn set(&self, variable: &'static str) -> Option<String> {
        (self.0)(variable).filter(|value| !value.is_empty())
    }

    pub fn or<T: FromStr<Err: Display>>(&self, variable: &'static str, default: T) -> Result<T, SettingsError> {
        match (self.0)(variable) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|error: T::Err| SettingsError::Invalid { variable, why: error.to_string() })
            }
        }
    }

    /// `EVERFRESH_STACK`: the stack's name among those of its account.
    pub fn stack_name(&self) -> String {
        self.set("EVERFRESH_STACK").unwrap_or_else(|| "everfresh".to_owned())
    }

    /// `EVERFRESH_SINGLE_TENANT` and `EVERFRESH_RAW_KEYS` (`true` or `false`): the key layout of a
    /// table that is shared with foreign writers.
    pub fn layout(&self) -> Result<KeyLayout, SettingsError> {
        Ok(KeyLayout {
            single_tenant: self.or("EVERFRESH_SINGLE_TENANT", false)?,
            raw_keys: self.or("EVERFRESH_RAW_KEYS", false)?,
        })
    }
}

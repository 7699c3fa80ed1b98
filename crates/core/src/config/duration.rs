//! Durations like `60s`, `5m`, `12h` and `1d`.

use std::fmt;

use serde::Deserialize;

/// A length of time in whole seconds, at most ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Duration(u64);

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a whole number with s, m, h or d, like \"60s\" or \"1d\", and at most ten years")]
pub struct DurationError;

const MAX_SECONDS: u64 = 10 * 365 * 24 * 3600;

impl Duration {
    /// Reads a whole number followed by one of `s`, `m`, `h` and `d`.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600)];
        for (unit, seconds) in units {
            let Some(number) = text.strip_suffix(unit) else {
                continue;
            };
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(DurationError);
            }
            let number: u64 = number.parse().map_err(|_| DurationError)?;
            let total = number.checked_mul(seconds).filter(|total| *total <= MAX_SECONDS);
            return total.map(Self).ok_or(DurationError);
        }
        Err(DurationError)
    }

    /// In seconds.
    pub fn seconds(self) -> u64 {
        self.0
    }
}

impl TryFrom<String> for Duration {
    type Error = DurationError;

    fn try_from(text: String) -> Result<Self, DurationError> {
        Self::parse(&text)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_a_unit_are_read() {
        for (text, seconds) in [("0s", 0), ("60s", 60), ("5m", 300), ("2h", 7200), ("1d", 86_400)] {
            assert_eq!(Duration::parse(text).unwrap().seconds(), seconds, "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "60", "s", "1.5h", "-1s", "+1s", "1 s", "1w", "1D", "10ms", "3651d", "99999999999999999999s"] {
            assert_eq!(Duration::parse(text), Err(DurationError), "{text:?}");
        }
    }
}

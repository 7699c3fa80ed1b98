//! The handle that `enqueue` prints: `<page hash>.<key>@<sent_ms>`.
//!
//! With the time of sending, a request that never gets a record has a definite end too. No key holds
//! an `@`.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;
use everfresh_core::domain::request::Handle;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentHandle {
    pub(crate) handle: Handle,
    /// Just before it was sent. None in a plain handle.
    pub(crate) sent_ms: Option<u64>,
}

impl fmt::Display for SentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.handle)?;
        self.sent_ms.map_or(Ok(()), |sent_ms| write!(f, "@{sent_ms}"))
    }
}

impl FromStr for SentHandle {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let named = || format!("{text:?}");
        let (handle, sent_ms) = match text.split_once('@') {
            Some((handle, sent_ms)) => {
                (handle, Some(sent_ms.parse().context("after the @: milliseconds").with_context(named)?))
            }
            None => (text, None),
        };
        Ok(Self { handle: handle.parse().with_context(named)?, sent_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_is_read_back_with_and_without_time() {
        for text in ["inval.order-1", "inval.order-1@1700000000000"] {
            assert_eq!(text.parse::<SentHandle>().unwrap().to_string(), text);
        }
        for text in ["inval.order-1@", "inval.order-1@soon", "@1", "inval.a@1@2"] {
            assert!(text.parse::<SentHandle>().is_err(), "{text}");
        }
    }
}

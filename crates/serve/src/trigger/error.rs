//! Requests below `/_everfresh/` that are refused, and what the caller can do about it.

use std::fmt::Write;

use everfresh_core::domain::request::IdempotencyKey;
use everfresh_core::metrics::{self, Metric};
use serde_json::json;

use super::replies::json_reply;
use crate::http::Reply;
use crate::page::error::PageError;

/// How many characters of the caller's own text are repeated.
const MOST_REPEATED: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerError {
    /// No such endpoint, or no key is configured.
    NotFound,
    Method {
        allowed: &'static str,
    },
    /// No tenant has this host.
    Host,
    /// The body exceeds [`super::endpoint::MOST_BODY_BYTES`].
    TooLarge,
    /// The signature is not accepted. One reply for all reasons: it must not help an attacker.
    Unsigned,
    /// Signed, but not valid.
    Bad {
        why: String,
        next: &'static str,
    },
    /// The table's keys are not hashes, so a handle names no row.
    RawKeys,
    /// The rate limit is exceeded.
    Limited {
        /// In seconds.
        retry_after: u64,
    },
    /// DynamoDB or SQS did not answer.
    Unavailable {
        /// In seconds.
        retry_after: u64,
        /// For the retry of a regeneration: the first attempt may have been enqueued.
        key: Option<IdempotencyKey>,
    },
}

impl TriggerError {
    /// `why` may repeat the caller's own text; it is cut, and escaped to ASCII.
    pub fn bad(why: &str, next: &'static str) -> Self {
        let mut plain = String::new();
        for character in why.chars().take(MOST_REPEATED) {
            match character {
                ' '..='~' => plain.push(character),
                // Writing to a string does not fail.
                _ => drop(write!(plain, "{}", character.escape_unicode())),
            }
        }
        TriggerError::Bad { why: plain, next }
    }

    pub(super) fn metric(&self) -> Option<Metric> {
        match self {
            TriggerError::Unsigned => Some(metrics::TRIGGERS_UNSIGNED),
            TriggerError::Limited { .. } => Some(metrics::TRIGGERS_LIMITED),
            // Counted as an outage of DynamoDB or SQS.
            TriggerError::Unavailable { .. } => None,
            TriggerError::NotFound
            | TriggerError::Method { .. }
            | TriggerError::Host
            | TriggerError::TooLarge
            | TriggerError::Bad { .. }
            | TriggerError::RawKeys => Some(metrics::REFUSED),
        }
    }

    pub fn reply(&self) -> Reply {
        let body = |error: &str, next: &str| json!({"error": error, "next": next});
        match self {
            TriggerError::NotFound => {
                let body = body("There is no such endpoint.", "Check the path, and whether a key is configured.");
                json_reply(404, &body)
            }
            TriggerError::Method { allowed } => {
                let body = body("This method is not allowed here.", "Use the one that `Allow` names.");
                json_reply(405, &body).with("allow", *allowed)
            }
            // As for pages.
            TriggerError::Host => PageError::Host.reply(),
            TriggerError::TooLarge => {
                json_reply(413, &body("The body is too large.", "Send one path or one tag, in at most 64 KiB."))
            }
            TriggerError::Unsigned => {
                let body = body(
                    "The request's signature is not accepted.",
                    "Sign method, host, path, time, nonce, x-request-id and body with a configured key, not more than 300 \
                     seconds ago, and use each nonce once.",
                );
                json_reply(401, &body).with("www-authenticate", "Everfresh")
            }
            TriggerError::Bad { why, next } => json_reply(400, &body(why, next)),
            TriggerError::RawKeys => json_reply(
                404,
                &body("The state of a page's request cannot be read with this table layout.", "Read the page itself."),
            ),
            TriggerError::Limited { retry_after } => {
                let body = body(
                    "Too many requests.",
                    "Send it again after Retry-After, with a new nonce and the same x-request-id.",
                );
                json_reply(429, &body).with("retry-after", retry_after.to_string())
            }
            TriggerError::Unavailable { retry_after, key } => {
                let body = match key {
                    Some(key) => json!({
                        "error": "It is not known whether the request was enqueued.",
                        "next": "Send it again after Retry-After, with a new nonce and `key` as x-request-id: if it was \
                                 enqueued, it counts once.",
                        "key": key.as_str(),
                    }),
                    None => body("The state cannot be read now.", "Send it again after Retry-After, with a new nonce."),
                };
                json_reply(503, &body).with("retry-after", retry_after.to_string())
            }
        }
    }
}

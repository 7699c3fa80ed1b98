//! What callers below `/_everfresh/` are refused with, and what they can do about it.

use std::fmt::Write;

use everfresh_core::domain::request::IdempotencyKey;
use serde_json::json;

use super::page_error::PageError;
use super::trigger::reply;
use crate::reply::Reply;

/// How much of a caller's own words is repeated to them.
const MOST_REPEATED: usize = 200;

/// Why something below `/_everfresh/` is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerError {
    /// There is no such endpoint, or all are switched off.
    NotFound,
    /// Another method than the endpoint's.
    Method {
        /// The endpoint's.
        allowed: &'static str,
    },
    /// A host that belongs to nobody here.
    Host,
    /// More than [`super::trigger::MOST_BODY_BYTES`].
    TooLarge,
    /// Not signed, or not as it must be. One answer for all, so that nobody learns how far they have come.
    Unsigned,
    /// Signed, but it makes no sense.
    Bad {
        /// What does not.
        why: String,
        /// What to do.
        next: &'static str,
    },
    /// The table's keys are not hashes, so a handle names no row.
    RawKeys,
    /// Too much at once.
    Limited {
        /// Worth trying again after so many seconds.
        retry_after: u64,
    },
    /// Table or queue do not answer.
    Unavailable {
        /// Worth trying again after so many seconds.
        retry_after: u64,
        /// Under which a regeneration may be asked for again: nobody knows whether it was the first time.
        key: Option<IdempotencyKey>,
    },
}

impl TriggerError {
    /// A request that makes no sense. Of `why`, which may repeat the caller's words, so much is told as fits, in plain characters.
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

    /// The answer.
    pub fn reply(&self) -> Reply {
        let said = |error: &str, next: &str| json!({"error": error, "next": next});
        match self {
            TriggerError::NotFound => {
                reply(404, &said("There is nothing here.", "Check the path, and whether the endpoint is switched on."))
            }
            TriggerError::Method { allowed } => {
                let said = said("Another method is needed here.", "Use the one that `Allow` names.");
                reply(405, &said).with("allow", *allowed)
            }
            // As readers get it.
            TriggerError::Host => PageError::Host.reply(),
            TriggerError::TooLarge => {
                let said = said("The body is too large.", "Ask for one path or one tag, in at most 64 KiB.");
                reply(413, &said)
            }
            TriggerError::Unsigned => {
                let said = said(
                    "The request is not signed as it must be.",
                    "Sign method, host, path, time, nonce, x-request-id and body with a configured key, not more than 300 \
                     seconds ago, and use each nonce once.",
                );
                reply(401, &said).with("www-authenticate", "Everfresh")
            }
            TriggerError::Bad { why, next } => reply(400, &said(why, next)),
            TriggerError::RawKeys => reply(
                404,
                &said("Requests for pages cannot be looked up in this table.", "Ask readers' pages what became of it."),
            ),
            TriggerError::Limited { retry_after } => {
                let said = said(
                    "Too many requests.",
                    "Send it again after Retry-After, with a new nonce and the same x-request-id.",
                );
                reply(429, &said).with("retry-after", retry_after.to_string())
            }
            TriggerError::Unavailable { retry_after, key } => {
                let said = match key {
                    Some(key) => json!({
                        "error": "It is not known whether the request has arrived.",
                        "next": "Send it again after Retry-After, with a new nonce and `key` as x-request-id: if it did arrive, it \
                                 counts once.",
                        "key": key.as_str(),
                    }),
                    None => said("This cannot be told now.", "Ask again after Retry-After, with a new nonce."),
                };
                reply(503, &said).with("retry-after", retry_after.to_string())
            }
        }
    }
}

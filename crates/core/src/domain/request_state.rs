//! What became of a request without a record, as far as the rows of its page say.
//!
//! A request has no record before its first delivery, and never gets one if it ends there: another
//! request's version covers it, or the page is pinned. META and HEALTH then hold its end, and LOCK,
//! the pauses and the queues say what it waits for.
//!
//! A request of a batch that another one led is acknowledged with that one's commit, however short
//! before the render it was sent. Coverage could not decide that later, so META has the newest sent
//! time of the messages that had been received when its render began. The sender's clock and the
//! queue's differ by less than epsilon: a request that seems to be sent so little later may have been
//! in hand. If not, it is rendered as soon as its order is known, or is still in a queue: it counts
//! as done if by then the queues are known to be empty.

use everfresh_enqueue::Reason;
use serde_json::{Value, json};

use crate::domain::coverage::{Coverage, CoverageQuery, coverage};
use crate::domain::freshness::{Freshness, Policy};
use crate::domain::health::Health;
use crate::domain::page::{LockRow, Meta};
use crate::domain::seconds;
use crate::domain::version::Version;

/// Everything that the state follows from, read at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// `Changed` if it is not known: a version that covers a `changed` request covers any.
    pub reason: Reason,
    /// A moment after the change and no later than its message: the time before it was sent.
    pub sent_ms: u64,
    pub meta: Option<&'a Meta>,
    pub health: &'a Health,
    pub lock: Option<&'a LockRow>,
    /// Of `meta`. Unused for a `changed` request.
    pub freshness: Freshness,
    /// Only its epsilon counts for a `changed` request.
    pub policy: &'a Policy,
    /// Regeneration of the tenant is paused.
    pub paused: bool,
    /// Messages in the queues, those in flight included. None if they cannot be counted.
    pub queued: Option<u64>,
    pub now_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// The version of another request covers it.
    Completed {
        version: Option<Version>,
    },
    /// Another request's version without a body covers it: the origin answers each reader.
    Bypassed {
        version: Option<Version>,
    },
    /// The page is pinned, and has recorded the change.
    Pinned,
    Waiting {
        why: Waiting,
    },
    /// Neither done nor in a queue: rejected before its first attempt, or its message is not counted
    /// yet.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The published render began so close to its sending that their order is not known.
    TooClose {
        /// When it is decided.
        until_ms: u64,
    },
    /// A worker renders the page.
    Leased {
        /// When its lease runs out unless renewed.
        until_ms: u64,
    },
    /// The page failed lately.
    Cooldown { until_ms: u64 },
    /// Regeneration is paused.
    Paused,
    Queued {
        /// Messages of all pages.
        messages: u64,
    },
}

impl RequestState {
    /// The word on the command line and in replies.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestState::Completed { .. } => "completed",
            RequestState::Bypassed { .. } => "bypassed",
            RequestState::Pinned => "pinned",
            RequestState::Waiting { .. } => "waiting",
            RequestState::Unknown => "unknown",
        }
    }
}

impl RequestState {
    /// Fields of a JSON object, in addition to `state`.
    pub fn details(self) -> Value {
        match self {
            RequestState::Completed { version } | RequestState::Bypassed { version } => {
                json!({"version": version.map(|version| version.to_string())})
            }
            RequestState::Waiting { why } => match why {
                Waiting::TooClose { until_ms } | Waiting::Leased { until_ms } | Waiting::Cooldown { until_ms } => {
                    json!({"why": why.as_str(), "until_ms": until_ms})
                }
                Waiting::Queued { messages } => json!({"why": why.as_str(), "messages": messages}),
                Waiting::Paused => json!({"why": why.as_str()}),
            },
            RequestState::Pinned | RequestState::Unknown => json!({}),
        }
    }
}

impl Waiting {
    /// The word on the command line and in replies.
    pub fn as_str(self) -> &'static str {
        match self {
            Waiting::TooClose { .. } => "too_close",
            Waiting::Leased { .. } => "leased",
            Waiting::Cooldown { .. } => "cooldown",
            Waiting::Paused => "paused",
            Waiting::Queued { .. } => "queued",
        }
    }
}

/// In the order of the worker's plan: coverage, pin, then what keeps the page from being rendered.
/// Before them the batches of which no message comes back.
pub fn request_state(situation: &Situation<'_>) -> RequestState {
    let Situation { reason, sent_ms, meta, freshness, policy, now_ms, .. } = *situation;
    let done = |meta: Option<&Meta>| {
        let version = meta.and_then(|meta| meta.version);
        match meta.and_then(|meta| meta.bypass) {
            Some(_) => RequestState::Bypassed { version },
            None => RequestState::Completed { version },
        }
    };
    let newest_sent_ms = meta.and_then(|meta| meta.newest_sent_ms);
    if newest_sent_ms >= Some(sent_ms) {
        return done(meta);
    }
    let may_have_been_in_hand = newest_sent_ms.map(|at_ms| at_ms.saturating_add(policy.epsilon_ms)) >= Some(sent_ms);
    let too_close_until_ms = match coverage(&CoverageQuery { reason, sent_ms }, meta, freshness, policy, now_ms) {
        Coverage::Covered => return done(meta),
        Coverage::TooClose { until_ms } => Some(until_ms),
        Coverage::NotCovered => None,
    };
    let rendered_by_ms = sent_ms.saturating_add(policy.epsilon_ms.saturating_mul(3));
    let in_doubt_until_ms = Some(rendered_by_ms).filter(|until_ms| may_have_been_in_hand && *until_ms > now_ms);
    let too_close_until_ms = too_close_until_ms.max(in_doubt_until_ms);
    if ended_by_pin(situation) {
        return RequestState::Pinned;
    }
    let lock = situation.lock.filter(|lock| lock.held(now_ms));
    let why = if let Some(until_ms) = too_close_until_ms {
        Waiting::TooClose { until_ms }
    } else if situation.paused {
        Waiting::Paused
    } else if let Some(until_ms) = situation.health.cooldown_until(now_ms) {
        Waiting::Cooldown { until_ms }
    } else if let Some(lock) = lock {
        Waiting::Leased { until_ms: seconds::to_ms(lock.lease_expires_at) }
    } else if let Some(messages @ 1..) = situation.queued {
        Waiting::Queued { messages }
    } else if may_have_been_in_hand && situation.queued == Some(0) {
        return done(meta);
    } else {
        return RequestState::Unknown;
    };
    RequestState::Waiting { why }
}

/// Whether the worker acknowledged it because of the pin. A `changed` request is acknowledged only
/// once HEALTH has recorded it, by the queue's clock; the others leave no trace.
fn ended_by_pin(situation: &Situation<'_>) -> bool {
    let health = situation.health;
    let recorded_ms = health.wanted_at_ms.map(|at_ms| at_ms.saturating_add(situation.policy.epsilon_ms));
    health.pinned()
        && match situation.reason {
            Reason::Changed => recorded_ms >= Some(situation.sent_ms),
            Reason::Expired | Reason::Prewarm => true,
        }
}

#[cfg(test)]
#[path = "request_state_tests.rs"]
mod tests;

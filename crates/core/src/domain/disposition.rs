//! What is done with a message on the queue.
//!
//! | Outcome | Disposition |
//! |---|---|
//! | Committed, Unchanged, Bypassed, AlreadyCovered, Replayed | Ack |
//! | Pinned | Ack; for `changed` only once HEALTH says that a change is waiting, else Retry |
//! | Busy: paused | `changed` and `prewarm` Retry, ever more rarely; `expired` Ack |
//! | Busy: cooldown, too many withdrawals, or a stale response of the origin's cache | `changed` Retry when it ends; `expired` and `prewarm` Ack |
//! | Failed, where nothing is published | `changed` and `prewarm` Retry; `expired` Ack: readers enqueue it again |
//! | Busy: anything else, TooClose, Superseded, Failed | Retry |
//! | Failed and not retryable, Rejected | Reject |
//!
//! A Retry becomes Reject with reason `waited` at receive count [`MAX_RECEIVES`], or one hour
//! before the queue would delete the message. No delay reaches past that moment, so no message
//! expires while it waits (I1, I6).

use everfresh_enqueue::Reason;

use crate::domain::outcome::{Busy, Outcome, RejectReason};
use crate::domain::seconds;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// How long the source queue keeps a message.
pub const RETENTION_MS: u64 = 13 * 24 * HOUR;

/// How long before the end of retention a message that waits is rejected.
pub const RETENTION_MARGIN_MS: u64 = HOUR;

/// The receive count at which a message that waits is rejected; the queue's own limit is 100.
pub const MAX_RECEIVES: u32 = 90;

/// SQS hides a message for at most this long after it was received.
pub const MAX_HIDDEN_MS: u64 = 12 * HOUR;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Delete it.
    Ack,
    /// Deliver it again.
    Retry {
        /// At least one.
        delay_s: u64,
    },
    /// Send it to the dead-letter queue, then delete it.
    Reject { reason: RejectReason },
}

/// One delivery of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When the message was sent, by the queue's clock.
    pub sent_ms: u64,
    /// When this delivery began, or earlier: the batching window may lie between.
    pub received_ms: u64,
    /// Number of deliveries, this one included.
    pub receive_count: u32,
    pub now_ms: u64,
    /// A random number; spreads messages that would come back together.
    pub jitter: u32,
}

pub fn disposition(outcome: &Outcome, reason: Reason, delivery: &Delivery) -> Disposition {
    use Disposition::{Ack, Reject};
    match outcome {
        Outcome::Committed { .. }
        | Outcome::Unchanged { .. }
        | Outcome::Bypassed { .. }
        | Outcome::AlreadyCovered
        | Outcome::Replayed => Ack,
        Outcome::Busy { why } => busy(*why, reason, delivery),
        // Exactly then, not later: the first message renders for all that were sent together.
        Outcome::TooClose { until_ms } => delivery.retry_at(*until_ms),
        Outcome::Superseded => delivery.retry_soon(SECOND, 30 * SECOND),
        Outcome::Pinned { wanted_recorded } => match reason {
            Reason::Changed if !wanted_recorded => delivery.retry_soon(SECOND, 30 * SECOND),
            Reason::Changed | Reason::Expired | Reason::Prewarm => Ack,
        },
        // An invented address, or a page whose origin is down: its readers are passed to the
        // origin.
        Outcome::Failed { nothing_published: true, .. } if reason == Reason::Expired => Ack,
        Outcome::Failed { class, .. } if !class.retryable() => Reject { reason: RejectReason::NotRetryable },
        Outcome::Failed { next_attempt_ms, .. } => delivery.retry_after(*next_attempt_ms),
        Outcome::Rejected { reason } => Reject { reason: *reason },
    }
}

fn busy(why: Busy, reason: Reason, delivery: &Delivery) -> Disposition {
    match why {
        Busy::Lease { until_ms } | Busy::Claim { until_ms } => {
            // A lease about to be renewed looks as if it were free in a moment. Waiting longer each
            // time keeps a message that meets a slow render far from the receive limit.
            let at_least = u64::from(delivery.receive_count.min(20)) * SECOND;
            delivery.retry_after(until_ms.max(delivery.now_ms.saturating_add(at_least)))
        }
        Busy::Cooldown { until_ms } => match reason {
            Reason::Changed => delivery.retry_after(until_ms),
            // Readers will enqueue it again; meanwhile the origin is spared.
            Reason::Expired | Reason::Prewarm => Disposition::Ack,
        },
        Busy::OriginStale { until_ms } => match reason {
            Reason::Changed => delivery.retry_after(until_ms),
            // The published version is newer than what the origin's cache has. Readers will enqueue
            // it again.
            Reason::Expired | Reason::Prewarm => Disposition::Ack,
        },
        Busy::Withdrawals { until_ms } => match reason {
            Reason::Changed => delivery.retry_after(until_ms),
            Reason::Expired | Reason::Prewarm => Disposition::Ack,
        },
        Busy::Paused => match reason {
            Reason::Changed | Reason::Prewarm => delivery.retry_while_paused(),
            // Readers will enqueue it again.
            Reason::Expired => Disposition::Ack,
        },
        Busy::LostLease | Busy::NoTime => delivery.retry_soon(SECOND, 30 * SECOND),
        Busy::OtherPage | Busy::OlderDeploy | Busy::NotificationPending { .. } | Busy::Unavailable => {
            delivery.retry_soon(5 * SECOND, 15 * MINUTE)
        }
    }
}

impl Delivery {
    /// The moment from which a message that still waits is rejected.
    pub fn give_up_ms(&self) -> u64 {
        self.sent_ms.saturating_add(RETENTION_MS - RETENTION_MARGIN_MS)
    }

    /// Redelivery after an eighth of the time since the message was sent, so that a pause of any
    /// length costs fewer deliveries than the queue allows: eighty in thirteen days.
    fn retry_while_paused(&self) -> Disposition {
        let waited_ms = self.now_ms.saturating_sub(self.sent_ms);
        let wait = (waited_ms / 8).max(MINUTE);
        let spread = u64::from(self.jitter) % (wait / 8 + 1);
        self.retry_at(self.now_ms.saturating_add(wait + spread))
    }

    /// Redelivery after `first_ms`, doubling with each delivery up to `most_ms`, spread by a
    /// quarter.
    fn retry_soon(&self, first_ms: u64, most_ms: u64) -> Disposition {
        let doublings = self.receive_count.saturating_sub(1).min(30);
        let wait = (first_ms << doublings).min(most_ms);
        let spread = u64::from(self.jitter) % (wait / 4 + 1);
        self.retry_at(self.now_ms.saturating_add(wait + spread))
    }

    /// Redelivery at `until_ms` or up to five seconds later.
    fn retry_after(&self, until_ms: u64) -> Disposition {
        let spread = u64::from(self.jitter) % (5 * SECOND + 1);
        self.retry_at(until_ms.saturating_add(spread))
    }

    /// Redelivery at `until_ms`, as far as the queue allows.
    fn retry_at(&self, until_ms: u64) -> Disposition {
        let give_up_ms = self.give_up_ms();
        if self.receive_count >= MAX_RECEIVES || self.now_ms >= give_up_ms {
            return Disposition::Reject { reason: RejectReason::Waited };
        }
        let latest_ms = self.received_ms.saturating_add(MAX_HIDDEN_MS).min(give_up_ms);
        let wanted = seconds::ceil(until_ms.saturating_sub(self.now_ms));
        let allowed = seconds::floor(latest_ms.saturating_sub(self.now_ms));
        Disposition::Retry { delay_s: wanted.min(allowed).max(1) }
    }
}

#[cfg(test)]
#[path = "disposition_tests.rs"]
mod tests;

//! Outcomes of an attempt to handle a request.

use crate::domain::bypass::BypassReason;
use crate::domain::version::Version;

/// The result of one delivery of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new version was published, or a tag's watermark was written.
    Committed {
        /// The version; a tag request has none.
        version: Option<Version>,
    },
    /// The content did not change; it was published again as a new version.
    Unchanged { version: Version },
    /// The origin's answer is not stored: a version without a body was published.
    Bypassed {
        version: Version,
        reason: BypassReason,
        /// A published page was taken down by it.
        withdrawn: bool,
    },
    /// The published version covers this request. Nothing was published; a record that an earlier
    /// delivery left is completed.
    AlreadyCovered,
    /// This request was completed before.
    Replayed,
    /// The request cannot be completed now. The attempt may have ended before or after its render.
    Busy { why: Busy },
    /// The published version's render began so close to the sending of the message that their order
    /// cannot be decided.
    TooClose {
        /// From this moment on a render is surely later.
        until_ms: u64,
    },
    /// Another worker published while this one rendered.
    Superseded,
    Pinned {
        /// HEALTH now says that a change is waiting; only `changed` requests need that.
        wanted_recorded: bool,
    },
    /// The attempt failed, and the record says so.
    Failed {
        class: ErrorClass,
        /// When the page's cooldown ends.
        next_attempt_ms: u64,
        /// Nothing is published: readers who still want the page enqueue it again.
        nothing_published: bool,
    },
    /// It will never be handled.
    Rejected { reason: RejectReason },
}

/// Why a request cannot be handled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Another worker holds the page's lease.
    Lease {
        /// When it runs out unless renewed.
        until_ms: u64,
    },
    /// Another worker has claimed this request.
    Claim {
        /// When its claim runs out.
        until_ms: u64,
    },
    /// The page failed lately.
    Cooldown {
        /// When it may be tried again.
        until_ms: u64,
    },
    /// Another worker took the lease over while this one rendered.
    LostLease,
    /// Too little time is left in this invocation to begin, or to finish.
    NoTime,
    /// The sender computed another page for this message: its configuration differs from this
    /// worker's.
    OtherPage,
    /// A newer deployment rendered the page; a worker of that deployment must handle this.
    OlderDeploy,
    /// A cache at the origin answered with a response from before the change, or one that may be
    /// older than the published version.
    OriginStale {
        /// When to render again.
        until_ms: u64,
    },
    /// The origin takes down so many pages of the tenant at once that a firewall in front of it is
    /// the likelier reason. The page stays published.
    Withdrawals {
        /// When to try again.
        until_ms: u64,
    },
    /// The page is published or the tag invalidated, but CDN or subscribers have not been notified.
    NotificationPending {
        /// Whether this attempt published or invalidated it, and not an earlier one.
        published: bool,
    },
    /// An operator has paused regeneration of the tenant, or of all.
    Paused,
    /// The table, the bucket or the queue cannot be reached, or the result stayed unknown.
    Unavailable,
}

/// Why an attempt failed. Stored with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The origin answered with an error status.
    OriginStatus,
    /// The origin could not be reached, or broke off.
    OriginUnreachable,
    /// The origin did not answer in time.
    OriginTimeout,
    /// The origin's address may not be requested.
    OriginForbidden,
    /// The publish gate refused the answer.
    Gate,
    /// The body could not be uploaded.
    Upload,
    /// A defect of ours: the attempt panicked.
    Panic,
}

impl ErrorClass {
    pub const ALL: [ErrorClass; 7] = [
        ErrorClass::OriginStatus,
        ErrorClass::OriginUnreachable,
        ErrorClass::OriginTimeout,
        ErrorClass::OriginForbidden,
        ErrorClass::Gate,
        ErrorClass::Upload,
        ErrorClass::Panic,
    ];

    /// The word in the table and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorClass::OriginStatus => "origin_status",
            ErrorClass::OriginUnreachable => "origin_unreachable",
            ErrorClass::OriginTimeout => "origin_timeout",
            ErrorClass::OriginForbidden => "origin_forbidden",
            ErrorClass::Gate => "gate",
            ErrorClass::Upload => "upload",
            ErrorClass::Panic => "panic",
        }
    }

    /// The class as a clause for an operator.
    pub fn explain(self) -> &'static str {
        match self {
            ErrorClass::OriginStatus => "the origin answered with an error",
            ErrorClass::OriginUnreachable => "the origin could not be reached, or broke off",
            ErrorClass::OriginTimeout => "the origin did not answer in time",
            ErrorClass::OriginForbidden => "the origin's address may not be requested",
            ErrorClass::Gate => "the publish gate refused the answer",
            ErrorClass::Upload => "the body could not be uploaded to S3",
            ErrorClass::Panic => "the worker panicked",
        }
    }

    /// `None` for a word of a newer version, which counts as retryable.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// Whether another attempt may succeed. Not if the configuration points at a forbidden address.
    pub fn retryable(self) -> bool {
        match self {
            ErrorClass::OriginForbidden => false,
            ErrorClass::OriginStatus
            | ErrorClass::OriginUnreachable
            | ErrorClass::OriginTimeout
            | ErrorClass::Gate
            | ErrorClass::Upload
            | ErrorClass::Panic => true,
        }
    }
}

/// Why a message goes to the dead-letter queue. The word travels with it as attribute `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The body or the attributes are no message of version 1, or the key is malformed.
    BadMessage,
    /// The tenant is malformed or not configured.
    UnknownTenant,
    /// The path has no canonical form.
    BadPath,
    /// No route matches the path.
    NoRoute,
    BadTag,
    /// The key was used for another request.
    KeyConflict,
    /// As many attempts failed as are allowed.
    Attempts,
    /// An attempt failed in a way that no further attempt changes.
    NotRetryable,
    /// A cache at the origin answered too often with a response from before the change.
    OriginStale,
    /// It was retried up to the receive limit, or until shortly before the queue would delete it.
    Waited,
}

impl RejectReason {
    /// The word on the dead letter and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            RejectReason::BadMessage => "bad_message",
            RejectReason::UnknownTenant => "unknown_tenant",
            RejectReason::BadPath => "bad_path",
            RejectReason::NoRoute => "no_route",
            RejectReason::BadTag => "bad_tag",
            RejectReason::KeyConflict => "key_conflict",
            RejectReason::Attempts => "attempts",
            RejectReason::NotRetryable => "not_retryable",
            RejectReason::OriginStale => "origin_stale",
            RejectReason::Waited => "waited",
        }
    }

    /// The reason as a clause for a log line.
    pub fn explain(self) -> &'static str {
        match self {
            RejectReason::BadMessage => "the message is malformed or of an unknown version",
            RejectReason::UnknownTenant => "its tenant is not configured",
            RejectReason::BadPath => "its path is malformed",
            RejectReason::NoRoute => "no route matches its path",
            RejectReason::BadTag => "its tag is malformed",
            RejectReason::KeyConflict => "its idempotency key belongs to another request",
            RejectReason::Attempts => "it has failed as often as EVERFRESH_MAX_ATTEMPTS allows",
            RejectReason::NotRetryable => "it failed, and another attempt would fail too",
            RejectReason::OriginStale => {
                "a cache at the origin keeps returning content that may be from before the change"
            }
            RejectReason::Waited => "it was retried up to the receive limit or the end of the queue's retention",
        }
    }
}

impl Outcome {
    /// The word in logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Committed { .. } => "committed",
            Outcome::Unchanged { .. } => "unchanged",
            Outcome::Bypassed { .. } => "bypassed",
            Outcome::AlreadyCovered => "already_covered",
            Outcome::Replayed => "replayed",
            Outcome::Busy { .. } => "busy",
            Outcome::TooClose { .. } => "too_close",
            Outcome::Superseded => "superseded",
            Outcome::Pinned { .. } => "pinned",
            Outcome::Failed { .. } => "failed",
            Outcome::Rejected { .. } => "rejected",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_words_are_read_back_and_distinct() {
        for class in ErrorClass::ALL {
            assert_eq!(ErrorClass::parse(class.as_str()), Some(class));
        }
        assert_eq!(ErrorClass::parse("from_a_newer_version"), None);
    }
}

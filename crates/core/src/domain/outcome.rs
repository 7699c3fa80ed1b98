//! What became of a request.

use crate::domain::version::Version;

/// What became of one message, this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new version was published, or a tag's watermark was written.
    Committed {
        /// The version; a tag request has none.
        version: Option<Version>,
    },
    /// The render gave what was there; a new version says so.
    Unchanged {
        /// The version.
        version: Version,
    },
    /// The published version is good enough for this request. Nothing was written.
    AlreadyCovered,
    /// This very request was completed before.
    Replayed,
    /// It cannot be handled now; nothing was tried.
    Busy {
        /// What stands in the way.
        why: Busy,
    },
    /// The published version began too close to the moment the message was sent to tell which was first.
    TooClose {
        /// From this moment on a render is surely later.
        until_ms: u64,
    },
    /// Somebody else published while this one was rendered.
    Superseded,
    /// The page is held fast.
    Pinned {
        /// HEALTH now says that a change is waiting; only `changed` requests need that.
        wanted_recorded: bool,
    },
    /// The attempt failed, and the record says so.
    Failed {
        /// Why.
        class: ErrorClass,
        /// When the page's cooldown ends.
        next_attempt_ms: u64,
    },
    /// It will never be handled.
    Rejected {
        /// Why.
        reason: RejectReason,
    },
}

/// What stands in the way of a request for now.
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
    /// An operator paused everything, or this tenant.
    Paused,
    /// The lease went to somebody else while rendering.
    LostLease,
    /// Too little time is left in this invocation to begin.
    NoTime,
    /// The sender computed another page for this message: its configuration differs from mine.
    OtherPage,
    /// A newer deployment rendered the page; a worker of that deployment must handle this.
    OlderDeploy,
    /// A cache at the origin answered with what was made before the change.
    OriginStale {
        /// When to ask again.
        until_ms: u64,
    },
    /// The page is published, but the CDN or the subscribers have not been told.
    NotificationPending {
        /// Whether this attempt published it, and not one before it.
        published: bool,
    },
    /// The table, the bucket or the queue cannot be reached, or its answer stayed unknown.
    Unavailable,
}

/// Why an attempt failed. Stored with the record and counted in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The origin answered with an error status.
    OriginStatus,
    /// The origin could not be reached, or broke off.
    OriginUnreachable,
    /// The origin did not answer in time.
    OriginTimeout,
    /// The origin's address may not be asked.
    OriginForbidden,
    /// The publish gate refused the answer.
    Gate,
    /// The body could not be uploaded.
    Upload,
    /// A defect of ours: the attempt panicked.
    Panic,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [ErrorClass; 7] = [
        ErrorClass::OriginStatus,
        ErrorClass::OriginUnreachable,
        ErrorClass::OriginTimeout,
        ErrorClass::OriginForbidden,
        ErrorClass::Gate,
        ErrorClass::Upload,
        ErrorClass::Panic,
    ];

    /// The word in the table and in metrics.
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

    /// The class with that word. A word from a newer version is `None`, which counts as retryable.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// Whether trying again may help. It does not against a configuration that points at a forbidden address.
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
    /// The body is no message of version 1.
    BadMessage,
    /// The tenant is malformed or not configured.
    UnknownTenant,
    /// The path has no canonical form.
    BadPath,
    /// No route matches the path.
    NoRoute,
    /// The tag is malformed.
    BadTag,
    /// The key is malformed, or was used for another request before.
    KeyConflict,
    /// As many attempts failed as are allowed.
    Attempts,
    /// An attempt failed in a way that no further attempt changes.
    NotRetryable,
    /// A cache at the origin gave, time after time, what was made before the change.
    OriginStale,
    /// It was put off until it would soon have vanished from the queue.
    Waited,
}

impl RejectReason {
    /// The word on the message and in metrics.
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
}

impl Outcome {
    /// The word in logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Committed { .. } => "committed",
            Outcome::Unchanged { .. } => "unchanged",
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

    /// Whether the attempt counts against the limit. If not, a claim that was taken is given back.
    pub fn counts_as_attempt(&self) -> bool {
        match self {
            Outcome::Committed { .. } | Outcome::Unchanged { .. } | Outcome::Failed { .. } => true,
            Outcome::AlreadyCovered
            | Outcome::Replayed
            | Outcome::Busy { .. }
            | Outcome::TooClose { .. }
            | Outcome::Superseded
            | Outcome::Pinned { .. }
            | Outcome::Rejected { .. } => false,
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

    #[test]
    fn waiting_is_not_an_attempt() {
        let whys = [
            Busy::Lease { until_ms: 1 },
            Busy::Claim { until_ms: 1 },
            Busy::Cooldown { until_ms: 1 },
            Busy::Paused,
            Busy::LostLease,
            Busy::NoTime,
            Busy::OtherPage,
            Busy::OlderDeploy,
            Busy::OriginStale { until_ms: 1 },
            Busy::NotificationPending { published: true },
            Busy::Unavailable,
        ];
        for why in whys {
            assert!(!Outcome::Busy { why }.counts_as_attempt());
        }
        assert!(!Outcome::TooClose { until_ms: 1 }.counts_as_attempt());
        assert!(!Outcome::Superseded.counts_as_attempt());
        let failed = Outcome::Failed { class: ErrorClass::Gate, next_attempt_ms: 1 };
        assert!(failed.counts_as_attempt());
    }
}

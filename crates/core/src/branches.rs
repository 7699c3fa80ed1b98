//! The branches of the protocol by name, so that a simulation can count which of them its runs have
//! taken.
//!
//! Most are rare: an overtaken worker, a lost claim with the lease still held, an unknown result. A
//! test that never takes a branch shows nothing about it. `scripts/prove` fails if one is taken too
//! seldom.

/// Target of the trace events. In a Lambda function level TRACE is off, and an event costs one
/// comparison.
pub const TARGET: &str = "everfresh::branch";

pub fn reached(branch: Branch) {
    tracing::trace!(target: TARGET, branch = branch.name());
}

/// The enum, all of its values and their names, from one list.
macro_rules! branches {
    ($($(#[$doc:meta])+ $branch:ident = $name:literal,)+) => {
        /// A branch of the protocol. Not listed, because no or hardly any run takes them:
        ///
        /// - what only a defect of DynamoDB itself leads to;
        /// - a record that changes four times while one worker judges it (claim, settle);
        /// - the second half of [`FailedWithoutLease`](Branch::FailedWithoutLease) and its like,
        ///   refused because that right was lost between two transactions as well;
        /// - a lease that is taken over between the refused commit and its own revival;
        /// - a covered request of a page that was purged meanwhile.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Branch {
            $($(#[$doc])+ $branch,)+
        }

        impl Branch {
            pub const ALL: &'static [Branch] = &[$(Branch::$branch,)+];

            /// The name in the simulation's figures.
            pub fn name(self) -> &'static str {
                match self {
                    $(Branch::$branch => $name,)+
                }
            }
        }
    };
}

branches! {
    // Before anything is written.
    /// The origin's answer is not stored.
    AnswerBypassed = "answer-bypassed",
    /// A version without a body was published, and no page was taken down by it.
    CommittedBypass = "committed-bypass",
    /// A version without a body took a published page down.
    CommittedWithdrawal = "committed-withdrawal",
    /// The tenant's origin takes down too many pages at once.
    WithdrawalsExceeded = "withdrawals-exceeded",
    /// The published version covers the request.
    Covered = "covered",
    /// The record that earlier deliveries left of a covered request is completed.
    CoveredSettled = "covered-settled",
    /// A covered request has no record to complete, or a worker with a valid claim completes it.
    CoveredNothingToSettle = "covered-nothing-to-settle",
    /// A covered request's record is another request's with the same key.
    CoveredConflict = "covered-conflict",
    /// A covered request's record could not be completed.
    CoveredUnsettled = "covered-unsettled",
    /// Whether it covers the request cannot be decided.
    TooClose = "too-close",
    /// Coverage cannot be decided, and another request has this one's key.
    TooCloseConflict = "too-close-conflict",
    /// Coverage cannot be decided, but this request was completed.
    TooCloseReplayed = "too-close-replayed",
    /// A reader found the published body missing.
    BodyLost = "body-lost",
    /// The page is pinned.
    Pinned = "pinned",
    /// An operator has paused regeneration.
    Paused = "paused",
    /// A newer deployment published the page.
    OlderDeploy = "older-deploy",
    /// Another worker holds the lease.
    LeaseSeen = "lease-seen",
    /// The page failed lately.
    CoolingDown = "cooling-down",
    /// Too little time is left for a render.
    NoTimeToBegin = "no-time-to-begin",

    // claim
    /// A crashed or failed attempt's record is taken over.
    ClaimTakeover = "claim-takeover",
    /// The record changed between judging and taking over.
    ClaimTakeoverRefused = "claim-takeover-refused",
    /// The first response was lost: the record is recognised as this attempt's.
    ClaimRecognised = "claim-recognised",
    /// A transaction holds the record at this moment.
    ClaimConflict = "claim-conflict",
    /// The request was completed before.
    ClaimReplayed = "claim-replayed",
    /// Another worker's claim is valid.
    ClaimHeld = "claim-held",
    /// The request must not be handled.
    ClaimRejected = "claim-rejected",
    /// No response; the record says that the claim was written.
    ClaimUnknownThenMine = "claim-unknown-then-mine",
    /// No response; the record says that the claim was not written.
    ClaimUnknownThenNot = "claim-unknown-then-not",
    /// No response, and the record cannot be read either.
    ClaimUnknownUnread = "claim-unknown-unread",
    /// The claim that is given back is not this worker's any more.
    GiveBackRefused = "give-back-refused",

    // acquire and renew
    /// The sandbox was frozen after its claim: no time is left.
    NoTimeAfterClaim = "no-time-after-claim",
    /// Another worker holds the lease, also if lookup saw none.
    LeaseHeld = "lease-held",
    /// The first response was lost: the lease is recognised by its token.
    LeaseRecognised = "lease-recognised",
    /// Another worker's transaction holds the lease row at this moment.
    LeaseConflict = "lease-conflict",
    /// No response; the row says that the lease was taken.
    LeaseUnknownThenMine = "lease-unknown-then-mine",
    /// No response; the row says that the lease was not taken.
    LeaseUnknownThenNot = "lease-unknown-then-not",
    /// No response, and the row cannot be read either.
    LeaseUnknownUnread = "lease-unknown-unread",
    /// The lease could not be taken, and the claim is given back.
    AcquireFailed = "acquire-failed",
    /// A renewal stayed unanswered and is tried again.
    RenewalUnknown = "renewal-unknown",
    /// The render ended while a renewal was under way.
    RenewalOutlastsRender = "renewal-outlasts-render",
    /// Another worker took the lease over during the render.
    LeaseLostInRender = "lease-lost-in-render",

    // render and upload
    /// The renderer reported a failure.
    RenderFailed = "render-failed",
    /// The renderer panicked.
    RenderPanicked = "render-panicked",
    /// The render took too long.
    RenderTimedOut = "render-timed-out",
    /// The response came from a cache and is new enough.
    AnswerFromCache = "answer-from-cache",
    /// The response came from a cache and is too old.
    AnswerTooOld = "answer-too-old",
    /// The response came from a cache, and may be older than the published version, which differs.
    AnswerOlderThanPublished = "answer-older-than-published",
    /// The response came from a cache, and may be older than the published version, which is the
    /// same.
    UnchangedAnswerFromCache = "unchanged-answer-from-cache",
    /// The origin's cache answered too often with old content.
    OriginStaleRejected = "origin-stale-rejected",
    /// The origin says that the published page is still the same.
    AnswerNotModified = "answer-not-modified",
    /// The publish gate refused the response.
    GateRefused = "gate-refused",
    /// The body that the publish gate refused was kept for inspection.
    Quarantined = "quarantined",
    /// The same content is uploaded again, for its object is missing.
    SameContentUploaded = "same-content-uploaded",
    /// The bucket did not take the body.
    UploadFailed = "upload-failed",
    /// The sandbox was frozen while it rendered: no time is left.
    NoTimeToCommit = "no-time-to-commit",

    // commit
    /// New content is published.
    Committed = "committed",
    /// The old content is published under a new version.
    CommittedUnchanged = "committed-unchanged",
    /// The first response was lost: the record names this attempt's commit.
    CommitRecognised = "commit-recognised",
    /// No response; the record says that it was committed.
    CommitUnknownThenDone = "commit-unknown-then-done",
    /// No response; the record says that it was not committed so far.
    CommitUnknownThenNot = "commit-unknown-then-not",
    /// No response, and the record cannot be read either.
    CommitUnknownUnread = "commit-unknown-unread",
    /// Another worker took the claim over and has committed.
    OvertakenByCommit = "overtaken-by-commit",
    /// Another worker took the claim over and has not committed so far, or gave it back.
    OvertakenInProgress = "overtaken-in-progress",
    /// Another commit came first, and covers the request.
    SupersededCovered = "superseded-covered",
    /// Another commit came first, and whether it covers the request cannot be decided.
    SupersededTooClose = "superseded-too-close",
    /// Another commit came first, and does not cover the request.
    SupersededNotCovered = "superseded-not-covered",
    /// The lease expired, no other worker took it, and its own token revives it.
    LeaseRevived = "lease-revived",
    /// Whether the lease was revived is not known.
    LeaseRevivalUnknown = "lease-revival-unknown",
    /// The lease is another worker's, or gone, and nothing was published.
    LeaseLostAtCommit = "lease-lost-at-commit",

    // fail and give up
    /// A failure is recorded; the lease is another worker's.
    FailedWithoutLease = "failed-without-lease",
    /// The lease is dropped after a failure; the claim is another worker's.
    FailedWithoutClaim = "failed-without-claim",
    /// After a failure neither right is left.
    FailedWithoutRights = "failed-without-rights",
    /// The claim is given back; the lease is another worker's.
    GaveUpWithoutLease = "gave-up-without-lease",
    /// The lease is dropped; the claim is another worker's.
    GaveUpWithoutClaim = "gave-up-without-claim",
    /// Neither right is left to give up.
    GaveUpWithoutRights = "gave-up-without-rights",

    // notify
    /// A completed request reads the page again for a pending notification of its own.
    ReplayRereads = "replay-rereads",
    /// The pending notification is another request's, whose worker may still send it.
    NotifyLeftToOther = "notify-left-to-other",
    /// The request's own notification is sent.
    NotifiedOwn = "notified-own",
    /// The request's own notification could not be sent.
    NotifyOwnFailed = "notify-own-failed",
    /// The notification of an operator's change is sent.
    NotifiedForOperator = "notified-for-operator",
    /// The notification of an operator's change could not be sent.
    NotifyForOperatorFailed = "notify-for-operator-failed",
    /// A notification is sent for a request whose message is gone.
    NotifiedForOther = "notified-for-other",
    /// A notification for a request whose message is gone could not be sent.
    NotifyForOtherFailed = "notify-for-other-failed",

    // records of one page in one batch
    /// The leading record published, which covers the next one.
    FollowerCovered = "follower-covered",
    /// The leading record is busy for a reason that holds for the next one too.
    FollowerWaits = "follower-waits",
    /// The leading record ended without a render: the next one leads.
    NextLeads = "next-leads",
    /// That reason would end the next record for good, so it leads itself.
    NextLeadsForItself = "next-leads-for-itself",
    /// Another request in the batch has this one's key.
    ConflictInBatch = "conflict-in-batch",
    /// The record's sender computed another page.
    OtherPage = "other-page",
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_words_with_hyphens() {
        let names: BTreeSet<&str> = Branch::ALL.iter().map(|branch| branch.name()).collect();
        assert_eq!(names.len(), Branch::ALL.len());
        for name in names {
            assert!(name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'), "{name}");
        }
    }
}

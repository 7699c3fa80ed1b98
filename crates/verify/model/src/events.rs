//! Events that a scope must reach: a search that never meets them shows nothing about them.

/// An event of a step. It is recorded next to the state, so that it adds no states to the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Event {
    ClaimMineAlready,
    TakenOver,
    TakeoverRefused,
    ExpiredReqTakenOver,
    Replayed,
    AlreadyCovered,
    TooClose,
    Busy,
    AcquireLost,
    Superseded,
    LateWorkerRefused,
    Reacquired,
    ReacquireRefused,
    Renewed,
    LostCommitFoundDone,
    LostCommitSentAgain,
    LateWriteWithoutEffect,
    LateWriteWithEffect,
    Committed,
    Unchanged,
    Failed,
    FailRefused,
    CooldownWaits,
    AttemptsExhausted,
    OtherPayloadRejected,
    FollowersCovered,
    NextLeads,
    WantedRecorded,
    WantedRefused,
    RolledBack,
    Pinned,
    Unpinned,
    Purged,
    Swept,
    OperatorCrashed,
    OperatorSuperseded,
    ForeignCommitted,
    ForeignRefused,
    ForeignRowReplaced,
    CommitWithUnboundedClock,
    WatermarkAnswered,
    OriginStale,
    CachedAnswerPublished,
    CoveredRecordSettled,
    Bypassed,
    BypassUnchanged,
    Withdrawn,
    PublishedAgain,
    WithdrawalRefused,
    BypassNotDue,
    StaleReadIgnored,
    GoodStandsIn,
    GoodDropped,
    LateServedIgnored,
    ReadAgainConsistently,
}

impl Event {
    pub fn bit(self) -> u64 {
        1 << self as u8
    }
}

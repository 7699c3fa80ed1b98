//! Situations that a scope must actually reach, or its figures would say nothing.

/// Something that happened on a step. Recorded beside the search, so that it adds no states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
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
    OperatorDied,
    OperatorSuperseded,
    ForeignCommitted,
    ForeignRefused,
    ForeignRowReplaced,
    CommitWithUnboundedClock,
    WatermarkAnswered,
    OriginStale,
    CachedAnswerPublished,
    CoveredRecordSettled,
}

impl Event {
    /// The event's bit.
    pub fn bit(self) -> u64 {
        1 << self as u8
    }
}

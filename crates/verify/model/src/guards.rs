//! The guards of the protocol. Each can be removed to see which property breaks.

/// One rule of the protocol. Removing it must break a property, or be known to be redundant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Guard {
    /// Commit is conditioned on the META row that lookup read.
    MetaCondition,
    /// Commit deletes LOCK only while it carries this attempt's token.
    LockTokenCondition,
    /// Commit deletes LOCK only while it has not expired.
    LockExpiryCondition,
    /// Acquire refuses a lease that is still live.
    LeaseExclusive,
    /// Commit completes REQ only while this attempt owns it.
    ClaimOwnerOnCommit,
    /// A takeover is conditioned on exactly the row that was returned.
    TakeoverExact,
    /// A STARTED claim that has expired can be taken over.
    TakeoverOfExpired,
    /// After a commit whose response was lost, REQ is read before the next decision.
    ReadReqAfterLostCommit,
    /// FAILED is written only over the attempt's own STARTED row.
    FailConditioned,
    /// A claim is given back only while this attempt owns it and it is STARTED.
    GiveBackConditioned,
    /// A key that is reused with another payload is rejected.
    RequestHash,
    /// Coverage keeps a distance of epsilon between two clocks.
    CoverageEpsilon,
    /// `source_ms` is taken before the render reads its source.
    SourceMsBeforeRender,
    /// `source_ms` is never below the sent time of a message of the batch.
    SourceMsFloor,
    /// A worker that cannot bound its clock error does not write its own time as `source_ms`.
    UnboundedClockNotWritten,
    /// Such a worker writes the newest sent time of its batch instead: AWS's own time, and
    /// certainly not after the render began.
    UnboundedClockWritesSentTime,
    /// A version's number is above its predecessor's, also if the clock went back.
    VersionAbovePrevious,
    /// A row without `source_ms` covers no request.
    ForeignRowCoversNothing,
    /// The condition on a foreign row also compares its etag.
    ForeignEtagCompared,
    /// The condition on a foreign row also requires that it has no version.
    ForeignRowHasNoVersion,
    /// Every render uploads under its own key.
    UniqueS3Key,
    /// The body is uploaded before META points at it.
    UploadBeforeCommit,
    /// Unchanged content still commits META and REQ.
    UnchangedCommits,
    /// Followers of a batch are covered only by a commit that this invocation made.
    FollowersNeedOwnCommit,
    /// Every new leader of a batch is a new attempt with its own token and object key.
    NewAttemptPerLeader,
    /// `wanted_at` is written only while the pin is still there.
    WantedNeedsPin,
    /// Pin, unpin, rollback and purge write a new META version together with HEALTH.
    PinMovesMeta,
    /// Unpin sets the path watermark in the transaction that removes the pin.
    UnpinSetsWatermark,
    /// Unpin enqueues only after its transaction.
    UnpinEnqueuesLast,
    /// The watermark is compared with a distance of epsilon.
    WatermarkEpsilon,
    /// The watermark is the upper end of the operator's clock interval.
    WatermarkUpperBound,
    /// A purged page is pinned, so that only unpin publishes it again.
    PurgePins,
    /// The sweep takes the page's lease before it deletes an orphan.
    SweepTakesLease,
    /// A response from the origin's cache is dated by its `Age`, and not published if it may miss a
    /// change of the batch.
    AgeDatesTheAnswer,
    /// A cached response replaces other content only if it is newer by more than both workers'
    /// clock errors.
    CachedAnswerKeepsDistance,
    /// Completing the REQ row of a covered request removes its owner.
    SettlingDropsOwner,
    /// A bypass is committed on the same condition on META as every version.
    BypassMetaCondition,
    /// A bypass has its own `source_ms`.
    BypassOwnSourceMs,
    /// META of a bypass points at an object that does not exist.
    BypassHasNoBody,
    /// A bypass has no digest, so that stored content after it is never Unchanged.
    BypassForgetsDigest,
    /// A `changed` request is judged by `source_ms` also while no check of the bypass is due.
    ChangedChecksAtOnce,
    /// The withdrawing transaction counts itself on condition that the limit is not reached.
    WithdrawalCounted,
    /// A `changed` request stays in the queue when its withdrawal is refused.
    RefusedChangedWaits,
    /// A refused withdrawal gives the claim back instead of failing the attempt.
    RefusalGivesBack,
    /// The serving instance does not remember a lower version than the one it has.
    MemoryKeepsNewest,
    /// The last good body stands in only under a row with a body, and is dropped under another.
    GoodNeedsBody,
    /// A body that is served late is not kept when a newer version was seen meanwhile.
    LateServedDropped,
    /// The last good body stands in only if it was published after the last withdrawal.
    GoodSinceWithdrawal,
    /// A stored 404, 410 or 301 that replaces a page counts as a withdrawal there.
    AbsentWithdraws,
    /// Where versions cannot be compared, the row is read again consistently.
    ForeignReadConfirmed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    removed: u64,
}

impl Guards {
    /// Every guard in force: the protocol as implemented.
    pub fn all() -> Self {
        Guards { removed: 0 }
    }

    pub fn without(self, guard: Guard) -> Self {
        Guards { removed: self.removed | (1 << guard as u8) }
    }

    pub fn on(self, guard: Guard) -> bool {
        self.removed & (1 << guard as u8) == 0
    }
}

//! The protocol's guards, each of which can be taken away to see what breaks.

/// One rule of the protocol. Removing it must break a property, or be known to be redundant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Guard {
    /// Commit is conditioned on the META row that lookup saw.
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
    /// A STARTED claim whose owner's time is over can be taken over.
    TakeoverOfExpired,
    /// After a commit whose answer was lost, REQ is read before anything is decided.
    ReadReqAfterLostCommit,
    /// FAILED is written only over one's own STARTED row.
    FailConditioned,
    /// A claim is given back only while it is one's own and STARTED.
    GiveBackConditioned,
    /// A key that is reused with another payload is rejected.
    RequestHash,
    /// Coverage keeps a distance of epsilon between two clocks.
    CoverageEpsilon,
    /// `source_ms` is taken before the render reads its source.
    SourceMsBeforeRender,
    /// `source_ms` is never below the sent time of a message in hand.
    SourceMsFloor,
    /// A worker that cannot bound its clock error does not write its own time as `source_ms`.
    UnboundedClockNotWritten,
    /// It writes the newest sent time in hand instead, which is AWS's own and surely not too late.
    UnboundedClockWritesSentTime,
    /// A version's number is above its predecessor's, whatever the clock says.
    VersionAbovePrevious,
    /// A row without `source_ms` covers no request.
    ForeignRowCoversNothing,
    /// The condition on a foreign row also compares its etag.
    ForeignEtagCompared,
    /// The condition on a foreign row also asks that it carries no version.
    ForeignRowHasNoVersion,
    /// Every render uploads under a key of its own.
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
    /// Pin and its kin write a new META version together with HEALTH.
    PinMovesMeta,
    /// Unpin sets the path watermark in the transaction that removes the pin.
    UnpinSetsWatermark,
    /// Unpin enqueues only after its transaction.
    UnpinEnqueuesLast,
    /// The watermark is compared with a distance of epsilon.
    WatermarkEpsilon,
    /// The watermark is the upper end of the operator's clock interval.
    WatermarkUpperBound,
    /// A purged page is pinned, so that only unpin brings it back.
    PurgePins,
    /// The sweep takes the page's lease before it deletes an orphan.
    SweepTakesLease,
    /// An answer out of the origin's cache is dated by its age, and not published where it cannot show every change in hand.
    AgeDatesTheAnswer,
    /// Such an answer replaces other content only if it is surely newer, both workers' clock errors allowed for.
    CachedAnswerKeepsDistance,
    /// Completing the record of a covered request removes its owner.
    SettlingDropsOwner,
}

/// The guards that are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    removed: u64,
}

impl Guards {
    /// Every guard in force: the protocol as it is meant to run.
    pub fn all() -> Self {
        Guards { removed: 0 }
    }

    /// The same guards without the given one.
    pub fn without(self, guard: Guard) -> Self {
        Guards { removed: self.removed | (1 << guard as u8) }
    }

    /// Whether the guard is in force.
    pub fn on(self, guard: Guard) -> bool {
        self.removed & (1 << guard as u8) == 0
    }
}

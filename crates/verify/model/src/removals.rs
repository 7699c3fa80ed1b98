//! What each guard protects: the scopes in which its removal is tried, and the property that must
//! break there.

use crate::guards::Guard;
use crate::properties::{ECONOMY, GONE, I1, I2_GROWS, I2_LINEAR, I2_OLDER, I3, I4, I5, I6, PIN, W1, W2, W3, W4, W5};

/// The expected result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// This property breaks.
    Breaks(&'static str),
    /// Nothing breaks, because of what the reason names.
    Nothing(&'static str),
}

/// The removal of one guard or two, and its expected result.
#[derive(Clone, Copy, Debug)]
pub struct Removal {
    pub guards: &'static [Guard],
    /// Searched in this order until a property breaks.
    pub scopes: &'static [&'static str],
    pub expect: Expect,
}

impl Removal {
    pub fn name(&self) -> String {
        let names: Vec<String> = self.guards.iter().map(|guard| format!("{guard:?}")).collect();
        names.join(" + ")
    }

    /// Whether the search ends early enough for every build. A removal that breaks nothing is
    /// searched to the end.
    pub fn quick(&self) -> bool {
        let slow = [NewAttemptPerLeader, SettlingDropsOwner, GoodSinceWithdrawal];
        matches!(self.expect, Expect::Breaks(_)) && !self.guards.iter().any(|guard| slow.contains(guard))
    }
}

const fn breaks(property: &'static str, guards: &'static [Guard], scopes: &'static [&'static str]) -> Removal {
    Removal { guards, scopes, expect: Expect::Breaks(property) }
}

const fn nothing(reason: &'static str, guards: &'static [Guard], scopes: &'static [&'static str]) -> Removal {
    Removal { guards, scopes, expect: Expect::Nothing(reason) }
}

use Guard::*;

/// Guards whose removal breaks a property, then pairs of which the second backs the first up,
/// then guards that only save work.
pub const REMOVALS: &[Removal] = &[
    breaks(I2_OLDER, &[MetaCondition], &["late-two"]),
    breaks(I1, &[LockTokenCondition], &["foreign"]),
    breaks(I3, &[TakeoverExact], &["core"]),
    breaks(I6, &[TakeoverOfExpired], &["core"]),
    breaks(I5, &[FailConditioned], &["late"]),
    breaks(I3, &[GiveBackConditioned], &["core"]),
    breaks(I1, &[RequestHash], &["keys"]),
    breaks(I1, &[CoverageEpsilon], &["core"]),
    breaks(I1, &[SourceMsBeforeRender], &["core"]),
    breaks(I1, &[UnboundedClockNotWritten], &["skew"]),
    breaks(I6, &[UnboundedClockWritesSentTime], &["pin-unbounded"]),
    breaks(I2_GROWS, &[VersionAbovePrevious], &["skew"]),
    breaks(I1, &[ForeignRowCoversNothing], &["foreign"]),
    breaks(I2_LINEAR, &[ForeignEtagCompared], &["foreign"]),
    breaks(PIN, &[ForeignRowHasNoVersion], &["foreign-pin"]),
    breaks(I4, &[UniqueS3Key], &["core"]),
    breaks(I4, &[UploadBeforeCommit], &["core"]),
    breaks(I6, &[UnchangedCommits], &["rollback"]),
    breaks(I1, &[FollowersNeedOwnCommit], &["batches"]),
    breaks(I4, &[NewAttemptPerLeader], &["batches-lost"]),
    breaks(PIN, &[PinMovesMeta], &["pin-skew"]),
    breaks(I1, &[UnpinSetsWatermark], &["rollback"]),
    breaks(I1, &[WatermarkEpsilon], &["pin-skew"]),
    breaks(I1, &[WatermarkUpperBound], &["pin-skew"]),
    breaks(GONE, &[PurgePins], &["purge"]),
    breaks(I4, &[SweepTakesLease], &["sweep"]),
    breaks(I1, &[AgeDatesTheAnswer], &["cached"]),
    breaks(I2_OLDER, &[CachedAnswerKeepsDistance], &["cached"]),
    breaks(I1, &[SettlingDropsOwner], &["settled"]),
    breaks(I2_LINEAR, &[BypassMetaCondition], &["bypass-late"]),
    breaks(I6, &[BypassOwnSourceMs], &["bypass-pin"]),
    breaks(W3, &[BypassHasNoBody], &["bypass"]),
    breaks(I4, &[BypassForgetsDigest], &["bypass"]),
    breaks(I1, &[ChangedChecksAtOnce], &["bypass"]),
    breaks(W4, &[WithdrawalCounted], &["withdrawals"]),
    breaks(I1, &[RefusedChangedWaits], &["withdrawals"]),
    breaks(W5, &[RefusalGivesBack], &["withdrawals"]),
    breaks(W2, &[MemoryKeepsNewest], &["serve"]),
    breaks(W2, &[GoodNeedsBody], &["serve"]),
    breaks(W1, &[GoodSinceWithdrawal], &["serve"]),
    breaks(W1, &[AbsentWithdraws], &["serve-absent"]),
    breaks(W2, &[ForeignReadConfirmed], &["serve-foreign"]),
    breaks(I2_OLDER, &[MetaCondition, LockTokenCondition], &["core"]),
    breaks(I3, &[MetaCondition, ClaimOwnerOnCommit], &["core"]),
    breaks(I5, &[ReadReqAfterLostCommit, FailConditioned], &["lost"]),
    breaks(W2, &[LateServedDropped, GoodSinceWithdrawal], &["serve"]),
    nothing(
        "the token shows whether another worker began; an expired lease that was not taken does no harm",
        &[LockExpiryCondition],
        &["core", "doubt", "foreign"],
    ),
    nothing(
        "a worker that lost LOCK is refused by its token and by META; only work is wasted",
        &[LeaseExclusive],
        &["core", "doubt", "foreign"],
    ),
    nothing(
        "lookup comes before the claim, so a worker that lost the claim also sees META moved",
        &[ClaimOwnerOnCommit],
        &["core", "lost", "doubt", "failures"],
    ),
    nothing(
        "FAILED is refused over COMPLETED, and the next delivery replays; costs that delivery",
        &[ReadReqAfterLostCommit],
        &["lost", "late"],
    ),
    nothing(
        "a body that is served late is older than the last withdrawal, so it never stands in",
        &[LateServedDropped],
        &["serve-absent", "serve"],
    ),
    nothing(
        "a bounded clock is behind by less than epsilon, which is TooClose already",
        &[SourceMsFloor],
        &["skew", "economy"],
    ),
    nothing(
        "a request that met the pin was sent before unpin, and the watermark of unpin covers it",
        &[WantedNeedsPin],
        &["rollback"],
    ),
    nothing(
        "the watermark keeps the page stale, so the next read enqueues it; costs the wait for a read",
        &[UnpinEnqueuesLast],
        &["rollback"],
    ),
];

/// The property that breaks in each of [`crate::limits`], and why our side cannot prevent it.
pub const KNOWN_LIMITS: &[(&str, &str, &str)] = &[
    (
        "foreign-late",
        I1,
        "the foreign writer's late LOCK write revives its lease, and it puts META without a condition",
    ),
    ("economy-renders", ECONOMY, "a worker with its lookup before a commit and its acquire after it renders in vain"),
    ("sweep-late", I4, "a late LOCK write revives a swept attempt's lease; the orphan's age must exclude it"),
];

//! The table and the bucket: every conditional write, applied atomically when it arrives.

use crate::Everfresh;
use crate::events::Event;
use crate::guards::Guard;
use crate::properties::Broken;
use crate::state::{EVER, Kind, Lock, Meta, NO_VERSION, Req, Rev, State, Status, Tick, Token};

/// A write in flight. Its values were fixed when it was sent, including the sender's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Create REQ if there is none.
    Claim { key: u8, hash: u8, owner: Token },
    /// Replace exactly the row that the claim returned.
    Takeover {
        key: u8,
        hash: u8,
        owner: Token,
        /// The row that the claim returned.
        from: Req,
    },
    /// Put LOCK if there is none, or if it has expired by the sender's clock.
    Acquire {
        token: Token,
        /// The sender sees an aged lease as expired.
        sees_expired: bool,
    },
    /// Extend LOCK if it still carries the sender's token.
    Reacquire { token: Token },
    Upload {
        /// The object's key.
        key: Token,
        /// The revision that the body shows.
        rev: Rev,
    },
    /// The publishing transaction.
    Commit(Commit),
    /// REQ to FAILED, LOCK released, HEALTH in cooldown; each row only where the attempt owns it.
    Fail { key: u8, token: Token },
    /// REQ reopened without counting the attempt, LOCK released; each row only where the attempt
    /// owns it.
    GiveBack { key: u8, token: Token },
    /// Complete exactly the row that was read: the published version covers its request.
    Settle {
        key: u8,
        /// The row that was read.
        from: Req,
    },
    /// `wanted_at` on HEALTH.
    Wanted,
}

/// The publishing transaction, frozen when it is first sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    pub key: u8,
    /// The message that leads.
    pub lead: u8,
    pub token: Token,
    /// META as lookup read it.
    pub seen: Option<Meta>,
    pub meta: Meta,
    /// Clears the failures that lookup read.
    pub clears_failures: bool,
    /// By its `:now` an aged lease has expired.
    pub sees_expired: bool,
}

/// The response of the store. A failed condition is an outcome, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Applied.
    Done,
    /// The row that exists already.
    Exists(Req),
    /// A condition failed.
    Refused(Refusal),
}

/// Why a transaction was refused, one flag per item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// META is not the row that lookup read.
    pub meta_moved: bool,
    /// Another attempt owns REQ.
    pub claim_lost: bool,
    /// LOCK carries another token or is gone.
    pub lease_lost: bool,
    /// LOCK carries this attempt's token but has expired.
    pub lease_expired: bool,
    /// The bucket allows no further withdrawal.
    pub withdrawals_spent: bool,
}

const REFUSED: Answer = Answer::Refused(Refusal {
    meta_moved: false,
    claim_lost: false,
    lease_lost: false,
    lease_expired: false,
    withdrawals_spent: false,
});

impl Everfresh {
    /// Applies a write to the present state.
    pub(crate) fn apply(&self, s: &mut State, write: Write) -> Answer {
        match write {
            Write::Claim { key, hash, owner } => claim(s, key, hash, owner),
            Write::Takeover { key, hash, owner, from } => self.takeover(s, key, hash, owner, from),
            Write::Acquire { token, sees_expired } => self.acquire(s, token, sees_expired),
            Write::Reacquire { token } => match &mut s.lock {
                Some(lock) if lock.token == token => {
                    lock.aged = false;
                    Answer::Done
                }
                _ => REFUSED,
            },
            Write::Upload { key, rev } => self.upload(s, key, rev),
            Write::Commit(commit) => self.commit(s, commit),
            Write::Fail { key, token } => self.fail(s, key, token),
            Write::GiveBack { key, token } => self.give_back(s, key, token),
            Write::Settle { key, from } => self.settle_covered(s, key, from),
            Write::Wanted => {
                if s.health.pinned || !self.guards.on(Guard::WantedNeedsPin) {
                    s.health.wanted = true;
                    Answer::Done
                } else {
                    REFUSED
                }
            }
        }
    }

    fn takeover(&self, s: &mut State, key: u8, hash: u8, owner: Token, from: Req) -> Answer {
        let row = &mut s.reqs[key as usize];
        let unmoved =
            row.is_some_and(|row| (row.owner, row.status, row.past_ttl) == (from.owner, from.status, from.past_ttl));
        if !unmoved && self.guards.on(Guard::TakeoverExact) {
            return REFUSED;
        }
        let attempts = if from.past_ttl { 0 } else { from.attempts };
        *row = Some(Req { attempts: attempts + 1, ..started(hash, owner) });
        Answer::Done
    }

    fn acquire(&self, s: &mut State, token: Token, sees_expired: bool) -> Answer {
        let held = s.lock.is_some_and(|lock| {
            let expired = lock.aged && sees_expired;
            lock.token != token && !expired
        });
        if held && self.guards.on(Guard::LeaseExclusive) {
            return REFUSED;
        }
        s.lock = Some(Lock { token, aged: false });
        Answer::Done
    }

    /// `If-None-Match`: a key that exists already counts as success, and the first body stays.
    fn upload(&self, s: &mut State, key: Token, rev: Rev) -> Answer {
        match s.bodies.iter_mut().find(|(k, _)| *k == key) {
            Some(body) if !self.guards.on(Guard::UniqueS3Key) => body.1 = rev,
            Some(_) => {}
            None => {
                s.bodies.push((key, rev));
                s.bodies.sort_unstable();
            }
        }
        Answer::Done
    }

    fn commit(&self, s: &mut State, commit: Commit) -> Answer {
        let row = s.reqs[commit.key as usize];
        let mine = s.lock.is_some_and(|lock| lock.token == commit.token);
        let expired = s.lock.is_some_and(|lock| lock.aged) && commit.sees_expired;
        let moved = !self.same_row(s.meta, commit.seen);
        let conditional = commit.meta.kind != Kind::Bypass || self.guards.on(Guard::BypassMetaCondition);
        let withdraws = withdraws(commit.seen, commit.meta.kind);
        let spent = withdraws && self.withdrawals_spent(s);
        let refusal = Refusal {
            meta_moved: moved && conditional && self.guards.on(Guard::MetaCondition),
            claim_lost: row.is_none_or(|row| row.owner != commit.token) && self.guards.on(Guard::ClaimOwnerOnCommit),
            lease_lost: !mine && self.guards.on(Guard::LockTokenCondition),
            lease_expired: mine && expired && self.guards.on(Guard::LockExpiryCondition),
            withdrawals_spent: spent && self.guards.on(Guard::WithdrawalCounted),
        };
        if refusal != Refusal::default() {
            return Answer::Refused(refusal);
        }
        self.record_violations(s, commit);
        let was_stale = self.readers_enqueue(s);
        self.publish(s, commit.meta);
        s.check_due = false;
        if withdraws && self.scope.withdrawal_limit < u8::MAX {
            s.withdrawals += 1;
        }
        if was_stale && !self.readers_enqueue(s) {
            self.note(Event::WatermarkAnswered);
        }
        s.reqs[commit.key as usize] = Some(Req {
            status: Status::Completed,
            aged: false,
            ..row.unwrap_or(started(self.plan(commit.lead).hash, commit.token))
        });
        s.commits[commit.key as usize] += 1;
        if mine {
            s.lock = None;
        }
        if commit.clears_failures {
            s.health.cooldown = false;
        }
        Answer::Done
    }

    /// Records which rule the commit breaks; with all guards on it breaks none.
    fn record_violations(&self, s: &mut State, commit: Commit) {
        let Some(old) = s.meta else { return };
        if Some(old) != commit.seen {
            s.broken |= Broken::Linear as u8;
        }
        if old.version != NO_VERSION && commit.meta.version.0 <= old.version.0 {
            s.broken |= Broken::Grows as u8;
        }
        if old.rev > commit.meta.rev {
            s.broken |= Broken::Older as u8;
        }
        if s.health.pinned {
            s.broken |= Broken::Pin as u8;
        }
        if old.kind == Kind::Tombstone && s.msgs[commit.lead as usize].before_purge {
            s.broken |= Broken::Gone as u8;
        }
        if old.kind == Kind::Foreign {
            self.note(Event::ForeignRowReplaced);
        }
    }

    /// Replaces META and keeps the previous version.
    pub(crate) fn publish(&self, s: &mut State, meta: Meta) {
        if let Some(old) = s.meta
            && old.kind == Kind::Page
            && old.body != meta.body
        {
            s.previous = Some(old);
        }
        s.best = s.best.max(meta.rev);
        let mut meta = meta;
        if let Some(instance) = &mut s.instance {
            let taken_down = s.meta.is_some_and(|old| old.kind.has_body() && !meta.kind.has_body());
            let withdrawn = taken_down || withdraws(s.meta, meta.kind);
            instance.era += u8::from(withdrawn);
            meta.era = instance.era;
            let follows_ours = s.meta.is_some_and(|old| old.kind.has_body() && old.kind != Kind::Foreign);
            meta.since = match s.meta {
                _ if !meta.kind.has_body() || meta.kind == Kind::Foreign => EVER,
                Some(old) if follows_ours && !(withdrawn && self.guards.on(Guard::AbsentWithdraws)) => old.since,
                _ => meta.version.0,
            };
            if s.budget.stale_reads > 0 {
                instance.past.extend(s.meta);
            }
        }
        s.meta = Some(meta);
    }

    /// Whether the bucket allows no further withdrawal.
    pub(crate) fn withdrawals_spent(&self, s: &State) -> bool {
        s.withdrawals >= self.scope.withdrawal_limit
    }

    fn fail(&self, s: &mut State, key: u8, token: Token) -> Answer {
        let mut answer = REFUSED;
        if let Some(row) = &mut s.reqs[key as usize] {
            let mine = row.owner == token && row.status == Status::Started;
            if mine || !self.guards.on(Guard::FailConditioned) {
                row.status = Status::Failed;
                s.health.cooldown = true;
                answer = Answer::Done;
            }
        }
        release(s, token);
        answer
    }

    fn give_back(&self, s: &mut State, key: u8, token: Token) -> Answer {
        let mut answer = REFUSED;
        if let Some(row) = &mut s.reqs[key as usize] {
            let mine = row.owner == token && row.status == Status::Started;
            if mine || !self.guards.on(Guard::GiveBackConditioned) {
                // No owner: restoring the previous one would let a late takeover through again.
                *row = Req {
                    owner: 0,
                    status: Status::Started,
                    aged: true,
                    attempts: row.attempts.saturating_sub(1),
                    ..*row
                };
                answer = Answer::Done;
            }
        }
        release(s, token);
        answer
    }

    fn settle_covered(&self, s: &mut State, key: u8, from: Req) -> Answer {
        let row = &mut s.reqs[key as usize];
        let unmoved =
            row.is_some_and(|row| (row.owner, row.status, row.past_ttl) == (from.owner, from.status, from.past_ttl));
        if !unmoved {
            return REFUSED;
        }
        let owner = if self.guards.on(Guard::SettlingDropsOwner) { 0 } else { from.owner };
        *row = Some(Req { owner, status: Status::Completed, aged: false, ..from });
        Answer::Done
    }

    /// Compares as the condition on META does: the version, or the attributes of a foreign row.
    fn same_row(&self, now: Option<Meta>, seen: Option<Meta>) -> bool {
        let (Some(now), Some(seen)) = (now, seen) else {
            return now.is_none() && seen.is_none();
        };
        if seen.version != NO_VERSION {
            return now.version == seen.version;
        }
        let no_version = now.version == NO_VERSION || !self.guards.on(Guard::ForeignRowHasNoVersion);
        // The revision stands for the etag: equal content has an equal etag.
        let same_etag = now.rev == seen.rev || !self.guards.on(Guard::ForeignEtagCompared);
        let same_place = (now.body, now.generated_at) == (seen.body, seen.generated_at);
        no_version && same_etag && same_place
    }

    /// The number of the version that follows `seen`.
    pub(crate) fn next_version(&self, seen: Option<Meta>, source_ms: Option<Tick>, now: Tick) -> Tick {
        let wanted = source_ms.unwrap_or(now);
        match seen {
            Some(meta) if meta.version == NO_VERSION => wanted.max(meta.generated_at),
            Some(meta) if self.guards.on(Guard::VersionAbovePrevious) => wanted.max(meta.version.0 + 1),
            _ => wanted,
        }
    }
}

/// Whether a version of this kind withdraws the published page.
pub(crate) fn withdraws(seen: Option<Meta>, kind: Kind) -> bool {
    seen.is_some_and(|seen| seen.kind.is_page()) && !kind.is_page()
}

fn claim(s: &mut State, key: u8, hash: u8, owner: Token) -> Answer {
    match s.reqs[key as usize] {
        Some(row) => Answer::Exists(row),
        None => {
            s.reqs[key as usize] = Some(started(hash, owner));
            Answer::Done
        }
    }
}

fn started(hash: u8, owner: Token) -> Req {
    Req { hash, owner, status: Status::Started, aged: false, attempts: 1, past_ttl: false }
}

/// Deletes LOCK if it carries the token.
pub(crate) fn release(s: &mut State, token: Token) {
    if s.lock.is_some_and(|lock| lock.token == token) {
        s.lock = None;
    }
}

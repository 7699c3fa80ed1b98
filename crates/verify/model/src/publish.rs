//! The second half of a worker's attempt: render, upload, commit, and recovery from a lost
//! response.

use crate::Everfresh;
use crate::events::Event;
use crate::guards::Guard;
use crate::ledger::{Answer, Commit, Write, withdraws};
use crate::scopes::Simultaneous;
use crate::state::{At, EVER, Kind, Meta, Rev, State, Status, Tick, Token};
use crate::worker::{Delivery, batch_of, token};

impl Everfresh {
    pub(crate) fn render(&self, s: &mut State, w: usize) {
        if self.scope.simultaneous == Simultaneous::TwoRenders {
            s.renders += 1;
        }
        let source_ms = self.stamp(s, w);
        self.rendered(s, w, source_ms, s.source);
    }

    /// The origin's cache responds with stored content and its `Age`.
    pub(crate) fn render_cached(&self, s: &mut State, w: usize) {
        let Some((rev, stored_at)) = s.cache else { return };
        s.budget.cached -= 1;
        if !self.guards.on(Guard::AgeDatesTheAnswer) {
            let source_ms = self.stamp(s, w);
            return self.rendered(s, w, source_ms, rev);
        }
        let made = self.now(s, w) - (s.clock - stored_at);
        let newest = batch_of(s, w).map(|m| s.msgs[m].sent).max();
        let shows_all = newest.is_none_or(|sent| made >= sent + self.scope.epsilon);
        // Two workers' clocks are compared, so the distance is two clock errors.
        let published = s.workers[w].seen.and_then(|meta| meta.source_ms);
        let older = published.is_some_and(|published| made < published + 2 * self.scope.epsilon);
        let same = self.unchanged(s.workers[w].seen, Kind::Page, rev);
        let distance_kept = !older || same || !self.guards.on(Guard::CachedAnswerKeepsDistance);
        if s.workers[w].skew.is_none() || !shows_all || !distance_kept {
            self.note(Event::OriginStale);
            s.workers[w].at = At::GiveBack;
            return;
        }
        self.note(Event::CachedAnswerPublished);
        self.rendered(s, w, if older && same { published } else { Some(made) }, rev);
    }

    fn rendered(&self, s: &mut State, w: usize, source_ms: Option<Tick>, rev: Rev) {
        let worker = &mut s.workers[w];
        worker.source_ms = source_ms;
        worker.rev = rev;
        let kind = worker.rendered;
        worker.at = if !self.unchanged(worker.seen, kind, rev) {
            if kind == Kind::Bypass {
                At::Commit
            } else if self.guards.on(Guard::UploadBeforeCommit) {
                At::Upload
            } else {
                At::Commit
            }
        } else if self.guards.on(Guard::UnchangedCommits) {
            At::Commit
        } else {
            At::ReleaseThenAck
        };
        let checks_before = !self.guards.on(Guard::WithdrawalCounted);
        if checks_before && withdraws(s.workers[w].seen, kind) && self.withdrawals_spent(s) {
            s.workers[w].at = At::GiveBack;
        }
    }

    /// `source_ms`: a time that is certainly not after the first read of the render.
    fn stamp(&self, s: &State, w: usize) -> Option<Tick> {
        let newest_sent = batch_of(s, w).map(|m| s.msgs[m].sent).max();
        let bounded = s.workers[w].skew.is_some();
        if bounded || !self.guards.on(Guard::UnboundedClockNotWritten) {
            let floor = newest_sent.filter(|_| self.guards.on(Guard::SourceMsFloor));
            return Some(self.now(s, w)).max(floor);
        }
        newest_sent.filter(|_| self.guards.on(Guard::UnboundedClockWritesSentTime))
    }

    pub(crate) fn store(&self, s: &mut State, w: usize, delivery: Delivery) {
        let write = Write::Upload { key: self.object_key(s, w), rev: s.workers[w].rev };
        if self.send(s, write, delivery).is_some() {
            s.workers[w].at = if self.guards.on(Guard::UploadBeforeCommit) { At::Commit } else { At::AckAll };
        }
    }

    fn object_key(&self, s: &State, w: usize) -> Token {
        if self.guards.on(Guard::UniqueS3Key) { token(s, w) } else { 0 }
    }

    pub(crate) fn publish_page(&self, s: &mut State, w: usize, sees_expired: bool, delivery: Delivery) {
        let commit = self.transaction(s, w, sees_expired);
        match self.send(s, Write::Commit(commit), delivery) {
            Some(Answer::Done) => self.committed(s, w, commit),
            Some(Answer::Refused(why)) if why.meta_moved => {
                self.note(Event::Superseded);
                s.workers[w].at = At::GiveBack;
            }
            Some(Answer::Refused(why)) if why.claim_lost || why.lease_lost => {
                self.note(Event::LateWorkerRefused);
                s.workers[w].at = At::GiveBack;
            }
            Some(Answer::Refused(why)) if why.withdrawals_spent => self.withdrawal_refused(s, w),
            Some(_) => s.workers[w].at = At::Reacquire,
            None if self.guards.on(Guard::ReadReqAfterLostCommit) => s.workers[w].at = At::CommitUnknown,
            None => s.workers[w].at = At::Fail,
        }
    }

    fn withdrawal_refused(&self, s: &mut State, w: usize) {
        self.note(Event::WithdrawalRefused);
        let acks = self.plan(s.workers[w].lead).expired || !self.guards.on(Guard::RefusedChangedWaits);
        s.workers[w].at = if !self.guards.on(Guard::RefusalGivesBack) {
            At::Fail
        } else if acks {
            At::GiveBackThenAck
        } else {
            At::GiveBack
        };
    }

    fn transaction(&self, s: &State, w: usize, sees_expired: bool) -> Commit {
        let worker = s.workers[w];
        let source_ms = if self.guards.on(Guard::SourceMsBeforeRender) { worker.source_ms } else { self.stamp(s, w) };
        let bypass = worker.rendered == Kind::Bypass;
        let source_ms = match worker.seen {
            Some(seen) if bypass && !self.guards.on(Guard::BypassOwnSourceMs) => seen.source_ms,
            _ => source_ms,
        };
        let body = match worker.seen {
            Some(seen) if bypass && !self.guards.on(Guard::BypassHasNoBody) => seen.body,
            Some(seen) if !bypass && self.unchanged(worker.seen, worker.rendered, worker.rev) => seen.body,
            _ => self.object_key(s, w),
        };
        let number = self.next_version(worker.seen, source_ms, self.now(s, w));
        Commit {
            key: self.plan(worker.lead).key,
            lead: worker.lead,
            token: token(s, w),
            seen: worker.seen,
            meta: Meta {
                kind: worker.rendered,
                version: (number, token(s, w)),
                source_ms,
                // Compared only on foreign rows.
                generated_at: 0,
                body,
                rev: worker.rev,
                since: EVER,
                era: 0,
            },
            clears_failures: worker.saw_failure,
            sees_expired,
        }
    }

    fn committed(&self, s: &mut State, w: usize, commit: Commit) {
        let kind = commit.meta.kind;
        let same = self.unchanged(commit.seen, kind, commit.meta.rev);
        self.note(match (same, kind) {
            (true, Kind::Bypass) => Event::BypassUnchanged,
            (true, _) => Event::Unchanged,
            (false, Kind::Bypass) => Event::Bypassed,
            (false, _) => Event::Committed,
        });
        if withdraws(commit.seen, kind) {
            self.note(Event::Withdrawn);
        }
        if kind.has_body() && commit.seen.is_some_and(|seen| seen.kind == Kind::Bypass) {
            self.note(Event::PublishedAgain);
        }
        if s.workers[w].skew.is_none() {
            self.note(Event::CommitWithUnboundedClock);
        }
        let uploaded = same || kind == Kind::Bypass || self.guards.on(Guard::UploadBeforeCommit);
        s.workers[w].at = if uploaded { At::AckAll } else { At::Upload };
    }

    pub(crate) fn read_after_lost_commit(&self, s: &mut State, w: usize) {
        let key = self.plan(s.workers[w].lead).key as usize;
        let mine = token(s, w);
        s.workers[w].at = match s.reqs[key] {
            Some(row) if row.status == Status::Completed && row.owner == mine => {
                self.note(Event::LostCommitFoundDone);
                At::AckAll
            }
            // Another worker's commit covers the request, not the other messages of this batch.
            Some(row) if row.status == Status::Completed && !row.past_ttl => At::AckLead,
            Some(row) if row.status == Status::Started && row.owner == mine => {
                self.note(Event::LostCommitSentAgain);
                At::Commit
            }
            _ => At::GiveBack,
        };
    }

    /// Every bypass is like the one before; other content is compared by its digest.
    fn unchanged(&self, seen: Option<Meta>, kind: Kind, rev: Rev) -> bool {
        let Some(seen) = seen else { return false };
        if kind == Kind::Bypass {
            return seen.kind == Kind::Bypass;
        }
        let has_digest =
            seen.kind == kind || (seen.kind == Kind::Bypass && !self.guards.on(Guard::BypassForgetsDigest));
        has_digest && seen.rev == rev
    }
}

//! The worker: each step is one call of the protocol.

use crate::Everfresh;
use crate::events::Event;
use crate::guards::Guard;
use crate::ledger::{Answer, Write};
use crate::state::{At, Kind, Place, Req, State, Status, Tick, Token};

/// What happens to a write and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    Answered,
    /// Applied, but the response is lost.
    AnswerLost,
    /// The caller times out; the write may still arrive later, or never.
    Late,
    /// Applied and answered, and a duplicate may arrive later.
    Duplicated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The next call of the protocol.
    Go {
        /// The worker sees an aged lease or claim as expired.
        sees_expired: bool,
        delivery: Delivery,
    },
    RenderFails,
    /// The origin's answer must not be stored.
    RenderBypass,
    /// The origin answers 404, 410 or 301.
    RenderAbsent,
    /// The origin's cache responds.
    RenderCached,
    /// Extends the lease during render or upload.
    Renew,
    /// Stops resending a commit and writes FAILED instead.
    GiveUp,
    /// The messages become visible again.
    Crash,
}

/// The token of a worker's present attempt.
pub(crate) fn token(s: &State, w: usize) -> Token {
    1 + 40 * w as Token + s.workers[w].attempts
}

impl Everfresh {
    /// Receives a batch: the first message leads, the others follow.
    pub(crate) fn receive(&self, s: &mut State, w: usize, lead: u8, followers: u8) {
        let worker = &mut s.workers[w];
        worker.attempts += 1;
        worker.at = At::Lookup;
        worker.lead = lead;
        worker.followers = followers;
        for (m, msg) in s.msgs.iter_mut().enumerate() {
            if m == lead as usize || followers & (1 << m) != 0 {
                msg.in_flight |= 1 << w;
            }
        }
    }

    /// Makes the next call of the protocol.
    pub(crate) fn go(&self, s: &mut State, w: usize, sees_expired: bool, delivery: Delivery) {
        let key = self.plan(s.workers[w].lead).key;
        match s.workers[w].at {
            At::Idle => {}
            At::Lookup => self.lookup(s, w, sees_expired),
            At::ReadReq => self.read_req(s, w),
            At::Claim => self.claim(s, w, sees_expired, delivery),
            At::Takeover(from) => self.take_over(s, w, from, delivery),
            At::Wanted => match self.send(s, Write::Wanted, delivery) {
                Some(Answer::Done) => {
                    self.note(Event::WantedRecorded);
                    s.msgs[s.workers[w].lead as usize].wanted = true;
                    s.workers[w].at = At::AckLead;
                }
                Some(_) => {
                    self.note(Event::WantedRefused);
                    retry(s, w);
                }
                None => {}
            },
            At::Settle(from) => {
                if self.send(s, Write::Settle { key, from }, delivery) == Some(Answer::Done) {
                    self.note(Event::CoveredRecordSettled);
                }
                s.workers[w].at = At::AckLead;
            }
            At::Acquire => self.acquire_lease(s, w, sees_expired, delivery),
            At::Render => self.render(s, w),
            At::Upload => self.store(s, w, delivery),
            At::Commit => self.publish_page(s, w, sees_expired, delivery),
            At::Reacquire => {
                let token = token(s, w);
                match self.send(s, Write::Reacquire { token }, delivery) {
                    Some(Answer::Done) => {
                        self.note(Event::Reacquired);
                        s.workers[w].at = At::Commit;
                    }
                    Some(_) => {
                        self.note(Event::ReacquireRefused);
                        s.workers[w].at = At::GiveBack;
                    }
                    None => {}
                }
            }
            At::CommitUnknown => self.read_after_lost_commit(s, w),
            At::Fail => {
                let token = token(s, w);
                match self.send(s, Write::Fail { key, token }, delivery) {
                    Some(Answer::Done) => self.note(Event::Failed),
                    Some(_) => self.note(Event::FailRefused),
                    None => {}
                }
                retry(s, w);
            }
            At::GiveBack => {
                let token = token(s, w);
                self.send(s, Write::GiveBack { key, token }, delivery);
                retry(s, w);
            }
            At::GiveBackThenAck => {
                let token = token(s, w);
                self.send(s, Write::GiveBack { key, token }, delivery);
                s.workers[w].at = At::AckLead;
            }
            At::ReleaseThenAck => {
                let token = token(s, w);
                self.send(s, Write::GiveBack { key, token }, delivery);
                s.workers[w].at = At::AckAll;
            }
            At::AckLead => self.ack_lead(s, w, Place::Acked),
            At::AckAll => {
                if s.workers[w].followers != 0 {
                    self.note(Event::FollowersCovered);
                }
                settle_all(s, w, Place::Acked);
            }
            At::Reject => self.ack_lead(s, w, Place::Dead),
        }
    }

    /// Sends a write; returns the response unless it is lost.
    pub(crate) fn send(&self, s: &mut State, write: Write, delivery: Delivery) -> Option<Answer> {
        match delivery {
            Delivery::Answered => Some(self.apply(s, write)),
            Delivery::AnswerLost => {
                s.budget.lost -= 1;
                self.apply(s, write);
                None
            }
            Delivery::Late => {
                s.budget.late -= 1;
                s.net.push(write);
                None
            }
            Delivery::Duplicated => {
                s.budget.late -= 1;
                s.net.push(write);
                Some(self.apply(s, write))
            }
        }
    }

    fn claim(&self, s: &mut State, w: usize, sees_expired: bool, delivery: Delivery) {
        let lead = s.workers[w].lead;
        let plan = self.plan(lead);
        let owner = token(s, w);
        let write = Write::Claim { key: plan.key, hash: plan.hash, owner };
        let row = match self.send(s, write, delivery) {
            None => return,
            Some(Answer::Exists(row)) => row,
            Some(_) => {
                s.workers[w].at = At::Acquire;
                return;
            }
        };
        if row.owner == owner && row.status == Status::Started {
            self.note(Event::ClaimMineAlready);
            s.workers[w].at = At::Acquire;
        } else if row.past_ttl {
            self.note(Event::ExpiredReqTakenOver);
            s.workers[w].at = At::Takeover(row);
        } else if !self.same_payload(s, lead) {
            self.note(Event::OtherPayloadRejected);
            s.workers[w].at = At::Reject;
        } else {
            match row.status {
                Status::Completed => self.replayed(s, w),
                Status::Started if !(row.aged && sees_expired) => self.busy(s, w),
                Status::Started if !self.may_take_over(row) => self.busy(s, w),
                _ if row.attempts >= self.scope.attempt_limit => {
                    self.note(Event::AttemptsExhausted);
                    s.workers[w].at = At::Reject;
                }
                Status::Started | Status::Failed => s.workers[w].at = At::Takeover(row),
            }
        }
    }

    /// A claim that was given back may be taken over always, an expired one only with the guard.
    fn may_take_over(&self, row: Req) -> bool {
        row.owner == 0 || self.guards.on(Guard::TakeoverOfExpired)
    }

    fn busy(&self, s: &mut State, w: usize) {
        self.note(Event::Busy);
        retry(s, w);
    }

    pub(crate) fn replayed(&self, s: &mut State, w: usize) {
        self.note(Event::Replayed);
        s.workers[w].at = if self.guards.on(Guard::FollowersNeedOwnCommit) { At::AckLead } else { At::AckAll };
    }

    pub(crate) fn same_payload(&self, s: &State, lead: u8) -> bool {
        let plan = self.plan(lead);
        let same = s.reqs[plan.key as usize].is_some_and(|row| row.hash == plan.hash);
        same || !self.guards.on(Guard::RequestHash)
    }

    fn take_over(&self, s: &mut State, w: usize, from: Req, delivery: Delivery) {
        let plan = self.plan(s.workers[w].lead);
        let write = Write::Takeover { key: plan.key, hash: plan.hash, owner: token(s, w), from };
        match self.send(s, write, delivery) {
            Some(Answer::Done) => {
                self.note(Event::TakenOver);
                s.workers[w].at = At::Acquire;
            }
            Some(_) => {
                self.note(Event::TakeoverRefused);
                s.workers[w].at = At::Claim;
            }
            // The claim is sent again: its response shows whether this attempt owns the row.
            None => s.workers[w].at = At::Claim,
        }
    }

    fn acquire_lease(&self, s: &mut State, w: usize, sees_expired: bool, delivery: Delivery) {
        let write = Write::Acquire { token: token(s, w), sees_expired };
        match self.send(s, write, delivery) {
            Some(Answer::Done) => s.workers[w].at = At::Render,
            Some(_) => {
                self.note(Event::AcquireLost);
                s.workers[w].at = At::GiveBack;
            }
            None => {}
        }
    }

    fn ack_lead(&self, s: &mut State, w: usize, place: Place) {
        let lead = s.workers[w].lead as usize;
        settle(s, w, lead, place);
        let followers = s.workers[w].followers;
        if followers == 0 {
            reset(s, w);
            return;
        }
        self.note(Event::NextLeads);
        let next = followers.trailing_zeros() as u8;
        let attempts = s.workers[w].attempts;
        reset(s, w);
        self.receive(s, w, next, followers & !(1 << next));
        if !self.guards.on(Guard::NewAttemptPerLeader) {
            s.workers[w].attempts = attempts;
        }
    }

    /// A worker's own clock.
    pub(crate) fn now(&self, s: &State, w: usize) -> Tick {
        s.clock + s.workers[w].skew.unwrap_or(self.scope.wild_skew)
    }
}

pub(crate) fn batch_of(s: &State, w: usize) -> impl Iterator<Item = usize> {
    let worker = s.workers[w];
    let bits = worker.followers | (1 << worker.lead);
    (0..s.msgs.len()).filter(move |m| bits & (1 << m) != 0)
}

/// Leaves every message of the batch in the queue.
pub(crate) fn retry(s: &mut State, w: usize) {
    settle_all(s, w, Place::Queued);
}

fn settle_all(s: &mut State, w: usize, place: Place) {
    let messages: Vec<usize> = batch_of(s, w).collect();
    for m in messages {
        settle(s, w, m, place);
    }
    reset(s, w);
}

/// A message that was acked or rejected once stays so, also if a duplicate ends otherwise.
fn settle(s: &mut State, w: usize, m: usize, place: Place) {
    let msg = &mut s.msgs[m];
    msg.in_flight &= !(1 << w);
    if msg.place == Place::Queued {
        msg.place = place;
    }
}

/// Clears all but the clock and the attempt count, which keeps tokens distinct.
fn reset(s: &mut State, w: usize) {
    let worker = &mut s.workers[w];
    worker.at = At::Idle;
    worker.lead = 0;
    worker.followers = 0;
    worker.seen = None;
    worker.saw_failure = false;
    worker.source_ms = None;
    worker.rev = 0;
    worker.rendered = Kind::Page;
}

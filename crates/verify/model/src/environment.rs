//! The environment of the workers: messages, time, faults, and writes that arrive late.

use crate::Everfresh;
use crate::events::Event;
use crate::scopes::Sender;
use crate::state::{At, Kind, Place, READERS, State, Status};
use crate::worker::{Delivery, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Env {
    /// The source changes, if the plan includes that, and the message is sent.
    Send(u8),
    /// The source changes without a message.
    Change,
    /// The origin's cache stores the page as it is now.
    CacheFills,
    /// A worker receives a batch.
    Deliver {
        worker: u8,
        /// The leading message.
        lead: u8,
        /// The other messages of the batch, as a bit set.
        followers: u8,
    },
    Tick,
    /// The lease expires.
    LeaseAges,
    /// A claim expires.
    ClaimAges(u8),
    /// A REQ row passes its ttl.
    ReqExpires(u8),
    /// The cooldown after a failure ends.
    CooldownEnds,
    /// A bypass's next check falls due.
    CheckDue,
    /// Another page of the tenant is withdrawn.
    OtherWithdrawal,
    /// The bucket that counts withdrawals ends.
    BucketEnds,
    /// A delayed or duplicated write arrives.
    Arrive(u8),
}

impl Everfresh {
    pub(crate) fn env_actions(&self, s: &State, out: &mut Vec<Env>) {
        self.sends(s, out);
        if s.budget.silent_changes > 0 {
            out.push(Env::Change);
        }
        if s.budget.cached > 0 && s.cache.is_none() {
            out.push(Env::CacheFills);
        }
        self.deliveries(s, out);
        if s.clock < self.scope.last_tick {
            out.push(Env::Tick);
        }
        if s.budget.lease_ages > 0 && s.lock.is_some_and(|lock| !lock.aged) {
            out.push(Env::LeaseAges);
        }
        for (key, row) in s.reqs.iter().enumerate() {
            let Some(row) = row else { continue };
            if s.budget.claim_ages > 0 && row.status == Status::Started && !row.aged {
                out.push(Env::ClaimAges(key as u8));
            }
            if s.budget.ttl > 0 && row.status != Status::Started && !row.past_ttl {
                out.push(Env::ReqExpires(key as u8));
            }
        }
        if s.health.cooldown {
            out.push(Env::CooldownEnds);
        }
        let bypass = s.meta.is_some_and(|meta| meta.kind == Kind::Bypass);
        if s.budget.checks > 0 && bypass && !s.check_due {
            out.push(Env::CheckDue);
        }
        if s.budget.other_withdrawals > 0 && s.withdrawals < self.scope.withdrawal_limit {
            out.push(Env::OtherWithdrawal);
        }
        if s.budget.buckets > 0 && s.withdrawals > 0 {
            out.push(Env::BucketEnds);
        }
        for i in 0..s.net.len() {
            out.push(Env::Arrive(i as u8));
        }
    }

    /// Messages are sent in the order of the plan: the order of equal ones does not matter.
    fn sends(&self, s: &State, out: &mut Vec<Env>) {
        let next = (0..self.scope.messages.len()).find(|&m| s.msgs[m].place == Place::Unsent);
        if let Some(m) = next
            && self.scope.messages[m].sender == Sender::Producer
        {
            out.push(Env::Send(m as u8));
        }
    }

    fn deliveries(&self, s: &State, out: &mut Vec<Env>) {
        for w in 0..self.scope.workers {
            let worker = s.workers[w];
            if worker.at != At::Idle || worker.attempts >= self.scope.runs {
                continue;
            }
            for lead in 0..READERS {
                if !deliverable(s, lead) {
                    continue;
                }
                out.push(deliver(w, lead, 0));
                if !self.scope.batches {
                    continue;
                }
                for other in (0..READERS).filter(|&other| other != lead) {
                    let free = s.msgs[other].place == Place::Queued && s.msgs[other].in_flight == 0;
                    if free {
                        out.push(deliver(w, lead, 1 << other));
                    }
                }
            }
        }
    }

    pub(crate) fn env_step(&self, s: &mut State, env: Env) {
        match env {
            Env::Send(m) => self.send_message(s, m as usize),
            Env::Change => {
                s.budget.silent_changes -= 1;
                s.source += 1;
            }
            Env::CacheFills => s.cache = Some((s.source, s.clock)),
            Env::Deliver { worker, lead, followers } => {
                if !free(s, lead as usize) {
                    s.budget.duplicates -= 1;
                }
                self.receive(s, worker as usize, lead, followers);
            }
            Env::Tick => s.clock += 1,
            Env::LeaseAges => {
                s.budget.lease_ages -= 1;
                if let Some(lock) = &mut s.lock {
                    lock.aged = true;
                }
            }
            Env::ClaimAges(key) => {
                s.budget.claim_ages -= 1;
                if let Some(row) = &mut s.reqs[key as usize] {
                    row.aged = true;
                }
            }
            Env::ReqExpires(key) => {
                s.budget.ttl -= 1;
                s.commits[key as usize] = 0;
                if let Some(row) = &mut s.reqs[key as usize] {
                    row.past_ttl = true;
                }
            }
            Env::CooldownEnds => s.health.cooldown = false,
            Env::CheckDue => {
                s.budget.checks -= 1;
                s.check_due = true;
            }
            Env::OtherWithdrawal => {
                s.budget.other_withdrawals -= 1;
                s.withdrawals += 1;
            }
            Env::BucketEnds => {
                s.budget.buckets -= 1;
                s.withdrawals = 0;
            }
            Env::Arrive(i) => self.arrive(s, i as usize),
        }
    }

    /// A message stands for the source as it is now; one with a shared key repeats the same
    /// request.
    pub(crate) fn send_message(&self, s: &mut State, m: usize) {
        let plan = self.plan(m as u8);
        if plan.changes_source {
            s.source += 1;
        }
        let repeats = (0..m).find(|&n| {
            let other = self.plan(n as u8);
            (other.key, other.hash) == (plan.key, plan.hash)
        });
        let msg = &mut s.msgs[m];
        msg.place = Place::Queued;
        msg.sent = s.clock;
        msg.rev = s.source;
        if let Some(first) = repeats {
            s.msgs[m].rev = s.msgs[first].rev;
        }
    }

    fn arrive(&self, s: &mut State, i: usize) {
        let write = s.net.remove(i);
        let before = s.clone();
        self.apply(s, write);
        self.note(if *s == before { Event::LateWriteWithoutEffect } else { Event::LateWriteWithEffect });
    }

    /// The possible steps of a worker; the first one is the step without faults.
    pub(crate) fn worker_steps(&self, s: &State, w: usize, out: &mut Vec<Step>) {
        let at = s.workers[w].at;
        if at == At::Idle {
            return;
        }
        for &sees_expired in self.expiry_views(s, w) {
            for &delivery in self.write_deliveries(s, at) {
                out.push(Step::Go { sees_expired, delivery });
            }
        }
        if at == At::Render && s.budget.failures > 0 {
            out.push(Step::RenderFails);
        }
        if at == At::Render && s.budget.bypasses > 0 {
            out.push(Step::RenderBypass);
        }
        if at == At::Render && s.budget.absences > 0 {
            out.push(Step::RenderAbsent);
        }
        if at == At::Render && s.budget.cached > 0 && s.cache.is_some() {
            out.push(Step::RenderCached);
        }
        if at == At::CommitUnknown && self.owns_claim(s, w) {
            out.push(Step::GiveUp);
        }
        let aged = s.lock.is_some_and(|lock| lock.aged && lock.token == crate::worker::token(s, w));
        if aged && matches!(at, At::Render | At::Upload) {
            out.push(Step::Renew);
        }
        if s.budget.crashes > 0 {
            out.push(Step::Crash);
        }
    }

    fn write_deliveries(&self, s: &State, at: At) -> &'static [Delivery] {
        let writes = !matches!(
            at,
            At::Lookup | At::ReadReq | At::Render | At::CommitUnknown | At::AckLead | At::AckAll | At::Reject
        );
        let late = s.budget.late > 0 && (at == At::Commit || !self.scope.only_commits_late);
        match (writes, s.budget.lost > 0, late) {
            (true, true, true) => &[Delivery::Answered, Delivery::AnswerLost, Delivery::Late, Delivery::Duplicated],
            (true, true, false) => &[Delivery::Answered, Delivery::AnswerLost],
            (true, false, true) => &[Delivery::Answered, Delivery::Late, Delivery::Duplicated],
            _ => &[Delivery::Answered],
        }
    }

    fn owns_claim(&self, s: &State, w: usize) -> bool {
        let key = self.plan(s.workers[w].lead).key as usize;
        let mine = crate::worker::token(s, w);
        s.reqs[key].is_some_and(|row| row.status == Status::Started && row.owner == mine)
    }

    /// Whether the worker may see the lease or claim of its next call as expired.
    fn expiry_views(&self, s: &State, w: usize) -> &'static [bool] {
        let aged = match s.workers[w].at {
            At::Lookup | At::Acquire | At::Commit => s.lock.is_some_and(|lock| lock.aged),
            At::Claim => {
                let key = self.plan(s.workers[w].lead).key as usize;
                s.reqs[key].is_some_and(|row| row.aged)
            }
            At::Idle
            | At::ReadReq
            | At::Takeover(_)
            | At::Wanted
            | At::Settle(_)
            | At::Render
            | At::Upload
            | At::Reacquire
            | At::CommitUnknown
            | At::Fail
            | At::GiveBack
            | At::GiveBackThenAck
            | At::ReleaseThenAck
            | At::AckLead
            | At::AckAll
            | At::Reject => false,
        };
        self.views_of(aged)
    }

    /// Where clocks are in doubt, an aged row may be seen as expired or as live.
    pub(crate) fn views_of(&self, aged: bool) -> &'static [bool] {
        match (aged, self.scope.clocks_in_doubt) {
            (false, _) => &[false],
            (true, false) => &[true],
            (true, true) => &[true, false],
        }
    }

    pub(crate) fn worker_step(&self, s: &mut State, w: usize, step: Step) {
        match step {
            Step::Go { sees_expired, delivery } => self.go(s, w, sees_expired, delivery),
            Step::RenderFails => {
                s.budget.failures -= 1;
                s.workers[w].at = At::Fail;
            }
            Step::RenderBypass => {
                s.budget.bypasses -= 1;
                s.workers[w].rendered = Kind::Bypass;
                self.render(s, w);
            }
            Step::RenderAbsent => {
                s.budget.absences -= 1;
                s.workers[w].rendered = Kind::Absent;
                self.render(s, w);
            }
            Step::RenderCached => self.render_cached(s, w),
            Step::Renew => {
                self.note(Event::Renewed);
                if let Some(lock) = &mut s.lock {
                    lock.aged = false;
                }
            }
            Step::GiveUp => s.workers[w].at = At::Fail,
            Step::Crash => {
                s.budget.crashes -= 1;
                crate::worker::retry(s, w);
            }
        }
    }
}

fn deliver(w: usize, lead: usize, followers: u8) -> Env {
    Env::Deliver { worker: w as u8, lead: lead as u8, followers }
}

fn free(s: &State, m: usize) -> bool {
    s.msgs[m].place == Place::Queued && s.msgs[m].in_flight == 0
}

fn deliverable(s: &State, m: usize) -> bool {
    let sent = s.msgs[m].place != Place::Unsent;
    free(s, m) || (sent && s.budget.duplicates > 0)
}

//! The first half of a worker's attempt: whether the request needs a render.

use crate::Everfresh;
use crate::coverage::{Coverage, coverage};
use crate::events::Event;
use crate::guards::Guard;
use crate::state::{At, Kind, Req, State, Status};
use crate::worker::retry;

impl Everfresh {
    pub(crate) fn lookup(&self, s: &mut State, w: usize, sees_expired: bool) {
        let worker = s.workers[w];
        let covered = self.covers(s, worker.lead);
        s.workers[w].seen = s.meta;
        s.workers[w].saw_failure = s.health.cooldown;
        if covered == Coverage::Covered {
            self.note(Event::AlreadyCovered);
            s.workers[w].at = match self.unsettled(s, w) {
                _ if !self.guards.on(Guard::FollowersNeedOwnCommit) => At::AckAll,
                Some(row) => At::Settle(row),
                None => At::AckLead,
            };
        } else if s.health.pinned {
            s.workers[w].at = if self.plan(worker.lead).expired { At::AckLead } else { At::Wanted };
        } else if s.lock.is_some_and(|lock| !(lock.aged && sees_expired)) {
            self.note(Event::Busy);
            retry(s, w);
        } else if s.health.cooldown {
            self.note(Event::CooldownWaits);
            if self.plan(worker.lead).expired {
                s.workers[w].at = At::AckLead;
            } else {
                retry(s, w);
            }
        } else if covered == Coverage::TooClose {
            s.workers[w].at = At::ReadReq;
        } else {
            s.workers[w].at = At::Claim;
        }
    }

    /// The REQ row that earlier deliveries of a covered request left, unless its claim is live.
    fn unsettled(&self, s: &State, w: usize) -> Option<Req> {
        let lead = s.workers[w].lead;
        let row = s.reqs[self.plan(lead).key as usize].filter(|row| !row.past_ttl)?;
        let live = row.status == Status::Started && row.owner != 0 && !row.aged;
        (row.status != Status::Completed && !live && self.same_payload(s, lead)).then_some(row)
    }

    fn covers(&self, s: &State, lead: u8) -> Coverage {
        let sent = s.msgs[lead as usize].sent;
        let checked = s.meta.is_some_and(|meta| meta.kind == Kind::Bypass) && !s.check_due && !self.readers_enqueue(s);
        if self.plan(lead).expired {
            // A page's life is over in this model, so only a version made since covers it.
            let made_since = s.meta.and_then(|meta| meta.source_ms).is_some_and(|made| made >= sent);
            let gone = s.meta.is_some_and(|meta| meta.kind == Kind::Tombstone);
            if checked {
                self.note(Event::BypassNotDue);
            }
            return if checked || made_since || gone { Coverage::Covered } else { Coverage::NotCovered };
        }
        if checked && !self.guards.on(Guard::ChangedChecksAtOnce) {
            return Coverage::Covered;
        }
        coverage(self.guards, s.meta, sent, self.scope.epsilon)
    }

    pub(crate) fn read_req(&self, s: &mut State, w: usize) {
        let lead = s.workers[w].lead;
        let plan = self.plan(lead);
        let done = s.reqs[plan.key as usize].is_some_and(|row| row.status == Status::Completed && !row.past_ttl);
        if done && self.same_payload(s, lead) {
            self.replayed(s, w);
        } else if self.now(s, w) >= s.msgs[lead as usize].sent + self.scope.epsilon {
            s.workers[w].at = At::Claim;
        } else {
            self.note(Event::TooClose);
            retry(s, w);
        }
    }
}

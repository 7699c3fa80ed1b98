//! The operator's verbs: take the lease, read META, then write HEALTH and a new version at once.

use crate::Everfresh;
use crate::coverage::watermark;
use crate::events::Event;
use crate::guards::Guard;
use crate::ledger::{Answer, Write, release};
use crate::scopes::Sender;
use crate::state::{Kind, Meta, OPERATOR, OpAt, Place, State, Status, Token};

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Keep what is published.
    Pin,
    /// Publish the previous version again and keep it.
    RollBack,
    /// Let it change again.
    Unpin,
    /// Publish a tombstone.
    Purge,
    /// Delete bodies that nothing points at.
    Sweep,
}

/// A step of the operator's tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpStep {
    /// Takes the lease and reads META.
    Acquire {
        /// It judges an aged lease expired.
        sees_expired: bool,
    },
    /// Writes.
    Write,
    /// Sends the message that unpin owes.
    Enqueue,
    /// Dies.
    Crash,
}

impl Everfresh {
    fn verb(&self, s: &State) -> Option<Verb> {
        self.scope.script.get(s.operator.1 as usize).copied()
    }

    /// The operator's possible steps.
    pub(crate) fn operator_steps(&self, s: &State, out: &mut Vec<OpStep>) {
        let (at, _, _) = s.operator;
        match at {
            OpAt::Idle => {
                let Some(verb) = self.verb(s) else { return };
                let possible = match verb {
                    Verb::RollBack => s.previous.is_some(),
                    Verb::Pin | Verb::Unpin | Verb::Purge | Verb::Sweep => s.meta.is_some(),
                };
                if possible {
                    let aged = s.lock.is_some_and(|lock| lock.aged);
                    for &sees_expired in self.judge_age(aged) {
                        out.push(OpStep::Acquire { sees_expired });
                    }
                }
            }
            OpAt::Leased(_) => {
                out.push(OpStep::Write);
                if s.budget.operator_crashes > 0 {
                    out.push(OpStep::Crash);
                }
            }
            OpAt::EnqueueDue => {
                out.push(OpStep::Enqueue);
                if s.budget.operator_crashes > 0 {
                    out.push(OpStep::Crash);
                }
            }
        }
    }

    /// Takes one step of the operator's tool.
    pub(crate) fn operator_step(&self, s: &mut State, step: OpStep) {
        match step {
            OpStep::Acquire { sees_expired } => self.operator_acquires(s, sees_expired),
            OpStep::Write => self.operator_writes(s),
            OpStep::Enqueue => {
                self.enqueue(s);
                s.operator.0 = OpAt::Idle;
                s.operator.1 += 1;
            }
            OpStep::Crash => {
                self.note(Event::OperatorDied);
                s.budget.operator_crashes -= 1;
                s.operator.0 = OpAt::Idle;
                s.operator.1 += 1;
            }
        }
    }

    fn operator_acquires(&self, s: &mut State, sees_expired: bool) {
        let sweeps_freely = self.verb(s) == Some(Verb::Sweep) && !self.guards.on(Guard::SweepTakesLease);
        if sweeps_freely {
            let live = s.lock.is_some_and(|lock| !(lock.aged && sees_expired));
            if !live {
                s.operator.0 = OpAt::Leased(s.meta);
            }
            return;
        }
        let write = Write::Acquire { token: operator_token(s), sees_expired };
        // A lease that is held makes the tool try again later.
        if self.apply(s, write) == Answer::Done {
            s.operator.0 = OpAt::Leased(s.meta);
        }
    }

    fn operator_writes(&self, s: &mut State) {
        let (OpAt::Leased(seen), Some(verb)) = (s.operator.0, self.verb(s)) else {
            return;
        };
        if verb == Verb::Sweep {
            self.sweep(s);
            self.finish(s);
            return;
        }
        let leased = s.lock.is_some_and(|lock| lock.token == operator_token(s));
        if !leased || s.meta != seen {
            self.note(Event::OperatorSuperseded);
            release(s, operator_token(s));
            s.operator.0 = OpAt::Idle;
            return;
        }
        if verb == Verb::Unpin && !self.guards.on(Guard::UnpinEnqueuesLast) && self.enqueue(s) {
            return;
        }
        self.write_verb(s, verb);
        release(s, operator_token(s));
        if verb == Verb::Unpin && self.guards.on(Guard::UnpinEnqueuesLast) {
            s.operator.0 = OpAt::EnqueueDue;
        } else {
            self.finish(s);
        }
    }

    fn finish(&self, s: &mut State) {
        release(s, operator_token(s));
        s.operator.0 = OpAt::Idle;
        s.operator.1 += 1;
    }

    fn write_verb(&self, s: &mut State, verb: Verb) {
        let Some(old) = s.meta else { return };
        let now = s.clock + s.operator.2;
        let content = match verb {
            Verb::RollBack => s.previous.unwrap_or(old),
            Verb::Purge => Meta { kind: Kind::Tombstone, source_ms: Some(now), rev: s.source, ..old },
            Verb::Pin | Verb::Unpin | Verb::Sweep => old,
        };
        match verb {
            Verb::Pin => self.note(Event::Pinned),
            Verb::RollBack => self.note(Event::RolledBack),
            Verb::Purge => {
                self.note(Event::Purged);
                for msg in &mut s.msgs {
                    msg.before_purge = msg.place != Place::Unsent;
                }
            }
            Verb::Unpin => self.unpin(s, now),
            Verb::Sweep => {}
        }
        if verb == Verb::Pin || verb == Verb::RollBack {
            s.health.pinned = true;
        }
        if verb == Verb::Purge {
            s.health.pinned = self.guards.on(Guard::PurgePins);
        }
        if self.guards.on(Guard::PinMovesMeta) || verb == Verb::RollBack || verb == Verb::Purge {
            let number = self.next_version(Some(old), None, now);
            let meta = Meta { version: (number, operator_token(s)), ..content };
            self.publish(s, meta);
        }
    }

    fn unpin(&self, s: &mut State, now: i8) {
        self.note(Event::Unpinned);
        s.health.pinned = false;
        s.health.wanted = false;
        for msg in &mut s.msgs {
            msg.before_purge = false;
        }
        if self.guards.on(Guard::UnpinSetsWatermark) {
            let mark = watermark(self.guards, now, self.scope.epsilon);
            s.health.watermark = Some(s.health.watermark.map_or(mark, |old| old.max(mark)));
        }
    }

    /// Sends the operator's message; false if it was sent before.
    fn enqueue(&self, s: &mut State) -> bool {
        let slot = self.scope.messages.iter().position(|plan| plan.sender == Sender::Operator);
        match slot {
            Some(m) if s.msgs[m].place == Place::Unsent => {
                self.send_message(s, m);
                true
            }
            _ => false,
        }
    }

    /// Deletes what neither META nor the kept version points at.
    fn sweep(&self, s: &mut State) {
        let leased = s.lock.is_some_and(|lock| lock.token == operator_token(s));
        let live = s.lock.is_some_and(|lock| !lock.aged);
        let takes_lease = self.guards.on(Guard::SweepTakesLease);
        if (takes_lease && !leased) || (!takes_lease && live) {
            return;
        }
        self.note(Event::Swept);
        let kept = [s.meta, s.previous].map(|meta| meta.map(|meta| meta.body));
        let reqs = s.reqs;
        // Without the lease it goes by age: an attempt whose claim still runs is too young.
        let young = |key: Token| {
            let mut owned = reqs.iter().flatten().filter(|row| row.owner == key);
            !takes_lease && owned.any(|row| row.status == Status::Started && !row.aged)
        };
        s.bodies.retain(|(key, _)| kept.contains(&Some(*key)) || young(*key));
    }
}

/// Each verb has a token of its own.
fn operator_token(s: &State) -> Token {
    OPERATOR + s.operator.1
}

//! The operator's commands: take the lease, read META, then write HEALTH and a new version in one
//! transaction.

use crate::Everfresh;
use crate::coverage::watermark;
use crate::events::Event;
use crate::guards::Guard;
use crate::ledger::{Answer, Write, release};
use crate::scopes::Sender;
use crate::state::{Kind, Meta, OPERATOR, OpAt, Place, State, Status, Token};

/// An operator's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Keep the published version.
    Pin,
    /// Publish the previous version again and keep it.
    RollBack,
    /// Let workers replace the page again.
    Unpin,
    /// Publish a tombstone.
    Purge,
    /// Delete orphaned bodies.
    Sweep,
}

/// A step of the operator's CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpStep {
    /// Takes the lease and reads META.
    Acquire {
        /// The CLI sees an aged lease as expired.
        sees_expired: bool,
    },
    Write,
    /// Sends the message that follows an unpin.
    Enqueue,
    Crash,
}

impl Everfresh {
    fn command(&self, s: &State) -> Option<Command> {
        self.scope.script.get(s.operator.1 as usize).copied()
    }

    pub(crate) fn operator_steps(&self, s: &State, out: &mut Vec<OpStep>) {
        let (at, _, _) = s.operator;
        match at {
            OpAt::Idle => {
                let Some(command) = self.command(s) else { return };
                let possible = match command {
                    Command::RollBack => s.previous.is_some(),
                    Command::Pin | Command::Unpin | Command::Purge | Command::Sweep => s.meta.is_some(),
                };
                if possible {
                    let aged = s.lock.is_some_and(|lock| lock.aged);
                    for &sees_expired in self.views_of(aged) {
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
                self.note(Event::OperatorCrashed);
                s.budget.operator_crashes -= 1;
                s.operator.0 = OpAt::Idle;
                s.operator.1 += 1;
            }
        }
    }

    fn operator_acquires(&self, s: &mut State, sees_expired: bool) {
        let without_lease = self.command(s) == Some(Command::Sweep) && !self.guards.on(Guard::SweepTakesLease);
        if without_lease {
            let live = s.lock.is_some_and(|lock| !(lock.aged && sees_expired));
            if !live {
                s.operator.0 = OpAt::Leased(s.meta);
            }
            return;
        }
        let write = Write::Acquire { token: operator_token(s), sees_expired };
        // While the lease is held, the CLI tries again later.
        if self.apply(s, write) == Answer::Done {
            s.operator.0 = OpAt::Leased(s.meta);
        }
    }

    fn operator_writes(&self, s: &mut State) {
        let (OpAt::Leased(seen), Some(command)) = (s.operator.0, self.command(s)) else {
            return;
        };
        if command == Command::Sweep {
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
        if command == Command::Unpin && !self.guards.on(Guard::UnpinEnqueuesLast) && self.enqueue(s) {
            return;
        }
        self.write_command(s, command);
        release(s, operator_token(s));
        if command == Command::Unpin && self.guards.on(Guard::UnpinEnqueuesLast) {
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

    fn write_command(&self, s: &mut State, command: Command) {
        let Some(old) = s.meta else { return };
        let now = s.clock + s.operator.2;
        let content = match command {
            Command::RollBack => s.previous.unwrap_or(old),
            Command::Purge => Meta { kind: Kind::Tombstone, source_ms: Some(now), rev: s.source, ..old },
            Command::Pin | Command::Unpin | Command::Sweep => old,
        };
        match command {
            Command::Pin => self.note(Event::Pinned),
            Command::RollBack => self.note(Event::RolledBack),
            Command::Purge => {
                self.note(Event::Purged);
                for msg in &mut s.msgs {
                    msg.before_purge = msg.place != Place::Unsent;
                }
            }
            Command::Unpin => self.unpin(s, now),
            Command::Sweep => {}
        }
        if command == Command::Pin || command == Command::RollBack {
            s.health.pinned = true;
        }
        if command == Command::Purge {
            s.health.pinned = self.guards.on(Guard::PurgePins);
        }
        if self.guards.on(Guard::PinMovesMeta) || command == Command::RollBack || command == Command::Purge {
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

    /// Sends the operator's message; false if it was sent already.
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

    /// Deletes the bodies that neither META nor the kept version references.
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
        // Without the lease the sweep goes by age: an attempt with a live claim is too young.
        let young = |key: Token| {
            let mut owned = reqs.iter().flatten().filter(|row| row.owner == key);
            !takes_lease && owned.any(|row| row.status == Status::Started && !row.aged)
        };
        s.bodies.retain(|(key, _)| kept.contains(&Some(*key)) || young(*key));
    }
}

/// Each command has its own token.
fn operator_token(s: &State) -> Token {
    OPERATOR + s.operator.1
}

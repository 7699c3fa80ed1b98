//! A foreign writer: guarded by its lease alone, it replaces the whole META row and drops our
//! attributes.

use crate::Everfresh;
use crate::events::Event;
use crate::ledger::{Answer, Write};
use crate::state::{EVER, FOREIGN, ForeignAt, Kind, Meta, NO_VERSION, State, Token};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForeignStep {
    Acquire {
        /// The writer sees an aged lease as expired.
        sees_expired: bool,
        /// A copy of the write arrives later.
        echoed: bool,
    },
    Render,
    /// Puts META without a condition and deletes LOCK by token, if the lease has not expired by the
    /// writer's clock.
    Commit,
    Crash,
}

impl Everfresh {
    pub(crate) fn foreign_steps(&self, s: &State, out: &mut Vec<ForeignStep>) {
        match s.foreign.0 {
            ForeignAt::Idle => {
                if s.foreign.1 < s.budget.foreign_runs {
                    let aged = s.lock.is_some_and(|lock| lock.aged);
                    for &sees_expired in self.views_of(aged) {
                        out.push(ForeignStep::Acquire { sees_expired, echoed: false });
                        if s.budget.foreign_late > 0 {
                            out.push(ForeignStep::Acquire { sees_expired, echoed: true });
                        }
                    }
                }
            }
            ForeignAt::Leased => out.extend([ForeignStep::Render, ForeignStep::Crash]),
            ForeignAt::Rendered(_) => out.extend([ForeignStep::Commit, ForeignStep::Crash]),
        }
    }

    pub(crate) fn foreign_step(&self, s: &mut State, step: ForeignStep) {
        match step {
            ForeignStep::Acquire { sees_expired, echoed } => {
                let write = Write::Acquire { token: foreign_token(s), sees_expired };
                if self.apply(s, write) == Answer::Done {
                    s.foreign.0 = ForeignAt::Leased;
                    if echoed {
                        s.budget.foreign_late -= 1;
                        s.net.push(write);
                    }
                }
            }
            ForeignStep::Render => s.foreign.0 = ForeignAt::Rendered(s.source),
            ForeignStep::Commit => self.foreign_commit(s),
            ForeignStep::Crash => end_run(s),
        }
    }

    fn foreign_commit(&self, s: &mut State) {
        let ForeignAt::Rendered(rev) = s.foreign.0 else {
            return;
        };
        // The writer's clock may be behind, so its own aged lease still passes.
        if s.lock.is_some_and(|lock| lock.token == foreign_token(s)) {
            self.note(Event::ForeignCommitted);
            s.lock = None;
            let meta = Meta {
                kind: Kind::Foreign,
                version: NO_VERSION,
                source_ms: None,
                generated_at: s.clock,
                body: FOREIGN,
                rev,
                since: EVER,
                era: 0,
            };
            self.publish(s, meta);
        } else {
            self.note(Event::ForeignRefused);
        }
        end_run(s);
    }
}

fn foreign_token(s: &State) -> Token {
    FOREIGN + s.foreign.1
}

fn end_run(s: &mut State) {
    s.foreign.0 = ForeignAt::Idle;
    s.foreign.1 += 1;
}

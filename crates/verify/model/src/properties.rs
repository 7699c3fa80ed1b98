//! The invariants, as predicates over one state.

use stateright::Property;

use crate::Everfresh;
use crate::coverage::stale;
use crate::scopes::Simultaneous;
use crate::state::{At, FaultBudget, ForeignAt, Kind, OpAt, Place, READERS, State, Status};
use crate::worker::Step;

/// Rules that a single write can break; recorded when the write is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Broken {
    /// A commit replaced a row that its worker had not read.
    Linear = 1,
    /// A version's number did not grow.
    Grows = 2,
    /// Older content replaced newer content.
    Older = 4,
    /// A worker replaced a pinned page.
    Pin = 8,
    /// A request older than the purge published the page again.
    Gone = 16,
    /// A withdrawn body was served after a consistent look-up that began after the withdrawal.
    Served = 32,
    /// A withdrawn body was served by an instance that had seen the bypass or tombstone.
    ServedAfterSeen = 64,
}

pub const I1: &str = "I1 acked means covered";
pub const I2_LINEAR: &str = "I2 commits are linear";
pub const I2_GROWS: &str = "I2 versions grow";
pub const I2_OLDER: &str = "I2 nothing older over newer";
pub const I3: &str = "I3 one commit per request";
pub const I4: &str = "I4 the body is the committed one";
pub const I5: &str = "I5 no FAILED after commit";
pub const I6: &str = "I6 when quiet, everything settles";
pub const PIN: &str = "P1 pinned stays pinned";
pub const GONE: &str = "P2 purged stays gone";
pub const ECONOMY: &str = "P3 simultaneous requests cost two";
pub const W1: &str = "W1 no look-up serves what is withdrawn";
pub const W2: &str = "W2 no instance serves what it saw withdrawn";
pub const W3: &str = "W3 a bypass points at no body";
pub const W4: &str = "W4 withdrawals keep the limit";
pub const W5: &str = "W5 a refusal is no failure";

/// All properties; each must hold in every reachable state.
pub fn all() -> Vec<Property<Everfresh>> {
    vec![
        Property::always(I1, acked_means_covered),
        Property::always(I2_LINEAR, |_, s| intact(s, Broken::Linear)),
        Property::always(I2_GROWS, |_, s| intact(s, Broken::Grows)),
        Property::always(I2_OLDER, |_, s| intact(s, Broken::Older)),
        Property::always(I3, |_, s: &State| s.commits.iter().all(|&n| n <= 1)),
        Property::always(I4, |_, s| body_is_committed(s)),
        Property::always(I5, |_, s| no_failed_after_commit(s)),
        Property::always(I6, |model: &Everfresh, s: &State| {
            let bypasses = [0, u8::MAX].into_iter().filter(|&n| n == 0 || model.scope.budget.bypasses > 0);
            !quiet(s) || bypasses.into_iter().all(|n| model.settles(s, n))
        }),
        Property::always(PIN, |_, s| intact(s, Broken::Pin)),
        Property::always(GONE, |_, s| intact(s, Broken::Gone)),
        Property::always(W1, |_, s| intact(s, Broken::Served)),
        Property::always(W2, |_, s| intact(s, Broken::ServedAfterSeen)),
        Property::always(W3, |_, s: &State| {
            !s.meta.is_some_and(|m| m.kind == Kind::Bypass && s.body(m.body).is_some())
        }),
        Property::always(W4, |model: &Everfresh, s: &State| s.withdrawals <= model.scope.withdrawal_limit),
        Property::always(W5, |model: &Everfresh, s: &State| !s.health.cooldown || may_fail(model)),
        Property::always(ECONOMY, |model: &Everfresh, s: &State| match model.scope.simultaneous {
            Simultaneous::No => true,
            Simultaneous::TwoCommits => s.commits.iter().sum::<u8>() <= 2,
            Simultaneous::TwoRenders => s.renders <= 2,
        }),
    ]
}

/// Renders may fail, or a worker may give up a commit with an unknown result.
fn may_fail(model: &Everfresh) -> bool {
    let budget = model.scope.budget;
    budget.failures > 0 || budget.lost > 0 || budget.late > 0
}

fn intact(s: &State, rule: Broken) -> bool {
    s.broken & rule as u8 == 0
}

/// Compares revisions, which the protocol cannot see, never the times that the protocol compares.
fn acked_means_covered(model: &Everfresh, s: &State) -> bool {
    let published = s.meta.map_or(0, |meta| meta.rev);
    s.msgs.iter().enumerate().all(|(m, msg)| {
        let kept_back = s.health.pinned && (msg.wanted || s.best >= msg.rev);
        msg.place != Place::Acked
            || model.plan(m as u8).expired
            || published >= msg.rev
            || kept_back
            || model.readers_enqueue(s)
    })
}

fn body_is_committed(s: &State) -> bool {
    match s.meta {
        Some(meta) if matches!(meta.kind, Kind::Page | Kind::Absent) => s.body(meta.body) == Some(meta.rev),
        _ => true,
    }
}

fn no_failed_after_commit(s: &State) -> bool {
    s.reqs.iter().zip(s.commits).all(|(row, commits)| {
        let failed = row.is_some_and(|row| row.status == Status::Failed);
        !failed || commits == 0
    })
}

fn quiet(s: &State) -> bool {
    s.workers.iter().all(|worker| worker.at == At::Idle) && s.operator.0 == OpAt::Idle && s.foreign.0 == ForeignAt::Idle
}

impl Everfresh {
    /// Whether one worker and the readers settle every message from here, without further faults,
    /// once the bucket of withdrawals has ended. That many of the next answers are bypasses.
    fn settles(&self, s: &State, bypasses: u8) -> bool {
        let model = self.without_events();
        let mut s = s.clone();
        s.budget = FaultBudget { bypasses, ..Default::default() };
        s.instance = None;
        s.withdrawals = 0;
        s.net.clear();
        s.clock += 40;
        for _round in 0..4 {
            for m in 0..READERS {
                if s.msgs[m].place == Place::Queued {
                    model.run_alone(&mut s, m as u8);
                }
            }
        }
        let settled = |s: &State| s.msgs.iter().all(|msg| msg.place != Place::Queued);
        if model.readers_enqueue(&s) {
            model.send_message(&mut s, READERS);
            for _round in 0..4 {
                model.run_alone(&mut s, READERS as u8);
            }
        }
        settled(&s) && !model.readers_enqueue(&s)
    }

    /// The watermark makes the page stale, so that the next read enqueues it.
    pub(crate) fn readers_enqueue(&self, s: &State) -> bool {
        !s.health.pinned && stale(self.guards, s.meta, s.health.watermark, self.scope.epsilon)
    }

    fn run_alone(&self, s: &mut State, m: u8) {
        if let Some(lock) = &mut s.lock {
            lock.aged = true;
        }
        for row in s.reqs.iter_mut().flatten() {
            row.aged = true;
        }
        s.health.cooldown = false;
        s.clock += 1;
        if s.msgs[m as usize].place != Place::Queued {
            return;
        }
        self.receive(s, 0, m, 0);
        let mut steps = Vec::new();
        for _ in 0..30 {
            steps.clear();
            self.worker_steps(s, 0, &mut steps);
            let bypass = steps.iter().find(|&&step| step == Step::RenderBypass);
            let Some(&step) = bypass.or(steps.first()) else { return };
            self.worker_step(s, 0, step);
        }
    }
}

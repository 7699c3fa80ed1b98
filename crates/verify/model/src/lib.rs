//! An executable model of Everfresh's claim, lease, commit and coverage protocol.
//!
//! One page, two workers, a few messages, and the faults between them: the checker explores every
//! order of steps and checks the invariants in every state. Then each guard is removed, and the
//! checker must find the property that the guard protects.
//!
//! # Invariants
//!
//! - **I1** a `changed` request that was acked is covered, pinned with `wanted_at`, or in the
//!   dead-letter queue; after unpin the watermark keeps the page stale until it is covered.
//! - **I2** commits to META are linear, version numbers grow, and no worker's commit puts older
//!   content over newer.
//! - **I3** at most one commit per request while its REQ row lives.
//! - **I4** the body that META points at exists and is the one that was committed.
//! - **I5** no FAILED after the request's commit.
//! - **I6** from every state without work in progress, one worker without faults settles every
//!   message, and reads stop enqueueing.
//! - **W1** a consistent look-up that begins after a withdrawal serves no body from before it, nor
//!   does (**W2**) a look-up of an instance that has seen the bypass or tombstone. **W3** META of a
//!   bypass points at no object. **W4** no bucket allows more withdrawals than its limit. **W5** a
//!   refused withdrawal is not a failure.
//! - **P1** no worker replaces a pinned page. **P2** no request older than a purge publishes the
//!   page again. **P3** requests sent at the same moment cost at most two commits.
//!
//! I7 (tenant isolation) depends on keys, not on the order of events; ordinary tests cover it.
//!
//! # What is real and what is abstract
//!
//! Each call to the table is one atomic step (`ledger`) with the time of the sender's clock; it may
//! be lost, arrive later, or arrive twice. The properties compare revisions of the source, which
//! the protocol cannot see; the protocol itself compares ticks, and two events in one tick may have
//! happened in either order.
//!
//! A lease or claim is not timed: it may *age* at any moment, and in scopes where clocks are in
//! doubt an aged one may be seen as expired or as live. The first read of the source and
//! `source_ms` are one step, since anything between them only makes the content newer. Failing and
//! giving back change each row only where the attempt owns it, so they need not be atomic.
//!
//! # Layout
//!
//! [`state`] is the state of page, table and workers; `ledger` the conditional writes; `worker`,
//! `lookup` and `publish` the protocol; `environment`, `operator`, `foreign` and `serve` the other
//! actors; `coverage` the comparisons of time; `properties` the invariants; [`Guard`] the rules
//! that can be removed and [`REMOVALS`] what must break then; `worker_scopes`, `actor_scopes` and
//! `bypass_scopes` the [`scopes()`]; [`check()`] and [`Report`] the results.

mod actor_scopes;
mod bypass_scopes;
mod check;
mod coverage;
mod environment;
mod events;
mod faults;
mod foreign;
mod guards;
mod ledger;
mod lookup;
mod operator;
mod properties;
mod publish;
mod removals;
mod report;
mod scopes;
mod serve;
pub mod state;
mod trace;
mod worker;
mod worker_scopes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Model, Property};

pub use check::{Counterexample, SearchResult, check, try_removal};
pub use environment::Env;
pub use events::Event;
pub use foreign::ForeignStep;
pub use guards::{Guard, Guards};
pub use operator::{Command, OpStep};
pub use properties::*;
pub use removals::{Expect, KNOWN_LIMITS, REMOVALS, Removal};
pub use report::{Line, Report, removal_line, scope_line};
pub use scopes::{Plan, Scope, Sender, Simultaneous, limits, scope, scopes};
pub use serve::{Good, Instance, ReadAt, ReadStep, View};
pub use state::State;
pub use trace::trace;
pub use worker::{Delivery, Step};

use state::{
    At, EVER, FaultBudget, ForeignAt, Health, Kind, MESSAGES, Meta, Msg, OpAt, Place, READERS, Tick, WORKERS, Worker,
};

/// One step of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Env(Env),
    Worker(u8, Step),
    Operator(OpStep),
    Foreign(ForeignStep),
    Reader(ReadStep),
}

/// The protocol in one scope, with the guards that are in force.
#[derive(Clone, Debug)]
pub struct Everfresh {
    pub scope: Scope,
    pub guards: Guards,
    reached: Option<Arc<AtomicU64>>,
}

impl Everfresh {
    pub fn new(scope: Scope, guards: Guards) -> Self {
        Everfresh { scope, guards, reached: Some(Arc::default()) }
    }

    /// Whether the search met this event.
    pub fn has_reached(&self, event: Event) -> bool {
        let bits = self.reached.as_ref();
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & event.bit() != 0)
    }

    fn note(&self, event: Event) {
        if let Some(bits) = &self.reached {
            bits.fetch_or(event.bit(), Ordering::Relaxed);
        }
    }

    /// The same protocol for steps outside the search: their events are not recorded.
    fn without_events(&self) -> Self {
        Everfresh { reached: None, ..*self }
    }

    fn plan(&self, m: u8) -> Plan {
        let readers =
            Plan { key: READERS as u8, hash: 0, changes_source: false, expired: false, sender: Sender::Operator };
        self.scope.messages.get(m as usize).copied().unwrap_or(readers)
    }

    fn start(&self, skews: [Option<Tick>; WORKERS], operator: Tick) -> State {
        let msg = Msg { place: Place::Unsent, sent: 0, rev: 0, in_flight: 0, wanted: false, before_purge: false };
        let page = Meta {
            kind: Kind::Page,
            version: (-9, 0),
            source_ms: Some(-9),
            generated_at: 0,
            body: 0,
            rev: 0,
            since: EVER,
            era: 0,
        };
        let worker = |skew| Worker {
            at: At::Idle,
            attempts: 0,
            lead: 0,
            followers: 0,
            seen: None,
            saw_failure: false,
            source_ms: None,
            rev: 0,
            rendered: Kind::Page,
            skew,
        };
        let mut s = State {
            clock: 0,
            source: 0,
            cache: None,
            msgs: [msg; MESSAGES],
            meta: self.scope.page_exists.then_some(page),
            previous: None,
            lock: None,
            reqs: [None; MESSAGES],
            health: Health::default(),
            bodies: if self.scope.page_exists { vec![(0, 0)] } else { Vec::new() },
            workers: skews.map(worker),
            operator: (OpAt::Idle, 0, operator),
            foreign: (ForeignAt::Idle, 0),
            net: Vec::new(),
            withdrawals: 0,
            check_due: false,
            instance: (self.scope.budget.reads > 0).then(Box::default),
            budget: FaultBudget { ..self.scope.budget },
            best: 0,
            commits: [0; MESSAGES],
            renders: 0,
            broken: 0,
        };
        if self.scope.simultaneous != Simultaneous::No {
            for m in 0..self.scope.messages.len() {
                self.send_message(&mut s, m);
            }
        }
        s
    }
}

impl Model for Everfresh {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut states = Vec::new();
        for &first in self.scope.skews {
            let others = if self.scope.workers > 1 { self.scope.skews } else { &[None] };
            for &second in others {
                for &operator in self.scope.operator_skews {
                    states.push(self.start([first, second], operator));
                }
            }
        }
        states
    }

    fn actions(&self, s: &State, out: &mut Vec<Action>) {
        let mut env = Vec::new();
        self.env_actions(s, &mut env);
        out.extend(env.into_iter().map(Action::Env));
        let mut steps = Vec::new();
        for w in 0..self.scope.workers {
            self.worker_steps(s, w, &mut steps);
            out.extend(steps.drain(..).map(|step| Action::Worker(w as u8, step)));
        }
        let mut steps = Vec::new();
        self.operator_steps(s, &mut steps);
        out.extend(steps.into_iter().map(Action::Operator));
        let mut steps = Vec::new();
        self.foreign_steps(s, &mut steps);
        out.extend(steps.into_iter().map(Action::Foreign));
        let mut steps = Vec::new();
        self.read_steps(s, &mut steps);
        out.extend(steps.into_iter().map(Action::Reader));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Action::Env(env) => self.env_step(&mut s, env),
            Action::Worker(w, step) => self.worker_step(&mut s, w as usize, step),
            Action::Operator(step) => self.operator_step(&mut s, step),
            Action::Foreign(step) => self.foreign_step(&mut s, step),
            Action::Reader(step) => self.read_step(&mut s, step),
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

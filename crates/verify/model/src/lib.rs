//! An executable model of Everfresh's claim, lease, commit and coverage protocol.
//!
//! One page, two workers, a few messages, and everything that can go wrong between them: every
//! order of every step is tried, and every state is held against the invariants. Then each guard
//! is taken away, and the checker must find what it was there for.
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
//! - **I6** whenever nobody is at work, one worker without faults brings every message to an end
//!   and readers stop asking.
//! - **P1** no worker replaces a pinned page. **P2** no request older than a purge brings the page
//!   back. **P3** requests sent at the same moment cost at most two commits.
//!
//! I7 (tenants are kept apart) is about keys, not about order, and is left to ordinary tests.
//!
//! # What is real and what is abstract
//!
//! Each call to the table is one atomic step (`ledger`), carried out by the sender's own idea of
//! the time; it may be lost, or arrive later, or twice. Whether content is covered is judged by the
//! source's revision, which the protocol cannot see; the protocol itself compares ticks, and two
//! events in one tick may have happened in either order.
//!
//! A lease or claim is not timed: it may *age* at any moment, and in scopes where clocks are in
//! doubt an aged one is expired to some and live to others. The first read of the source and
//! `source_ms` are one step, since anything between them only makes the content newer. Failing and
//! giving back touch each row only where it is one's own, so their halves need not be atomic.
//!
//! # Layout
//!
//! [`state`] is the world; `ledger` the conditional writes; `worker` and `publish` the protocol;
//! `environment`, `operator` and `foreign` everybody else; `coverage` the comparisons of time;
//! `properties` the invariants; [`Guard`] the rules that can be removed and [`REMOVALS`] what must
//! break then; `faults` and `parties` the [`scopes()`]; [`check()`] and [`Report`] the figures.

mod check;
mod coverage;
mod environment;
mod events;
mod faults;
mod foreign;
mod guards;
mod ledger;
mod operator;
mod parties;
mod properties;
mod publish;
mod removals;
mod report;
mod scopes;
pub mod state;
mod trace;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Model, Property};

pub use check::{Counterexample, Found, check, try_removal};
pub use environment::Env;
pub use events::Event;
pub use foreign::ForeignStep;
pub use guards::{Guard, Guards};
pub use operator::{OpStep, Verb};
pub use parties::LIMITS;
pub use properties::*;
pub use removals::{Expect, KNOWN, REMOVALS, Removal};
pub use report::{Line, Report, removal_line, scope_line};
pub use scopes::{Plan, Scope, Sender, Simultaneous, scope, scopes};
pub use state::State;
pub use trace::trace;
pub use worker::{Fate, Step};

use state::{At, Budget, ForeignAt, Health, Kind, MESSAGES, Meta, Msg, OpAt, Place, READERS, Tick, WORKERS, Worker};

/// One step of anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The environment's.
    Env(Env),
    /// A worker's.
    Worker(u8, Step),
    /// The operator's.
    Operator(OpStep),
    /// The other language's helper's.
    Foreign(ForeignStep),
}

/// The protocol in one scope, with the guards that are in force.
#[derive(Clone, Debug)]
pub struct Everfresh {
    /// The bounded world.
    pub scope: Scope,
    /// The guards in force.
    pub guards: Guards,
    reached: Option<Arc<AtomicU64>>,
}

impl Everfresh {
    /// The protocol in a scope.
    pub fn new(scope: Scope, guards: Guards) -> Self {
        Everfresh { scope, guards, reached: Some(Arc::default()) }
    }

    /// Whether some step of the search was such an event.
    pub fn has_reached(&self, event: Event) -> bool {
        let bits = self.reached.as_ref();
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & event.bit() != 0)
    }

    fn note(&self, event: Event) {
        if let Some(bits) = &self.reached {
            bits.fetch_or(event.bit(), Ordering::Relaxed);
        }
    }

    /// The same protocol, for trying steps that are not part of the search.
    fn silent(&self) -> Self {
        Everfresh { reached: None, ..*self }
    }

    fn plan(&self, m: u8) -> Plan {
        let readers = Plan { key: READERS as u8, hash: 0, changes_source: false, sender: Sender::Operator };
        self.scope.messages.get(m as usize).copied().unwrap_or(readers)
    }

    fn start(&self, skews: [Option<Tick>; WORKERS], operator: Tick) -> State {
        let msg = Msg { place: Place::Unsent, sent: 0, rev: 0, hands: 0, wanted: false, before_purge: false };
        let page = Meta { kind: Kind::Page, version: (-9, 0), source_ms: Some(-9), generated_at: 0, body: 0, rev: 0 };
        let worker = |skew| Worker {
            at: At::Idle,
            attempts: 0,
            lead: 0,
            followers: 0,
            seen: None,
            saw_failure: false,
            source_ms: None,
            rev: 0,
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
            budget: Budget { ..self.scope.budget },
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
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Action::Env(env) => self.env_step(&mut s, env),
            Action::Worker(w, step) => self.worker_step(&mut s, w as usize, step),
            Action::Operator(step) => self.operator_step(&mut s, step),
            Action::Foreign(step) => self.foreign_step(&mut s, step),
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

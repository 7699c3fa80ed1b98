//! Scopes: bounded settings, each with its own mix of workers, messages, faults and clocks.

use crate::actor_scopes::{ACTOR_SCOPES, LIMITS};
use crate::bypass_scopes::BYPASS_SCOPES;
use crate::events::Event;
use crate::operator::Command;
use crate::state::{FaultBudget, Tick};
use crate::worker_scopes::WORKER_SCOPES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// At any time.
    Producer,
    /// After unpin.
    Operator,
}

/// A message that a scope may send.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// REQ's key; two messages may share one.
    pub key: u8,
    pub hash: u8,
    /// The source changes just before it is sent.
    pub changes_source: bool,
    /// Its reason is `expired` instead of `changed`.
    pub expired: bool,
    pub sender: Sender,
}

/// The cost allowed for requests that are sent at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simultaneous {
    /// Not sent at the same moment.
    No,
    TwoCommits,
    /// Counts also renders whose commit is refused.
    TwoRenders,
}

#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub name: &'static str,
    pub about: &'static str,
    pub workers: usize,
    /// Attempts per worker.
    pub runs: u8,
    /// Attempts that a request may cost before it is rejected.
    pub attempt_limit: u8,
    /// Withdrawals of the tenant that one bucket allows.
    pub withdrawal_limit: u8,
    pub messages: &'static [Plan],
    /// The last tick of AWS time.
    pub last_tick: Tick,
    /// The distance that coverage keeps between two clocks.
    pub epsilon: Tick,
    /// The clock errors that each worker may have; `None` is one that cannot be bounded.
    pub skews: &'static [Option<Tick>],
    /// The clock errors that the operator may have.
    pub operator_skews: &'static [Tick],
    /// The actual error of a clock that cannot be bounded.
    pub wild_skew: Tick,
    /// Two actors may see the same expiry differently.
    pub clocks_in_doubt: bool,
    /// A batch may have several messages.
    pub batches: bool,
    /// Whether all messages are sent at once before anything else, and what they may cost.
    pub simultaneous: Simultaneous,
    /// The page exists at the start.
    pub page_exists: bool,
    /// Only commits may be late.
    pub only_commits_late: bool,
    /// The operator's commands, in order.
    pub script: &'static [Command],
    pub budget: FaultBudget,
    /// Events that the search must reach.
    pub reaches: &'static [Event],
    /// Small enough for every build.
    pub quick: bool,
}

/// Every scope in which all properties must hold.
pub fn scopes() -> impl Iterator<Item = Scope> {
    WORKER_SCOPES.iter().chain(ACTOR_SCOPES).chain(BYPASS_SCOPES).copied()
}

/// The scopes in which a known property breaks.
pub fn limits() -> impl Iterator<Item = Scope> {
    LIMITS.iter().copied()
}

/// The scope of this name, limits included.
pub fn scope(name: &str) -> Option<Scope> {
    let mut all = scopes().chain(limits());
    all.find(|scope| scope.name == name)
}

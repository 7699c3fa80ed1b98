//! Scopes: small worlds, each with its own mix of workers, messages, faults and clocks.

use crate::events::Event;
use crate::faults::FAULTS;
use crate::operator::Verb;
use crate::parties::{LIMITS, PARTIES};
use crate::state::{Budget, Tick};

/// Who sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A producer, at any moment.
    Producer,
    /// The operator's tool, after unpin.
    Operator,
}

/// A message that a scope may send.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// REQ's key; two messages may share one.
    pub key: u8,
    /// The payload's hash.
    pub hash: u8,
    /// The source changes just before it is sent.
    pub changes_source: bool,
    /// Who sends it.
    pub sender: Sender,
}

/// What requests that are sent at the same moment may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simultaneous {
    /// They are not sent at the same moment.
    No,
    /// Two commits.
    TwoCommits,
    /// Two renders, counting those whose commit is refused.
    TwoRenders,
}

/// A bounded world.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Workers.
    pub workers: usize,
    /// Attempts per worker.
    pub runs: u8,
    /// Attempts that a request may cost before it is rejected.
    pub attempt_limit: u8,
    /// Messages.
    pub messages: &'static [Plan],
    /// The last moment of AWS time.
    pub last_tick: Tick,
    /// Coverage's safe distance.
    pub epsilon: Tick,
    /// The clock errors that each worker may have; `None` is one that cannot be bounded.
    pub skews: &'static [Option<Tick>],
    /// The clock errors that the operator may have.
    pub operator_skews: &'static [Tick],
    /// The actual error of a clock that cannot be bounded.
    pub wild_skew: Tick,
    /// Two parties may judge the same expiry differently.
    pub clocks_in_doubt: bool,
    /// Several messages may come in one batch.
    pub batches: bool,
    /// Whether all messages are sent at once before anything else, and what they may cost.
    pub simultaneous: Simultaneous,
    /// The page exists at the start.
    pub page_exists: bool,
    /// Of all writes only commits may be late.
    pub only_commits_late: bool,
    /// The operator's verbs, in order.
    pub script: &'static [Verb],
    /// What may happen how often.
    pub budget: Budget,
    /// What must be reached.
    pub reaches: &'static [Event],
    /// Small enough for every build.
    pub quick: bool,
}

/// Every scope in which all properties must hold.
pub fn scopes() -> impl Iterator<Item = Scope> {
    FAULTS.iter().chain(PARTIES).copied()
}

/// A scope by its name, the limits included.
pub fn scope(name: &str) -> Option<Scope> {
    let mut all = scopes().chain(LIMITS.iter().copied());
    all.find(|scope| scope.name == name)
}

//! Deterministic simulation: the real worker, serving function and sender on real SDK clients, over
//! the embedded table and bucket, in one thread with paused time. Faults are drawn by seed, and the
//! invariants are checked at every step.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`run`] | one run: a seed in, a report out |
//! | `actors` | workers, readers, producers, an editor, an operator, a foreign writer |
//! | [`wire`] | the connection to the services: applies, checks and traces every request |
//! | [`check`] | the invariants I1–I7 |
//! | [`profile`] | the settings of a run: faults, pages, workers |
//! | [`faults`] | the faults of a run and their names |
//! | [`guards`] | the protocol without one of its guards: a check must fail |
//! | [`known`] | every name that a report may contain |
//! | [`queues`] | SQS by seed: at-least-once delivery in any order |
//! | [`site`] | the tenants' sites: pages with increasing revisions |
//! | [`faulty_invocation`] | invocations that are killed or frozen at an await |
//! | [`invocation_trace`] | what the requests of one invocation have done |
//! | [`machine`] | the clocks of a sandbox |
//! | `branches` | which branches of the protocol a run takes |
//! | [`store`], [`rows`], [`pages`] | the state that the checker reads |
//!
//! [`load`] is a load test: many changes in real time, none of which may be lost.
//!
//! The same seed gives the same trace, in any process.

mod actors;
mod branches;
pub mod check;
pub mod faults;
pub mod faulty_invocation;
pub mod guards;
pub mod invocation_trace;
pub mod known;
pub mod load;
pub mod machine;
pub mod pages;
pub mod profile;
pub mod queues;
pub mod rows;
pub mod run;
pub mod site;
pub mod store;
pub mod wire;

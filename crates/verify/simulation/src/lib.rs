//! The real worker, serving side and sender, on real SDK clients, over the embedded table and bucket, in one thread with paused time:
//! everything that can go wrong goes wrong by seed, and the invariants are checked at every step.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`run`] | one run: a seed in, a report out |
//! | `actors` | who does what: workers, readers, producers, an operator, another language's helper |
//! | [`wire`] | every request that arrives: applied, checked, written into the trace |
//! | [`check`] | the invariants I1–I7 |
//! | [`profile`] | what a seed's run is like: which faults are on, how many pages and workers there are |
//! | [`sabotage`] | the protocol without one of its guards, to see that it is missed |
//! | [`queues`] | SQS by seed: at least once, in any order |
//! | [`site`] | the tenants' sites: pages whose revision only grows |
//! | [`faulty_invocation`] | invocations that die or freeze between two awaits |
//! | [`machine`] | a sandbox's own clock |
//! | `branches` | which branches of the protocol a run takes |
//! | [`store`], [`rows`], [`pages`] | what the checker looks at |
//!
//! [`load`] is another matter: many changes in real time, to see that workers keep up and lose nothing.
//!
//! The same seed gives the same trace, in any process.

mod actors;
mod branches;
pub mod check;
pub mod faulty_invocation;
pub mod load;
pub mod machine;
pub mod pages;
pub mod profile;
pub mod queues;
pub mod rows;
pub mod run;
pub mod sabotage;
pub mod site;
pub mod store;
pub mod wire;

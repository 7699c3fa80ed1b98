//! The maintenance function: a schedule invokes it, and it removes what pages no longer need.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`rounds`] | one invocation: every tenant in turn, part by part, until the time is over |
//! | [`report`] | what an invocation did: metrics, log lines, its result |
//! | [`startup`] | builds the function from settings and configuration |
//! | [`settings`] | the environment, read once |
//!
//! What may be removed is decided in [`everfresh_core::maintenance`].

pub mod report;
pub mod rounds;
pub mod settings;
pub mod startup;

pub use report::Report;
pub use rounds::Maintenance;
pub use settings::Settings;

//! The regeneration worker: an SQS batch in, a partial batch response out.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`handler`] | one batch: parse, regenerate, report to SQS |
//! | [`record`] | one SQS record, parsed and validated, or the reason for its rejection |
//! | [`group`] | records of one page: the first leads, the rest follow |
//! | `observe` | metrics, and one log line per record |
//! | [`queue`] | writes to SQS: dead-lettering and visibility timeouts |
//! | [`render`] | renderers: HTTP origins, Lambda functions and built-in templates |
//! | [`startup`] | builds a worker from settings and configuration |
//! | [`settings`] | the environment, read once |

pub mod group;
pub mod handler;
mod observe;
pub mod queue;
pub mod record;
pub mod render;
pub mod settings;
pub mod startup;

pub use handler::Worker;
pub use settings::Settings;

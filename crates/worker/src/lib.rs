//! The regeneration worker: an SQS batch in, a partial batch response out.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`handler`] | the batch: read, regenerate, ack, delay or reject each record |
//! | [`record`] | one record, read and checked, or the reason why not |
//! | [`group`] | records of one page: the first leads, the rest follow |
//! | `observe` | metrics and one log line per record |
//! | [`queue`] | rejections and delays |
//! | [`render`] | where pages come from: HTTP origins and built-in templates |
//! | [`build`] | puts a worker together |
//! | [`settings`] | the environment, read once |

pub mod build;
pub mod group;
pub mod handler;
mod observe;
pub mod queue;
pub mod record;
pub mod render;
pub mod settings;

pub use handler::Worker;
pub use settings::Settings;

//! The regeneration worker: an SQS batch in, a partial batch response out.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`handler`] | the batch: read, regenerate, tell the queue |
//! | [`record`] | one record, read and checked, or the reason why not |
//! | [`group`] | records of one page: the first leads, the rest follow |
//! | [`queue`] | what the queue is told: rejections, delays |
//! | [`render`] | where pages come from: HTTP origins and built-in templates |
//! | [`build`] | puts a worker together |
//! | [`settings`] | the environment, read once |

pub mod build;
pub mod group;
pub mod handler;
pub mod queue;
pub mod record;
pub mod render;
pub mod settings;

pub use handler::Worker;
pub use settings::Settings;

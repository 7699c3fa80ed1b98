//! The serving side: a reader's request in, a page out, and a wish for a new one if it is stale.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`serve`] | the flow: from a request to an answer |
//! | [`rules`] | the HTTP rules, pure: caching, conditional requests, refusals, previews, signatures |
//! | `trigger` | the other flow: a signed request for regeneration, and what became of one |
//! | [`wish`] | when a visit asks for a regeneration, and sending it |
//! | [`event`] | Lambda's HTTP event in, its answer out |
//! | `panics` | a panic costs its own request a 500, and nothing else |
//! | [`after_reply`] | what is done after the answer was posted and before the sandbox may freeze |
//! | [`settings`] | the environment, read once |
//! | [`build`] | puts a server together |

pub mod after_reply;
mod asks;
mod bodies;
mod budget;
pub mod build;
pub mod event;
mod flights;
mod found;
mod late;
mod limits;
mod memory;
mod outages;
mod pages;
mod panics;
mod preview;
mod remarks;
pub mod reply;
pub mod request;
mod respond;
pub mod rules;
pub mod serve;
pub mod settings;
mod sights;
mod telling;
mod trigger;
mod warm_up;
pub mod wish;

pub use serve::{Served, Server};
pub use settings::Settings;

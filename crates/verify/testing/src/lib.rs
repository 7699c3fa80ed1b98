//! A whole Everfresh in memory, for tests: real engines, real SDK clients, real workers, an origin whose content the test decides,
//! and a clock that moves with the test's paused time. Never part of anything that ships.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`world`] | [`World`]: engines, clock, clients, configuration |
//! | `messages` | what a world's queue is sent, and what is left in it |
//! | [`rows`] | what a world's table and bucket hold, and short names for DynamoDB's values |
//! | [`mod@fixtures`] | rows exactly as helpers of other languages write them |
//! | [`sandbox`] | [`Sandbox`]: one instance of the worker, with faults and a clock of its own |
//! | [`instance`] | [`Instance`]: one instance of the serving side |
//! | [`origin`] | [`Origin`]: the tenant's site, without a network |
//! | [`server`] | [`Server`]: an origin on the loopback interface, byte for byte |
//! | [`operators`] | what an operator's verb answers, and what readers see |
//!
//! A suite says `#[tokio::test(start_paused = true)]`, and hours pass in milliseconds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

pub mod fixtures;
pub mod instance;
mod messages;
pub mod operators;
pub mod origin;
pub mod rows;
pub mod sandbox;
pub mod server;
pub mod world;

pub use fixtures::{Fixture, fixtures};
pub use instance::{Instance, body, cache_status, get, published};
pub use operators::done;
pub use origin::{Breaks, Origin};
pub use rows::{Item, decimal, list, n, null, number, s, text};
pub use sandbox::{Make, Sandbox};
pub use server::{Conversation, Server};
pub use world::{CONFIG, START_MS, World, ladder};

use std::error::Error;
use std::time::Duration;

/// Lets time pass.
pub async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The texts of an error and of everything below it.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

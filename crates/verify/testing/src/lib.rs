//! A complete Everfresh stack in memory, for tests: real engines, real SDK clients, real workers,
//! an origin with content set by the test, and a clock that follows the test's paused time. Never
//! part of a deployed binary.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`world`] | [`World`]: engines, clock, clients, configuration |
//! | `messages` | sending to the queues of a world, and reading them |
//! | [`rows`] | the table and the bucket of a world, and short names for DynamoDB values |
//! | [`mod@fixtures`] | rows of foreign writers |
//! | [`sandbox`] | [`Sandbox`]: one instance of the worker, with its own faults and clock |
//! | [`instance`] | [`Instance`]: one instance of the serving function |
//! | [`origin`] | [`Origin`]: the tenant's site, without a network |
//! | [`server`] | [`Server`]: an HTTP origin on the loopback interface, under control of the test |
//! | [`visitors`] | generated origins and visitors, each with something that no other has |
//! | [`operators`] | results of operator commands, and the freshness that readers see |
//!
//! With `#[tokio::test(start_paused = true)]` hours pass in milliseconds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

pub mod fixtures;
pub mod instance;
mod messages;
pub mod operators;
pub mod origin;
pub mod rows;
pub mod sandbox;
pub mod server;
pub mod visitors;
pub mod world;

pub use fixtures::{Fixture, fixtures};
pub use instance::{Instance, body, cache_status, get, published};
pub use operators::done;
pub use origin::{Origin, OriginFault};
pub use rows::{Item, decimal, list, n, null, number, s, text};
pub use sandbox::{Make, Sandbox};
pub use server::{Conversation, Server};
pub use world::{CONFIG, START_MS, World, ladder};

use std::error::Error;
use std::time::Duration;

pub async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The messages of an error and all its sources.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

//! A world whose workers tell a CDN and a bus, and what these have heard.

use std::collections::BTreeSet;
use std::time::Duration;

use everfresh_core::notifier::{EventTarget, NotifierSettings};
use everfresh_local::subscribers::Subscribers;
use everfresh_testing::{World, text};

pub(crate) const PAGE: &str = "/products/42";
pub(crate) const BUS: &str = "arn:aws:events:us-east-1:000000000000:event-bus/site";
/// Longer than anything is put off.
pub(crate) const LONG: Duration = Duration::from_secs(7_200);

/// A world whose workers tell a distribution, by tag, and a bus.
pub(crate) async fn telling() -> World {
    let mut world = World::new().await;
    world.notifier = NotifierSettings {
        distribution: Some("E1EXAMPLE".to_owned()),
        by_tag: true,
        event_target: EventTarget::parse(BUS),
    };
    world
}

pub(crate) fn subscribers(world: &World) -> &Subscribers {
    world.engines.subscribers()
}

/// What the CDN was asked to forget, request by request.
pub(crate) fn forgotten(world: &World) -> Vec<Vec<String>> {
    subscribers(world).invalidations().into_values().collect()
}

/// The versions that subscribers heard of, and how often they were told in all.
pub(crate) fn heard(world: &World) -> (BTreeSet<String>, usize) {
    let events = subscribers(world).events();
    let versions = events.iter().map(|event| event.detail["version"].as_str().unwrap().to_owned());
    (versions.collect(), events.len())
}

pub(crate) async fn version(world: &World) -> String {
    text(&world.meta(PAGE).await.unwrap(), "version")
}

pub(crate) async fn is_due(world: &World) -> bool {
    world.meta(PAGE).await.unwrap().contains_key("pending_notification")
}

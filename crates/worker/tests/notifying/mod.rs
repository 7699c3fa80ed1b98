//! A world whose workers notify a CDN and an event bus, and the notifications received there.

use std::collections::BTreeSet;
use std::time::Duration;

use everfresh_core::notifier::{EventTarget, Invalidate, NotifierSettings};
use everfresh_local::subscribers::Subscribers;
use everfresh_testing::{World, text};

pub(crate) const PAGE: &str = "/products/42";
pub(crate) const BUS: &str = "arn:aws:events:us-east-1:000000000000:event-bus/site";
/// Longer than any retry delay.
pub(crate) const LONG: Duration = Duration::from_secs(7_200);

/// Its workers invalidate a CloudFront distribution by cache tag and send events to a bus.
pub(crate) async fn notifying_world() -> World {
    let mut world = World::new().await;
    world.notifier = NotifierSettings {
        distribution: Some("E1EXAMPLE".to_owned()),
        invalidate: Invalidate::All,
        by_tag: true,
        event_target: EventTarget::parse(BUS),
    };
    world
}

pub(crate) fn subscribers(world: &World) -> &Subscribers {
    world.engines.subscribers()
}

/// The paths or tags of each invalidation that CloudFront received.
pub(crate) fn invalidations(world: &World) -> Vec<Vec<String>> {
    subscribers(world).invalidations().into_values().collect()
}

/// The versions in the events that subscribers received.
pub(crate) fn versions_received(world: &World) -> BTreeSet<String> {
    let events = subscribers(world).events();
    events.iter().map(|event| event.detail["version"].as_str().unwrap().to_owned()).collect()
}

/// The number of events that subscribers received, duplicates included.
pub(crate) fn events_received(world: &World) -> usize {
    subscribers(world).events().len()
}

pub(crate) async fn version(world: &World) -> String {
    text(&world.meta(PAGE).await.unwrap(), "version")
}

pub(crate) async fn is_pending(world: &World) -> bool {
    world.meta(PAGE).await.unwrap().contains_key("pending_notification")
}

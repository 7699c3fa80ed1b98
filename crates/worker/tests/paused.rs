//! An operator pauses regeneration: requests wait, and nothing is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::page_key::Tenant;
use everfresh_testing::{World, pause};

const PAGE: &str = "/products/42";
const HOUR: u64 = 3_600;

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

#[tokio::test(start_paused = true)]
async fn changed_request_waits_and_is_rendered_after_the_pause() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.ledger().pause(Some(&acme())).await.unwrap();
    world.enqueue(PAGE).await;
    world.work(&sandbox, Duration::from_secs(4 * HOUR)).await;
    assert_eq!((world.origin.renders(), world.queued_messages().await), (0, 1));
    assert!(world.dead_letters().await.is_empty());
    world.ledger().resume(Some(&acme())).await.unwrap();
    world.drain(&sandbox, Duration::from_secs(HOUR)).await;
    assert_eq!((world.origin.renders(), world.queued_messages().await), (1, 0));
    assert!(world.published(PAGE).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn pause_of_one_tenant_leaves_the_others_running() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.ledger().pause(Some(&Tenant::parse("globex").unwrap())).await.unwrap();
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert!(world.published(PAGE).await.is_some());
    world.ledger().pause(None).await.unwrap();
    pause(11).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.origin.renders(), 1);
    // Neither pause ends with the other.
    world.ledger().resume(Some(&acme())).await.unwrap();
    assert!(world.ledger().pauses().await.unwrap().of(&acme()).is_some());
    world.ledger().resume(None).await.unwrap();
    assert!(world.ledger().pauses().await.unwrap().of(&acme()).is_none());
}

#[tokio::test(start_paused = true)]
async fn covered_and_expired_requests_end_during_a_pause() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    world.ledger().pause(None).await.unwrap();
    pause(120).await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!((world.origin.renders(), world.queued_messages().await), (1, 0));
}

//! The test stack itself.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_testing::{START_MS, World, pause};

const PAGE: &str = "/products/42";

#[tokio::test(start_paused = true)]
async fn new_world_is_empty() {
    let world = World::new().await;
    assert!(world.rows(&world.pk(PAGE)).await.is_empty());
    assert!(world.objects().await.is_empty());
    assert!(world.dead_letters().await.is_empty());
    assert_eq!((world.queued_messages().await, world.origin.renders()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn clock_follows_paused_time_only() {
    let world = World::new().await;
    let before_ms = world.now_ms();
    assert!((START_MS..START_MS + 10_000).contains(&before_ms), "{before_ms}");
    assert_eq!(world.now_ms(), before_ms);
    pause(7_200).await;
    assert_eq!(world.now_ms(), before_ms + 7_200_000);
}

#[tokio::test(start_paused = true)]
async fn worlds_are_isolated() {
    let (one, other) = (World::new().await, World::new().await);
    one.enqueue(PAGE).await;
    one.sandbox().await.invoke().await;
    assert_eq!(one.published(PAGE).await.as_deref(), Some("one"));
    assert!(other.meta(PAGE).await.is_none());
}

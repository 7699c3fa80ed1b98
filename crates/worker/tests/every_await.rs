//! One invocation is killed at each await in turn, or frozen there past its claim, its lease and
//! its message's visibility timeout.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod interrupted;

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_testing::World;

use self::interrupted::{LEAST_AWAITS, polled, time};

const PAGE: &str = "/products/42";

/// Just past the visibility timeout of an unacked message.
const REDELIVERED: Duration = Duration::from_millis(401_000);

#[tokio::test(start_paused = true)]
async fn redelivery_after_kill_at_any_await_commits_once() {
    for awaits in 0.. {
        let world = World::new().await;
        world.origin.takes(Duration::from_secs(2));
        let id = world.enqueue(PAGE).await;
        let killed = world.sandbox().await;
        let event = killed.receive().await;
        let mut work = Box::pin(killed.handle(event, time()));
        let done = polled(&mut work, awaits).await;
        drop(work);
        if done.is_some() {
            assert!(awaits > LEAST_AWAITS, "only {awaits} awaits");
            return;
        }
        tokio::time::sleep(REDELIVERED).await;
        let left = world.meta(PAGE).await;
        let healthy = world.sandbox().await;
        world.drain(&healthy, Duration::from_secs(60)).await;
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "killed at await {awaits}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "killed at await {awaits}");
        let committed = healthy.total(metrics::COMMITTED) + healthy.total(metrics::UNCHANGED);
        assert_eq!(committed, u64::from(left.is_none()), "killed at await {awaits}: one commit in all");
        assert!(world.dead_letters().await.is_empty(), "killed at await {awaits}");
    }
}

#[tokio::test(start_paused = true)]
async fn worker_resumed_at_any_await_replaces_nothing_newer() {
    for awaits in 0.. {
        let world = World::new().await;
        world.origin.takes(Duration::from_secs(2));
        world.enqueue(PAGE).await;
        let frozen = world.sandbox().await;
        let event = frozen.receive().await;
        let mut work = Box::pin(frozen.handle(event, time()));
        if polled(&mut work, awaits).await.is_some() {
            assert!(awaits > LEAST_AWAITS, "only {awaits} awaits");
            return;
        }
        world.origin.content("two");
        world.enqueue(PAGE).await;
        tokio::time::sleep(REDELIVERED).await;
        let healthy = world.sandbox().await;
        world.drain(&healthy, Duration::from_secs(60)).await;
        let newer = world.meta(PAGE).await;
        assert_eq!(world.published(PAGE).await.as_deref(), Some("two"), "frozen at await {awaits}");

        // Its response concerns messages that are already acked.
        let _ = work.await;
        assert_eq!(world.published(PAGE).await.as_deref(), Some("two"), "resumed at await {awaits}");
        assert_eq!(world.meta(PAGE).await, newer, "resumed at await {awaits}");
        assert_eq!(world.lock(PAGE).await, None, "resumed at await {awaits}: its lease is released");
        assert!(world.dead_letters().await.is_empty(), "resumed at await {awaits}");
    }
}

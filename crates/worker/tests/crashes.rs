//! Killed workers, duplicate messages and lost responses.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{World, ladder, number, text};

const PAGE: &str = "/products/42";

/// Each write of the protocol: its operation, and how many of the same operation precede it.
const STEPS: [(&str, &str, u64); 4] = [
    ("claim", "PutItem", 0),
    ("acquire", "PutItem", 1),
    ("upload", "PutObject", 0),
    ("commit", "TransactWriteItems", 0),
];

/// Just past the visibility timeout of a killed worker's message.
const REDELIVERED: Duration = Duration::from_millis(401_000);

#[tokio::test(start_paused = true)]
async fn redelivery_after_kill_around_each_step_commits_once() {
    for (step, operation, nth) in STEPS {
        for (when, fault) in [("before", Fault::Hang), ("after", Fault::HangAfter)] {
            let world = World::new().await;
            let id = world.enqueue(PAGE).await;
            let killed = world.sandbox().await;
            killed.inject(On::next(operation).after(nth), fault);
            killed.invoke_killed_after(Duration::from_secs(1)).await;
            assert_eq!(world.queued_messages().await, 1, "{when} {step}: not acked");
            let published = world.published(PAGE).await;
            assert_eq!(published.is_some(), step == "commit" && when == "after", "{when} {step}");

            tokio::time::sleep(REDELIVERED).await;
            let healthy = world.sandbox().await;
            world.drain(&healthy, Duration::from_secs(60)).await;
            assert_eq!(world.published(PAGE).await.unwrap(), "one", "{when} {step}");
            assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{when} {step}");
            let commits = healthy.total(metrics::COMMITTED);
            assert_eq!(commits, u64::from(!(step == "commit" && when == "after")), "{when} {step}");
            assert!(world.dead_letters().await.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn redelivery_after_commit_acks_without_render() {
    let world = World::new().await;
    world.enqueue(PAGE).await;
    let killed = world.sandbox().await;
    killed.inject(On::next("TransactWriteItems"), Fault::HangAfter);
    killed.invoke_killed_after(Duration::from_secs(1)).await;
    let version = text(&world.meta(PAGE).await.unwrap(), "version");
    tokio::time::sleep(REDELIVERED).await;
    let healthy = world.sandbox().await;
    healthy.invoke().await;
    assert_eq!((world.origin.renders(), world.queued_messages().await), (1, 0));
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "version"), version);
}

#[tokio::test(start_paused = true)]
async fn redelivery_after_commit_ignores_clock_skew() {
    for skew_ms in [-60_000, 60_000] {
        let world = World::new().await;
        let id = world.enqueue(PAGE).await;
        let killed = world.sandbox().await;
        killed.inject(On::next("TransactWriteItems"), Fault::HangAfter);
        killed.invoke_killed_after(Duration::from_secs(1)).await;
        tokio::time::sleep(REDELIVERED).await;
        let skewed = world.sandbox_with(everfresh_testing::Make { skew_ms, ..Default::default() });
        world.drain(&skewed, Duration::from_secs(60)).await;
        assert_eq!(world.origin.renders(), 1, "skew {skew_ms}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    }
}

#[tokio::test(start_paused = true)]
async fn duplicate_in_one_batch_renders_and_commits_once() {
    let world = World::new().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    world.send(&body).await;
    world.send(&body).await;
    let sandbox = world.sandbox().await;
    assert_eq!(sandbox.invoke().await, 2);
    assert_eq!((world.origin.renders(), sandbox.total(metrics::COMMITTED)), (1, 1));
    assert_eq!(sandbox.total(metrics::DUPLICATES_PREVENTED), 1);
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn concurrent_messages_with_one_key_commit_once() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(2));
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    world.send(&body).await;
    let (first, second) = (world.sandbox().await, world.sandbox().await);
    let (_, ()) = tokio::join!(first.invoke(), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.send(&body).await;
        second.invoke().await;
    });
    world.drain(&second, Duration::from_secs(600)).await;
    assert_eq!(world.origin.renders(), 1);
    assert_eq!(first.total(metrics::COMMITTED) + second.total(metrics::COMMITTED), 1);
    assert_eq!(second.total(metrics::REPLAYED) + second.total(metrics::ALREADY_COVERED), 1);
}

#[tokio::test(start_paused = true)]
async fn write_with_one_lost_response_is_recognised_as_own() {
    for (step, operation, nth) in STEPS {
        for fault in [Fault::LoseResponse, Fault::FailAfter] {
            let world = World::new().await;
            let id = world.enqueue(PAGE).await;
            let sandbox = world.sandbox().await;
            sandbox.inject(On::next(operation).after(nth), fault);
            sandbox.invoke().await;
            assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "{step} {fault:?}");
            assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{step} {fault:?}");
            assert_eq!((sandbox.total(metrics::COMMITTED), world.queued_messages().await), (1, 0), "{step} {fault:?}");
            assert_eq!(number(&world.req(PAGE, &id).await.unwrap(), "attempts"), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn write_with_all_responses_lost_is_resolved_by_reading() {
    for (step, operation, nth) in STEPS {
        let world = World::new().await;
        let id = world.enqueue(PAGE).await;
        let sandbox = world.sandbox().await;
        // All SDK attempts of this step, and no other call.
        sandbox.inject(On::next(operation).after(nth).times(4), Fault::LoseResponse);
        sandbox.invoke().await;
        world.drain(&sandbox, Duration::from_secs(1200)).await;
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "{step}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{step}");
        assert_eq!(world.rows(&world.pk(PAGE)).await.len(), 2 + usize::from(step == "upload"), "{step}: META, REQ");
    }
}

#[tokio::test(start_paused = true)]
async fn change_during_a_render_causes_another_render() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(5));
    let (first, second) = (world.sandbox().await, world.sandbox().await);
    world.enqueue(PAGE).await;
    let (_, ()) = tokio::join!(first.invoke(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.origin.content("two");
        world.enqueue(PAGE).await;
    });
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    world.drain(&second, Duration::from_secs(600)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn hundred_concurrent_requests_cost_at_most_two_commits() {
    let world = World::new().await;
    for _ in 0..100 {
        world.enqueue(PAGE).await;
    }
    world.origin.content("after all of them");
    let sandboxes = [world.sandbox().await, world.sandbox().await, world.sandbox().await];
    let all = sandboxes.iter().map(|sandbox| world.drain(sandbox, Duration::from_secs(3600)));
    futures::future::join_all(all).await;
    let commits: u64 = sandboxes.iter().map(|s| s.total(metrics::COMMITTED) + s.total(metrics::UNCHANGED)).sum();
    assert!(commits <= 2, "{commits} commits");
    assert!(world.origin.renders() <= 4, "one more per worker between lookup and acquire");
    assert_eq!(world.published(PAGE).await.unwrap(), "after all of them");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn late_duplicate_of_a_write_changes_nothing_published() {
    for (step, operation, nth) in STEPS {
        let world = World::new().await;
        world.enqueue(PAGE).await;
        let first = world.sandbox().await;
        first.inject(On::next(operation).after(nth), Fault::DuplicateLater(Duration::from_secs(30)));
        first.invoke().await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        world.origin.content("two");
        world.enqueue(PAGE).await;
        let second = world.sandbox().await;
        second.invoke().await;
        let before = world.meta(PAGE).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.meta(PAGE).await.unwrap(), before, "{step}");
        assert_eq!(world.published(PAGE).await.unwrap(), "two", "{step}");
        // It blocks the page for no longer than a lease.
        tokio::time::sleep(Duration::from_millis(ladder().lease_ms)).await;
        world.origin.content("three");
        world.enqueue(PAGE).await;
        world.drain(&second, Duration::from_secs(600)).await;
        assert_eq!(world.published(PAGE).await.unwrap(), "three", "{step}");
    }
}

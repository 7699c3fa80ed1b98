//! Many concurrent reads: one message per instance, and no read waits for another.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_testing::{Instance, World, body, cache_status, pause};
use futures::future::join_all;

const PAGE: &str = "/products/42";

async fn crowd(instance: &Instance, readers: usize) -> Vec<everfresh_serve::http::Reply> {
    join_all((0..readers).map(|_| instance.get(PAGE))).await
}

async fn stale_world() -> World {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    pause(70).await;
    world.origin.content("two");
    world
}

#[tokio::test(start_paused = true)]
async fn thousand_reads_of_a_stale_page_are_one_message_and_render() {
    let world = stale_world().await;
    let (instance, before) = (world.instance(), world.origin.renders());
    let began = tokio::time::Instant::now();
    let replies = crowd(&instance, 1_000).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "no reply waits for the regeneration");
    assert!(replies.iter().all(|reply| reply.status == 200 && body(reply) == "one"));
    assert!(replies.iter().all(|reply| cache_status(reply).ends_with("detail=stale-age")));
    assert_eq!(world.queued_messages().await, 1);
    let calls = instance.operations();
    let count = |operation: &str| calls.iter().filter(|name| *name == operation).count();
    assert_eq!((count("Query"), count("GetObject"), count("SendMessage")), (1, 1, 1), "{calls:?}");
    world.drain(&world.sandbox().await, Duration::from_secs(60)).await;
    assert_eq!(world.origin.renders() - before, 1);
    pause(2).await;
    assert!(crowd(&instance, 100).await.iter().all(|reply| body(reply) == "two"));
}

#[tokio::test(start_paused = true)]
async fn fifty_instances_cause_at_most_two_renders() {
    let world = stale_world().await;
    let before = world.origin.renders();
    let instances: Vec<Instance> = (0..50).map(|_| world.instance()).collect();
    let replies = join_all(instances.iter().map(|instance| crowd(instance, 20))).await;
    assert!(replies.iter().flatten().all(|reply| reply.status == 200 && body(reply) == "one"));
    let messages = world.queued_messages().await;
    assert!((1..=50).contains(&messages), "{messages}");
    let sandboxes = join_all((0..5).map(|_| world.sandbox())).await;
    for _ in 0..60 {
        join_all(sandboxes.iter().map(|sandbox| sandbox.invoke())).await;
        pause(1).await;
    }
    assert_eq!(world.queued_messages().await, 0);
    let renders = world.origin.renders() - before;
    assert!((1..=2).contains(&renders), "{renders}");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn missing_page_is_one_message_per_instance_and_served_to_all() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(2));
    let instances: Vec<Instance> = (0..10).map(|_| world.instance()).collect();
    let sandbox = world.sandbox().await;
    let work = async {
        for _ in 0..5 {
            sandbox.invoke().await;
            pause(1).await;
        }
    };
    let readers = join_all(instances.iter().map(|instance| crowd(instance, 100)));
    let (replies, ()) = tokio::join!(readers, work);
    for reply in replies.iter().flatten() {
        assert_eq!((reply.status, body(reply)), (200, "one".to_owned()));
        assert!(cache_status(reply).ends_with("detail=waited"));
    }
    for instance in &instances {
        assert!(instance.total(metrics::ENQUEUED) <= 1);
    }
    assert_eq!(instances[0].operations().iter().filter(|name| *name == "GetObject").count(), 1);
    assert!(world.origin.renders() <= 2, "{}", world.origin.renders());
}

#[tokio::test(start_paused = true)]
async fn failed_regeneration_is_enqueued_again_after_window_and_cooldown() {
    let world = stale_world().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.origin.fail_with(everfresh_testing::OriginFault::Unreachable);
    for _ in 0..1_800 {
        instance.get(PAGE).await;
        sandbox.invoke().await;
        pause(1).await;
    }
    let sent = instance.total(metrics::ENQUEUED);
    assert!((1..=20).contains(&sent), "a broken origin is called rarely: {sent}");
    world.origin.fail_with(everfresh_testing::OriginFault::No);
    for _ in 0..1_800 {
        instance.get(PAGE).await;
        sandbox.invoke().await;
        pause(1).await;
    }
    let reply = instance.get(PAGE).await;
    assert_eq!((body(&reply).as_str(), reply.status), ("two", 200), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn crawler_is_held_to_the_rate_limit() {
    let world = World::new().await;
    let instance = world.instance_with(|settings| {
        settings.first_renders_per_minute = 30;
        settings.wait_ms = 50;
    });
    let mut refused_at_once = 0;
    for number in 0..500 {
        let reply = instance.get(&format!("/products/{number}")).await;
        assert_eq!(reply.status, 503);
        if cache_status(&reply).ends_with("detail=rate-limited") {
            assert_eq!(reply.header("retry-after"), Some("60"));
            refused_at_once += 1;
        }
    }
    let sent = world.queued_messages().await;
    // The full bucket, and the tokens of a few seconds.
    assert!((30..=35).contains(&sent), "{sent}");
    assert_eq!(refused_at_once + sent, 500);
}

#[tokio::test(start_paused = true)]
async fn missing_page_in_cooldown_is_not_waited_for() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.origin.fail_with(everfresh_testing::OriginFault::Unreachable);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let began = tokio::time::Instant::now();
    let reply = instance.get(PAGE).await;
    assert_eq!((reply.status, cache_status(&reply)), (503, "fwd=uri-miss; detail=cooldown"));
    let retry: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=7).contains(&retry), "{retry}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(instance.total(metrics::ENQUEUED), 0);
}

#[tokio::test(start_paused = true)]
async fn stale_page_is_not_enqueued_during_a_render() {
    let world = stale_world().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.origin.takes(Duration::from_secs(20));
    world.enqueue(PAGE).await;
    let read = async {
        pause(5).await;
        instance.get(PAGE).await
    };
    let (_, reply) = tokio::join!(sandbox.invoke(), read);
    assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()));
    assert_eq!(instance.total(metrics::ENQUEUED), 0);
}

/// The serving side's estimate of AWS's time may be half a second ahead of the worker's.
#[tokio::test(start_paused = true)]
async fn page_stale_to_readers_just_before_the_worker_is_regenerated() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let meta = world.meta(PAGE).await.unwrap();
    let ends_ms = (everfresh_testing::number(&meta, "generated_at")
        + everfresh_testing::number(&meta, "revalidate_seconds"))
        * 1000;
    tokio::time::sleep(Duration::from_millis(ends_ms - world.now_ms() - 300)).await;
    let before = world.origin.renders();
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.origin.renders() - before, 1);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.origin.renders() - before, 1, "once is enough");
}

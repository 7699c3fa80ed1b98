//! SQS does not answer: it must not hold up the instance, and a failed send takes no token.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::Served;
use everfresh_testing::{Instance, World, body, cache_status, get, pause};

/// How many pages have become stale.
const PAGES: u64 = 20;

fn path(number: u64) -> String {
    format!("/products/{number}")
}

/// Stale pages, and an instance.
async fn stale_pages(per_minute: u32) -> (World, Instance) {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    for number in 0..PAGES {
        world.enqueue(&path(number)).await;
    }
    world.drain(&sandbox, Duration::from_secs(60)).await;
    let instance = world.instance_with(|settings| settings.enqueues_per_minute = per_minute);
    pause(70).await;
    (world, instance)
}

#[tokio::test(start_paused = true)]
async fn hanging_sqs_rarely_holds_up_the_instance() {
    let (world, instance) = stale_pages(120).await;
    instance.inject(On::every("SendMessage"), Fault::Hang);
    let mut held = Duration::ZERO;
    for reader in 0..100 {
        let Served { reply, enqueues, .. } = instance.server.serve(&get(&path(reader % PAGES))).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
        let began = tokio::time::Instant::now();
        instance.server.finish(enqueues).await;
        held += began.elapsed();
        pause(1).await;
    }
    assert!(held < Duration::from_secs(45), "every reader would be 150 s: {held:?}");
    let counted = instance.metrics();
    assert!((10..=30).contains(&counted.total(metrics::SQS_OUTAGE)), "{counted:?}");
    instance.way.faults().clear();
    // Longer than the circuit breaker stays open.
    pause(5).await;
    for number in 0..PAGES {
        assert_eq!(instance.get(&path(number)).await.status, 200);
    }
    assert_eq!(world.queued_messages().await, PAGES, "once it is back, everything is enqueued");
}

#[tokio::test(start_paused = true)]
async fn failed_send_does_not_count_against_the_rate_limit() {
    let (world, instance) = stale_pages(2).await;
    for fault in [Fault::FailBefore, Fault::Throttle, Fault::Cut] {
        instance.inject(On::every("SendMessage"), fault);
        assert_eq!(instance.get(&path(0)).await.status, 200);
        instance.way.faults().clear();
        // Longer than the circuit breaker stays open, and too short for a token at two a minute.
        pause(4).await;
    }
    for number in 0..2 {
        instance.get(&path(number)).await;
    }
    assert_eq!(world.queued_messages().await, 2);
    assert_eq!(instance.total(metrics::ENQUEUES_LIMITED), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_page_is_enqueued_although_sqs_just_failed() {
    let (world, instance) = stale_pages(120).await;
    instance.inject(On::every("SendMessage"), Fault::FailBefore);
    instance.get(&path(0)).await;
    instance.way.faults().clear();
    let sandbox = world.sandbox().await;
    let work = async {
        pause(1).await;
        sandbox.invoke().await
    };
    let (reply, _) = tokio::join!(instance.get("/products/new"), work);
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{}", cache_status(&reply));
}

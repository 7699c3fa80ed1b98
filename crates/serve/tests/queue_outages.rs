//! A queue that does not answer: it must not hold the instance, and what it did not take costs nobody anything.
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

/// Stale pages, and an instance that knows them.
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
async fn a_queue_that_hangs_holds_the_instance_now_and_then_only() {
    let (world, instance) = stale_pages(120).await;
    instance.inject(On::every("SendMessage"), Fault::Hang);
    let mut held = Duration::ZERO;
    for reader in 0..100 {
        let Served { reply, wish } = instance.server.serve(&get(&path(reader % PAGES))).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
        let began = tokio::time::Instant::now();
        instance.server.finish(wish).await;
        held += began.elapsed();
        pause(1).await;
    }
    assert!(held < Duration::from_secs(45), "every reader would be 150 s: {held:?}");
    let counted = instance.metrics();
    assert!((10..=30).contains(&counted.total(metrics::SQS_OUTAGE)), "{counted:?}");
    instance.way.faults().clear();
    // Longer than the queue is left alone after its last failure.
    pause(5).await;
    for number in 0..PAGES {
        assert_eq!(instance.get(&path(number)).await.status, 200);
    }
    assert_eq!(world.waiting().await, PAGES, "and once it is back, everything is asked for");
}

#[tokio::test(start_paused = true)]
async fn what_the_queue_did_not_take_is_not_taken_off_the_budget() {
    let (world, instance) = stale_pages(2).await;
    for fault in [Fault::FailBefore, Fault::Throttle, Fault::Cut] {
        instance.inject(On::every("SendMessage"), fault);
        assert_eq!(instance.get(&path(0)).await.status, 200);
        instance.way.faults().clear();
        // Longer than the queue is left alone, and not long enough for a minute's budget of two to grow by one.
        pause(4).await;
    }
    for number in 0..2 {
        instance.get(&path(number)).await;
    }
    assert_eq!(world.waiting().await, 2);
    assert_eq!(instance.total(metrics::ENQUEUES_LIMITED), 0);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_missing_is_asked_for_although_the_queue_has_just_failed() {
    let (world, instance) = stale_pages(120).await;
    instance.inject(On::every("SendMessage"), Fault::FailBefore);
    instance.get(&path(0)).await;
    instance.way.faults().clear();
    let sandbox = world.sandbox().await;
    let work = async {
        pause(1).await;
        sandbox.turn().await
    };
    let (reply, _) = tokio::join!(instance.get("/products/new"), work);
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{}", cache_status(&reply));
}

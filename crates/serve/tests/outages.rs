//! Services that fail, hang or throttle: readers get what memory has, and nobody waits for the dead.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::reply::Reply;
use everfresh_testing::{Instance, Sandbox, World, body, cache_status, pause};

const PAGE: &str = "/products/42";

/// Operations of each service that the serving side uses.
const DYNAMODB: [&str; 3] = ["Query", "GetItem", "BatchGetItem"];
const S3: [&str; 1] = ["GetObject"];
const SQS: [&str; 1] = ["SendMessage"];

const WAYS: [Fault; 5] = [Fault::FailBefore, Fault::Cut, Fault::Hang, Fault::Throttle, Fault::NotifyBackoff];

/// A page in memory of an instance, fresh for a minute.
async fn known() -> (World, Sandbox, Instance) {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(instance.get(PAGE).await.status, 200);
    (world, sandbox, instance)
}

fn break_all(instance: &Instance, operations: &[&'static str], fault: &Fault) {
    for operation in operations {
        instance.inject(On::every(operation), *fault);
    }
}

fn mend(instance: &Instance) {
    instance.way.faults().clear();
}

/// A reader, and how long they waited.
async fn timed(instance: &Instance) -> (Reply, Duration) {
    let began = tokio::time::Instant::now();
    let reply = instance.server.serve(&everfresh_testing::get(PAGE)).await;
    let took = began.elapsed();
    if let Some(wish) = reply.wish {
        instance.server.ask(wish).await;
    }
    (reply.reply, took)
}

#[tokio::test(start_paused = true)]
async fn with_the_table_down_memory_answers_and_recovers() {
    for fault in WAYS {
        let (world, sandbox, instance) = known().await;
        break_all(&instance, &DYNAMODB, &fault);
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            pause(2).await;
            let (reply, took) = timed(&instance).await;
            assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()), "{fault:?}");
            assert!(cache_status(&reply).ends_with("detail=dynamodb-down"), "{fault:?}: {reply:?}");
            assert!(took <= Duration::from_millis(400), "{fault:?}: {took:?}");
            waited += took;
        }
        assert!(waited < Duration::from_secs(25), "most do not wait at all: {fault:?}: {waited:?}");
        assert!(instance.total(metrics::DYNAMODB_OUTAGE) >= 100);
        mend(&instance);
        world.origin.content("two");
        world.enqueue(PAGE).await;
        world.drain(&sandbox, Duration::from_secs(60)).await;
        pause(6).await;
        let (reply, _) = timed(&instance).await;
        assert_eq!(body(&reply), "two", "{fault:?}");
        assert!(!cache_status(&reply).contains("down"));
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_bucket_down_the_last_good_version_answers_and_the_new_one_comes_later() {
    for fault in WAYS {
        let (world, sandbox, instance) = known().await;
        pause(3).await;
        world.origin.content("two");
        world.enqueue(PAGE).await;
        sandbox.turn().await;
        pause(2).await;
        break_all(&instance, &S3, &fault);
        let mut waited = Duration::ZERO;
        for round in 0..50 {
            let (reply, took) = timed(&instance).await;
            waited += took;
            assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()), "{fault:?}");
            assert!(cache_status(&reply).ends_with("detail=s3-down"), "{fault:?}: {reply:?}");
            // Only one that tries pays for it, and only the SDK's short time-outs.
            assert!(took <= Duration::from_millis(1_600), "{fault:?}, round {round}: {took:?}");
            pause(1).await;
        }
        // Every fourth at most: the bucket is left alone from its failure on, not from when it was asked.
        assert!(waited < Duration::from_secs(25), "{fault:?}: {waited:?}");
        assert!(instance.total(metrics::S3_OUTAGE) >= 50);
        mend(&instance);
        pause(5).await;
        let (reply, _) = timed(&instance).await;
        assert_eq!(body(&reply), "two", "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_queue_down_readers_notice_nothing_and_the_wish_is_sent_when_it_is_back() {
    for fault in WAYS {
        let (world, sandbox, instance) = known().await;
        pause(70).await;
        world.origin.content("two");
        break_all(&instance, &SQS, &fault);
        for _ in 0..10 {
            let (reply, took) = timed(&instance).await;
            assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()));
            assert_eq!(took, Duration::ZERO, "the reply does not wait for the queue: {fault:?}");
            pause(1).await;
        }
        assert!(instance.total(metrics::SQS_OUTAGE) >= 5, "each failed send lets the next reader try: {fault:?}");
        mend(&instance);
        // Longer than the queue is left alone after its last failure.
        pause(5).await;
        timed(&instance).await;
        world.drain(&sandbox, Duration::from_secs(120)).await;
        pause(2).await;
        assert_eq!(body(&instance.get(PAGE).await), "two", "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_nowhere_else_is_told_to_come_again_soon() {
    for (operations, detail) in [(&DYNAMODB[..], "dynamodb-down"), (&S3[..], "s3-down")] {
        for fault in WAYS {
            let (world, _, _) = known().await;
            let cold = world.instance();
            break_all(&cold, operations, &fault);
            let (reply, took) = timed(&cold).await;
            assert_eq!((reply.status, reply.header("retry-after")), (503, Some("5")), "{fault:?}");
            assert_eq!(cache_status(&reply), format!("fwd=uri-miss; detail={detail}"));
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert!(took <= Duration::from_millis(4_000), "{fault:?}: {took:?}");
            mend(&cold);
            assert_eq!(timed(&cold).await.0.status, 200, "at once when it is back: {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_everything_breaks_in_turn_no_reader_of_a_known_page_sees_an_error() {
    let (world, sandbox, instance) = known().await;
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..60u32 {
        let operations: &[&str] = match round % 3 {
            0 => &DYNAMODB,
            1 => &S3,
            _ => &SQS,
        };
        let fault = &WAYS[(round / 3) as usize % WAYS.len()];
        break_all(&instance, operations, fault);
        for reader in 0..20 {
            let (reply, took) = timed(&instance).await;
            assert_eq!(reply.status, 200, "round {round}, reader {reader}, {fault:?} on {operations:?}: {reply:?}");
            assert!(took <= Duration::from_millis(1_600));
            seen.insert(cache_status(&reply).rsplit("; ").next().unwrap().split('=').next_back().unwrap().to_owned());
            pause(1).await;
        }
        mend(&instance);
        world.origin.content(&format!("round {round}"));
        world.enqueue(PAGE).await;
        world.drain(&sandbox, Duration::from_secs(120)).await;
        // Longer than a service is left alone after its last failure.
        pause(6).await;
        let (reply, _) = timed(&instance).await;
        assert_eq!(body(&reply), format!("round {round}"), "recovered without a restart");
    }
    assert!(seen.contains("dynamodb-down"), "{seen:?}");
}

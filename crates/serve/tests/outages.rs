//! Services that fail, hang or throttle: the cache answers without waiting for them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::http::Reply;
use everfresh_testing::{Instance, Sandbox, World, body, cache_status, pause};

const PAGE: &str = "/products/42";

/// Operations of each service that the serving side uses.
const DYNAMODB: [&str; 3] = ["Query", "GetItem", "BatchGetItem"];
const S3: [&str; 1] = ["GetObject"];
const SQS: [&str; 1] = ["SendMessage"];

const WAYS: [Fault; 5] = [Fault::FailBefore, Fault::Cut, Fault::Hang, Fault::Throttle, Fault::HangAfter];

/// A page in the cache of an instance, fresh for a minute.
async fn cached() -> (World, Sandbox, Instance) {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(instance.get(PAGE).await.status, 200);
    (world, sandbox, instance)
}

fn break_all(instance: &Instance, operations: &[&'static str], fault: &Fault) {
    for operation in operations {
        instance.inject(On::every(operation), *fault);
    }
}

fn restore(instance: &Instance) {
    instance.way.faults().clear();
}

/// A response, and how long it took.
async fn timed(instance: &Instance) -> (Reply, Duration) {
    let began = tokio::time::Instant::now();
    let served = instance.server.serve(&everfresh_testing::get(PAGE)).await;
    let took = began.elapsed();
    for enqueue in served.enqueues {
        instance.server.enqueue(enqueue).await;
    }
    (served.reply, took)
}

#[tokio::test(start_paused = true)]
async fn cache_answers_while_dynamodb_is_down_and_recovers() {
    for fault in WAYS {
        let (world, sandbox, instance) = cached().await;
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
        restore(&instance);
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
async fn last_good_version_is_served_while_s3_is_down() {
    for fault in WAYS {
        let (world, sandbox, instance) = cached().await;
        pause(3).await;
        world.origin.content("two");
        world.enqueue(PAGE).await;
        sandbox.invoke().await;
        pause(2).await;
        break_all(&instance, &S3, &fault);
        let mut waited = Duration::ZERO;
        for round in 0..50 {
            let (reply, took) = timed(&instance).await;
            waited += took;
            assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()), "{fault:?}");
            assert!(cache_status(&reply).ends_with("detail=s3-down"), "{fault:?}: {reply:?}");
            // Only a request that tries S3 waits, and only for the SDK's short timeouts.
            assert!(took <= Duration::from_millis(1_600), "{fault:?}, round {round}: {took:?}");
            pause(1).await;
        }
        // Every fourth at most: the circuit breaker counts from the failure, not from the call.
        assert!(waited < Duration::from_secs(25), "{fault:?}: {waited:?}");
        assert!(instance.total(metrics::S3_OUTAGE) >= 50);
        restore(&instance);
        pause(5).await;
        let (reply, _) = timed(&instance).await;
        assert_eq!(body(&reply), "two", "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sqs_outage_delays_no_reply_and_enqueues_afterwards() {
    for fault in WAYS {
        let (world, sandbox, instance) = cached().await;
        pause(70).await;
        world.origin.content("two");
        break_all(&instance, &SQS, &fault);
        for _ in 0..10 {
            let (reply, took) = timed(&instance).await;
            assert_eq!((reply.status, body(&reply)), (200, "one".to_owned()));
            assert_eq!(took, Duration::ZERO, "the reply does not wait for the queue: {fault:?}");
            pause(1).await;
        }
        assert!(instance.total(metrics::SQS_OUTAGE) >= 5, "after each failed send the next read tries: {fault:?}");
        restore(&instance);
        // Longer than the circuit breaker stays open.
        pause(5).await;
        timed(&instance).await;
        world.drain(&sandbox, Duration::from_secs(120)).await;
        pause(2).await;
        assert_eq!(body(&instance.get(PAGE).await), "two", "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn uncached_page_gets_503_during_an_outage() {
    for (operations, detail) in [(&DYNAMODB[..], "dynamodb-down"), (&S3[..], "s3-down")] {
        for fault in WAYS {
            let (world, _, _) = cached().await;
            let cold = world.instance();
            break_all(&cold, operations, &fault);
            let (reply, took) = timed(&cold).await;
            assert_eq!((reply.status, reply.header("retry-after")), (503, Some("5")), "{fault:?}");
            assert_eq!(cache_status(&reply), format!("fwd=uri-miss; detail={detail}"));
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert!(took <= Duration::from_millis(4_000), "{fault:?}: {took:?}");
            restore(&cold);
            assert_eq!(timed(&cold).await.0.status, 200, "at once when it is back: {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cached_page_has_no_errors_while_services_fail_in_turn() {
    let (world, sandbox, instance) = cached().await;
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
        restore(&instance);
        world.origin.content(&format!("round {round}"));
        world.enqueue(PAGE).await;
        world.drain(&sandbox, Duration::from_secs(120)).await;
        // Longer than the circuit breaker stays open.
        pause(6).await;
        let (reply, _) = timed(&instance).await;
        assert_eq!(body(&reply), format!("round {round}"), "recovered without a restart");
    }
    assert!(seen.contains("dynamodb-down"), "{seen:?}");
}

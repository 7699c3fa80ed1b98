//! Response deadlines: a request waits for a regeneration, never for services that do not answer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::http::Reply;
use everfresh_testing::{CONFIG, Instance, World, body, cache_status, get, pause, published, text};

const PAGE: &str = "/products/42";
const TABLE: [&str; 3] = ["Query", "GetItem", "BatchGetItem"];
const ALL: [&str; 5] = ["Query", "GetItem", "BatchGetItem", "GetObject", "SendMessage"];

/// A page that is expired two minutes after it was published, and an instance that knows it.
async fn expired() -> (World, Instance) {
    let world = World::with_config(&CONFIG.replace(r#"max_stale  = "1d""#, r#"max_stale  = "10s""#)).await;
    let (sandbox, instance) = (world.sandbox().await, world.instance());
    world.publish(&sandbox, PAGE, &["one"]).await;
    assert_eq!(body(&instance.get(PAGE).await), "one");
    pause(120).await;
    (world, instance)
}

/// A response, and how long it took.
async fn timed(instance: &Instance) -> (Reply, Duration) {
    let began = tokio::time::Instant::now();
    let served = instance.server.serve(&get(PAGE)).await;
    let took = began.elapsed();
    instance.server.finish(served.enqueues).await;
    (served.reply, took)
}

fn sent(instance: &Instance) -> usize {
    instance.operations().iter().filter(|operation| *operation == "SendMessage").count()
}

#[tokio::test(start_paused = true)]
async fn expired_page_is_served_at_once_while_dynamodb_is_down() {
    for fault in [Fault::FailBefore, Fault::Cut, Fault::Hang, Fault::Throttle] {
        let (world, instance) = expired().await;
        for operation in TABLE {
            instance.inject(On::every(operation), fault);
        }
        for _ in 0..10 {
            let (reply, took) = timed(&instance).await;
            assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{fault:?}");
            assert!(cache_status(&reply).ends_with("detail=dynamodb-down"), "{fault:?}: {reply:?}");
            assert!(took <= Duration::from_millis(400), "{fault:?}: {took:?}");
        }
        assert!(world.queued_messages().await > 0, "enqueued all the same: {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn expired_page_is_served_at_once_while_sqs_is_down() {
    let (world, instance) = expired().await;
    instance.inject(On::every("SendMessage"), Fault::Hang);
    for _ in 0..10 {
        let (reply, took) = timed(&instance).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
        assert!(took <= Duration::from_millis(1_500), "{took:?}");
    }
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn read_that_waited_in_vain_enqueues_once() {
    let (world, _) = expired().await;
    // Longer than an enqueue suppresses others.
    let instance = world.instance_with(|settings| settings.wait_ms = 5_900);
    let (reply, took) = timed(&instance).await;
    assert!(cache_status(&reply).ends_with("detail=expired-age"), "{reply:?}");
    assert!(took >= Duration::from_secs(5), "{took:?}");
    assert_eq!((sent(&instance), world.queued_messages().await), (1, 1));
    pause(10).await;
    timed(&instance).await;
    assert_eq!(sent(&instance), 2, "the window has ended, and the regeneration may have failed");
}

#[tokio::test(start_paused = true)]
async fn body_lost_during_the_wait_is_enqueued_too() {
    let (world, instance) = expired().await;
    world.publish(&world.sandbox().await, PAGE, &["two"]).await;
    pause(120).await;
    world.delete_object(&text(&world.meta(PAGE).await.unwrap(), "s3_key")).await;
    let (reply, _) = timed(&instance).await;
    assert_eq!(body(&reply), "one");
    let messages = world.messages().await;
    let lost = |message: &&aws_sdk_sqs::types::Message| {
        message.message_attributes().is_some_and(|attributes| attributes.contains_key("everfresh-lost"))
    };
    assert_eq!((messages.len(), messages.iter().filter(lost).count()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn cache_answers_after_the_response_deadline() {
    let (world, sandbox, _) = published(PAGE).await;
    let instance = world.instance_with(|settings| settings.response_deadline_ms = 1_000);
    assert_eq!(body(&instance.get(PAGE).await), "one");
    pause(10).await;
    world.publish(&sandbox, PAGE, &["two"]).await;
    instance.inject(On::every("GetObject"), Fault::Hang);
    let (reply, took) = timed(&instance).await;
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
    assert!(cache_status(&reply).ends_with("detail=out-of-time"), "{reply:?}");
    assert_eq!(took, Duration::from_secs(1));
    instance.way.faults().clear();
    assert_eq!(body(&timed(&instance).await.0), "two");
}

#[tokio::test(start_paused = true)]
async fn uncached_page_gets_503_after_the_response_deadline() {
    let (world, _, _) = published(PAGE).await;
    let instance = world.instance_with(|settings| settings.response_deadline_ms = 1_000);
    for operation in ALL {
        instance.inject(On::every(operation), Fault::Delay(Duration::from_millis(600)));
    }
    let (reply, took) = timed(&instance).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("5")));
    assert_eq!(cache_status(&reply), "fwd=uri-miss; detail=out-of-time");
    assert_eq!((reply.header("cache-control"), took), (Some("no-store"), Duration::from_secs(1)));
    assert_eq!(instance.total(metrics::UNAVAILABLE), 1);
}

#[tokio::test(start_paused = true)]
async fn next_read_repeats_an_enqueue_cut_off_by_deadline() {
    let world = World::new().await;
    let instance = world.instance_with(|settings| settings.response_deadline_ms = 1_000);
    instance.inject(On::every("SendMessage"), Fault::Hang);
    let (reply, took) = timed(&instance).await;
    assert_eq!((reply.status, took), (503, Duration::from_secs(1)));
    assert_eq!(world.queued_messages().await, 0);
    instance.way.faults().clear();
    timed(&instance).await;
    assert_eq!(world.queued_messages().await, 1);
}

#[tokio::test(start_paused = true)]
async fn slow_calls_together_take_eight_seconds_at_most() {
    let slow = |instance: &Instance| {
        for operation in ALL {
            instance.inject(On::every(operation), Fault::Delay(Duration::from_millis(690)));
        }
    };
    // Missing, and no worker renders it.
    let world = World::new().await;
    let instance = world.instance();
    slow(&instance);
    let (reply, took) = timed(&instance).await;
    assert!(reply.status == 503 && took <= Duration::from_secs(8), "{took:?}: {reply:?}");
    // Expired and not cached: some of the deadline is left for the body.
    let (world, _) = expired().await;
    let cold = world.instance();
    slow(&cold);
    let (reply, took) = timed(&cold).await;
    assert_eq!((reply.status, body(&reply).as_str()), (200, "one"));
    assert!(took <= Duration::from_secs(8), "{took:?}");
    // The body is lost, and SQS hangs.
    let (world, _, _) = published(PAGE).await;
    world.delete_object(&text(&world.meta(PAGE).await.unwrap(), "s3_key")).await;
    let instance = world.instance();
    instance.inject(On::every("SendMessage"), Fault::Hang);
    slow(&instance);
    let (reply, took) = timed(&instance).await;
    assert!(reply.status == 503 && took <= Duration::from_secs(8), "{took:?}: {reply:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_read_is_completed_after_the_reply() {
    for slow_ms in [450, 690] {
        let (world, sandbox, instance) = published(PAGE).await;
        assert_eq!(body(&instance.get(PAGE).await), "one");
        pause(10).await;
        for operation in TABLE {
            instance.inject(On::every(operation), Fault::Delay(Duration::from_millis(slow_ms)));
        }
        for round in 0..5 {
            let content = format!("round {round}");
            world.publish(&sandbox, PAGE, &[&content]).await;
            let mut seen = String::new();
            for _ in 0..8 {
                let (reply, took) = timed(&instance).await;
                assert!(took <= Duration::from_millis(400), "{slow_ms}: {took:?}");
                seen = body(&reply);
                pause(1).await;
            }
            assert_eq!(seen, content, "{slow_ms}");
        }
    }
}

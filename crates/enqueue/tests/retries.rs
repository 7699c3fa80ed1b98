//! Retries: under one key, with a bounded number of attempts and bounded time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use everfresh_core::clients::ClientTimeouts;
use everfresh_core::metrics;
use everfresh_enqueue::{IdempotencyKey, Message, Queues, Retry, SendError, Sender};
use everfresh_local::faults::{Fault, On};
use support::{PAGE, Producer, key_of};
use tokio::time::Instant;

fn request() -> Message {
    Message::path("acme", PAGE)
}

#[tokio::test(start_paused = true)]
async fn send_with_unknown_outcome_is_retried_as_the_same_request() {
    for fault in [Fault::LoseResponse, Fault::FailAfter, Fault::HangAfter] {
        let producer = Producer::new().await;
        let sender = producer.sender.clone().retrying(Retry::default());
        producer.inject(On::next("SendMessage"), fault);
        let sent = sender.send(&request()).await.unwrap();
        let world = &producer.world;
        assert_eq!(world.queued_messages().await, 2, "{fault:?}");
        let sandbox = world.sandbox().await.one_by_one();
        world.drain(&sandbox, Duration::from_secs(600)).await;
        assert_eq!(world.status(PAGE, sent.key.as_str()).await, "COMPLETED", "{fault:?}");
        assert_eq!(world.origin.renders(), 1, "{fault:?}");
        assert_eq!(sandbox.total(metrics::REPLAYED), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_for_one_page_get_different_generated_keys() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry::default());
    let one = sender.send(&request()).await.unwrap();
    let two = sender.send(&request()).await.unwrap();
    assert_ne!(one.key, two.key);
    let received = producer.main_queue().await;
    let keys: Vec<_> = received.iter().map(key_of).collect();
    assert_eq!(keys, [one.key.as_str(), two.key.as_str()], "the key is in the message body");
}

#[tokio::test(start_paused = true)]
async fn own_key_of_a_message_is_kept_in_all_attempts() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry::default());
    let key = IdempotencyKey::parse("order-42").unwrap();
    producer.inject(On::every("SendMessage").times(3), Fault::LoseResponse);
    let sent = sender.send(&Message { idempotency_key: Some(key.clone()), ..request() }).await.unwrap();
    assert_eq!(sent.key, key);
    let received = producer.main_queue().await;
    assert_eq!(received.iter().map(key_of).collect::<Vec<_>>(), vec!["order-42"; 4]);
}

#[tokio::test(start_paused = true)]
async fn sdk_retries_do_not_multiply_attempts() {
    for fault in [Fault::FailBefore, Fault::Cut, Fault::Throttle] {
        let producer = Producer::new().await;
        let sender = producer.sender.clone().retrying(Retry { max_attempts: 3, ..Retry::default() });
        producer.inject(On::every("SendMessage"), fault);
        let error = sender.send(&request()).await.unwrap_err();
        assert!(matches!(&error, SendError::Queue { queue, .. } if queue.ends_with("/everfresh")), "{error}");
        assert_eq!(producer.calls("SendMessage"), 3, "{fault:?}");
        producer.transport.faults().clear();
        // The caller retries under the key of the failed attempts.
        let SendError::Queue { key, .. } = error else { panic!("{error}") };
        assert_eq!(
            sender.send(&Message { idempotency_key: key.clone(), ..request() }).await.unwrap().key,
            key.unwrap()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_and_total_time_are_bounded() {
    let producer = Producer::new().await;
    let retry = Retry {
        max_attempts: 1000,
        attempt_timeout: Duration::from_millis(700),
        total_timeout: Duration::from_secs(5),
        ..Retry::default()
    };
    producer.inject(On::every("SendMessage"), Fault::Hang);
    let began = Instant::now();
    let error = producer.sender.clone().retrying(retry).send(&request()).await.unwrap_err();
    assert!(error.to_string().ends_with("no answer in time"), "{error}");
    assert!(began.elapsed() <= retry.total_timeout + Duration::from_millis(1), "{:?}", began.elapsed());
    assert!(producer.calls("SendMessage") >= 3, "{}", producer.calls("SendMessage"));
}

#[tokio::test(start_paused = true)]
async fn backoff_is_random_and_grows() {
    let mut waits = Vec::new();
    for seed in 0..20 {
        fastrand::seed(seed);
        let producer = Producer::new().await;
        producer.inject(On::every("SendMessage"), Fault::FailBefore);
        let retry = Retry { initial_backoff: Duration::from_millis(400), ..Retry::default() };
        let began = Instant::now();
        producer.sender.clone().retrying(retry).send(&request()).await.unwrap_err();
        waits.push(began.elapsed());
    }
    let most = Duration::from_millis(400 + 800 + 1_600);
    assert!(waits.iter().all(|wait| *wait <= most + Duration::from_millis(10)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait > Duration::from_millis(3 * 400)), "they grow: {waits:?}");
    waits.sort();
    waits.dedup();
    assert!(waits.len() > 10, "they differ: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn permanent_error_is_not_retried() {
    let producer = Producer::new().await;
    let clients = producer.transport.clients(producer.world.clock.clone(), ClientTimeouts::WORKER);
    let missing = format!("{}-that-does-not-exist", producer.world.stack.queue);
    let queues = Queues { main: missing.clone(), low_priority: missing };
    let sender = Sender::new(clients.sqs, queues).retrying(Retry::default());
    let error = sender.send(&request()).await.unwrap_err();
    assert!(error.to_string().contains("queue does not exist"), "{error}");
    assert_eq!(producer.calls("SendMessage"), 1);
}

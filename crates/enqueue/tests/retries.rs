//! Sending again: the same wish, a bounded number of times, for a bounded time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use everfresh_core::clients::ClientTimeouts;
use everfresh_core::metrics;
use everfresh_enqueue::{IdempotencyKey, Message, Queues, Retry, SendError, Sender};
use everfresh_local::faults::{Fault, On};
use support::{PAGE, Producer, key_of};
use tokio::time::Instant;

fn wish() -> Message {
    Message::path("acme", PAGE)
}

#[tokio::test(start_paused = true)]
async fn a_send_whose_answer_is_unknown_is_repeated_as_the_same_wish() {
    for fault in [Fault::LoseResponse, Fault::FailAfter, Fault::NotifyBackoff] {
        let producer = Producer::new().await;
        let sender = producer.sender.clone().retrying(Retry::default());
        producer.inject(On::next("SendMessage"), fault);
        let sent = sender.send(&wish()).await.unwrap();
        let world = &producer.world;
        assert_eq!(world.waiting().await, 2, "{fault:?}");
        let sandbox = world.sandbox().await.one_by_one();
        world.drain(&sandbox, Duration::from_secs(600)).await;
        assert_eq!(world.status(PAGE, sent.key.as_str()).await, "COMPLETED", "{fault:?}");
        assert_eq!(world.origin.renders(), 1, "{fault:?}");
        assert_eq!(sandbox.total(metrics::REPLAYED), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_wishes_for_one_page_are_never_given_the_same_key() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry::default());
    let one = sender.send(&wish()).await.unwrap();
    let two = sender.send(&wish()).await.unwrap();
    assert_ne!(one.key, two.key);
    let received = producer.main_queue().await;
    let keys: Vec<_> = received.iter().map(key_of).collect();
    assert_eq!(keys, [one.key.as_str(), two.key.as_str()], "in the body, where every worker reads it");
}

#[tokio::test(start_paused = true)]
async fn a_messages_own_key_is_kept_over_all_attempts() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry::default());
    let key = IdempotencyKey::parse("order-42").unwrap();
    producer.inject(On::every("SendMessage").times(3), Fault::LoseResponse);
    let sent = sender.send(&Message { idempotency_key: Some(key.clone()), ..wish() }).await.unwrap();
    assert_eq!(sent.key, key);
    let received = producer.main_queue().await;
    assert_eq!(received.iter().map(key_of).collect::<Vec<_>>(), vec!["order-42"; 4]);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_and_the_clients_own_do_not_multiply_them() {
    for fault in [Fault::FailBefore, Fault::Cut, Fault::Throttle] {
        let producer = Producer::new().await;
        let sender = producer.sender.clone().retrying(Retry { attempts: 3, ..Retry::default() });
        producer.inject(On::every("SendMessage"), fault);
        let error = sender.send(&wish()).await.unwrap_err();
        assert!(matches!(&error, SendError::Queue { queue, .. } if queue.ends_with("/everfresh")), "{error}");
        assert_eq!(producer.calls("SendMessage"), 3, "{fault:?}");
        producer.way.faults().clear();
        // The caller tries once more, under the key of the attempts that it was not told of.
        let SendError::Queue { key, .. } = error else { panic!("{error}") };
        assert_eq!(sender.send(&Message { idempotency_key: key.clone(), ..wish() }).await.unwrap().key, key.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn time_is_bounded_for_one_attempt_and_for_all() {
    let producer = Producer::new().await;
    let retry = Retry {
        attempts: 1000,
        attempt_time: Duration::from_millis(700),
        total_time: Duration::from_secs(5),
        ..Retry::default()
    };
    producer.inject(On::every("SendMessage"), Fault::Hang);
    let began = Instant::now();
    let error = producer.sender.clone().retrying(retry).send(&wish()).await.unwrap_err();
    assert!(error.to_string().ends_with("no answer in time"), "{error}");
    assert!(began.elapsed() <= retry.total_time + Duration::from_millis(1), "{:?}", began.elapsed());
    assert!(producer.calls("SendMessage") >= 3, "{}", producer.calls("SendMessage"));
}

#[tokio::test(start_paused = true)]
async fn pauses_are_drawn_and_grow() {
    let mut waits = Vec::new();
    for seed in 0..20 {
        fastrand::seed(seed);
        let producer = Producer::new().await;
        producer.inject(On::every("SendMessage"), Fault::FailBefore);
        let retry = Retry { first_pause: Duration::from_millis(400), ..Retry::default() };
        let began = Instant::now();
        producer.sender.clone().retrying(retry).send(&wish()).await.unwrap_err();
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
async fn a_refusal_that_will_not_pass_is_not_repeated() {
    let producer = Producer::new().await;
    let clients = producer.way.clients(producer.world.clock.clone(), ClientTimeouts::WORKER);
    let nowhere = format!("{}-that-is-not-there", producer.world.stack.queue);
    let queues = Queues { main: nowhere.clone(), low_priority: nowhere };
    let sender = Sender::new(clients.sqs, queues).retrying(Retry::default());
    let error = sender.send(&wish()).await.unwrap_err();
    assert!(error.to_string().contains("queue does not exist"), "{error}");
    assert_eq!(producer.calls("SendMessage"), 1);
}

//! `send_once`: equal calls within a window send one message; a later change sends another.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use everfresh_enqueue::sender::DEDUPLICATION_WINDOW;
use everfresh_enqueue::{IdempotencyKey, Message, Reason, Retry, SendError, SendOutcome, Sender, Sent};
use everfresh_local::faults::{Fault, On};
use everfresh_testing::START_MS;
use futures::future::join_all;
use support::{PAGE, Producer, message_for, read, sent_ms};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

fn request() -> Message {
    Message::path("acme", PAGE)
}

fn sent(outcome: Result<SendOutcome, SendError>) -> Sent {
    match outcome.unwrap() {
        SendOutcome::Sent(sent) => sent,
        SendOutcome::Duplicate => panic!("dropped as a duplicate"),
    }
}

async fn after(delay: Duration, sender: &Sender, message: &Message) -> Result<SendOutcome, SendError> {
    sleep(delay).await;
    sender.send_once(message).await
}

#[tokio::test(start_paused = true)]
async fn changed_calls_in_a_window_share_one_later_message() {
    for sender in [|sender: Sender| sender, |sender: Sender| sender.retrying(Retry::default())] {
        let producer = Producer::new().await;
        let sender = sender(producer.sender.clone());
        let began_ms = producer.world.now_ms();
        let tasks = (0..50).map(|n| {
            let sender = sender.clone();
            tokio::spawn(async move { after(2 * n * MS, &sender, &request()).await })
        });
        let results: Vec<_> = join_all(tasks).await.into_iter().map(|joined| sent(joined.unwrap())).collect();
        let received = producer.main_queue().await;
        let [message] = received.as_slice() else { panic!("{} messages", received.len()) };
        let last_call_ms = began_ms + 98;
        assert!(sent_ms(message) > last_call_ms, "{} {}", sent_ms(message) - START_MS, last_call_ms - START_MS);
        assert!(results.iter().all(|sent| Some(sent.message_id.as_str()) == message.message_id()));
        assert!(results.iter().all(|sent| sent.key == results[0].key));
        assert_eq!(producer.calls("SendMessage"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn change_right_after_a_send_is_sent() {
    let producer = Producer::new().await;
    let world = &producer.world;
    let sandbox = world.sandbox().await;
    let first = sent(producer.sender.send_once(&request()).await);
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
    world.origin.content("two");
    let second = sent(producer.sender.send_once(&request()).await);
    assert_ne!(first, second);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn call_never_joins_a_message_already_in_flight() {
    let producer = Producer::new().await;
    // In flight for longer than a window.
    producer.inject(On::next("SendMessage"), Fault::Delay(Duration::from_millis(250)));
    let (sender, message) = (&producer.sender, request());
    let calls = [0, 99, 100, 199, 250].map(|at| after(at * MS, sender, &message));
    let [a, b, c, d, e] = <[_; 5]>::try_from(join_all(calls).await).unwrap().map(sent);
    assert_eq!((&a, &c), (&b, &d));
    assert!(a != c && c != e && a != e);
    assert_eq!(producer.main_queue().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn failure_reaches_all_joined_calls_and_next_call_sends() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry { max_attempts: 2, ..Retry::default() });
    producer.inject(On::every("SendMessage").times(2), Fault::FailBefore);
    let (message, calls) = (request(), (0..10).map(|n| n * 5 * MS));
    let failed = join_all(calls.map(|delay| after(delay, &sender, &message))).await;
    assert!(failed.iter().all(Result::is_err));
    assert_eq!(producer.calls("SendMessage"), 2, "one send and one retry");
    sent(sender.send_once(&message).await);
    assert_eq!(producer.main_queue().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn different_requests_do_not_join() {
    let producer = Producer::new().await;
    let key = |text| Some(IdempotencyKey::parse(text).unwrap());
    let messages = [
        request(),
        Message::path("globex", PAGE),
        Message::path("acme", "/products/43"),
        Message::tag("acme", PAGE),
        message_for(Reason::Expired, PAGE),
        // Under the key of another request, which may be covered already, it would be ignored.
        Message { idempotency_key: key("k1"), ..request() },
        Message { idempotency_key: key("k2"), ..request() },
    ];
    let twice = messages.iter().chain(&messages);
    let results = join_all(twice.map(|message| producer.sender.send_once(message))).await;
    assert_eq!(
        results.iter().filter(|result| matches!(result, Ok(SendOutcome::Duplicate))).count(),
        1,
        "of reason expired"
    );
    let received: Vec<_> = producer.main_queue().await.iter().map(read).collect();
    assert_eq!(received.len(), messages.len());
    assert!(messages.iter().all(|message| received.contains(message)));
}

#[tokio::test(start_paused = true)]
async fn expired_and_prewarm_are_sent_at_once_without_duplicates() {
    for reason in [Reason::Expired, Reason::Prewarm] {
        let producer = Producer::new().await;
        let (message, began) = (message_for(reason, PAGE), Instant::now());
        sent(producer.sender.send_once(&message).await);
        assert!(began.elapsed() < DEDUPLICATION_WINDOW, "sent without waiting for the window");
        for _ in 0..5 {
            assert_eq!(producer.sender.send_once(&message).await.unwrap(), SendOutcome::Duplicate);
        }
        sleep(DEDUPLICATION_WINDOW).await;
        sent(producer.sender.clone().send_once(&message).await);
        assert_eq!(producer.calls("SendMessage"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_or_cancelled_first_call_drops_no_later_call() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry { max_attempts: 1, ..Retry::default() });
    let message = message_for(Reason::Expired, PAGE);
    producer.inject(On::next("SendMessage"), Fault::FailBefore);
    assert!(sender.send_once(&message).await.is_err());
    producer.inject(On::next("SendMessage"), Fault::Hang);
    assert!(timeout(20 * MS, sender.send_once(&message)).await.is_err());
    sent(sender.send_once(&message).await);
    assert_eq!(sender.send_once(&message).await.unwrap(), SendOutcome::Duplicate);
    assert_eq!(producer.main_queue().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn joined_calls_are_sent_when_the_first_is_cancelled() {
    let producer = Producer::new().await;
    let message = request();
    let cancelled = timeout(20 * MS, producer.sender.send_once(&message));
    let (cancelled, kept) = tokio::join!(cancelled, after(10 * MS, &producer.sender, &message));
    assert!(cancelled.is_err());
    sent(kept);
    assert_eq!(producer.main_queue().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_fingerprint_limit_are_sent_without_deduplication() {
    let producer = Producer::new().await;
    let sender = &producer.sender;
    let many: Vec<_> = (0..1_000).map(|n| Message::path("acme", format!("/products/{n}"))).collect();
    let calls = join_all(many.iter().map(|message| sender.send_once(message)));
    let beyond = async {
        let began = Instant::now();
        let (one, two) =
            (sent(sender.send_once(&other_request()).await), sent(sender.send_once(&other_request()).await));
        assert_ne!(one, two);
        assert!(began.elapsed() < DEDUPLICATION_WINDOW, "sent without waiting for the window");
    };
    let (calls, ()) = tokio::join!(calls, beyond);
    assert!(calls.iter().all(Result::is_ok));
    sleep(2 * DEDUPLICATION_WINDOW).await;
    let began = Instant::now();
    sent(sender.send_once(&other_request()).await);
    assert!(began.elapsed() > MS, "waits for the window again: old fingerprints are removed");
    assert_eq!(producer.world.queued_messages().await, 1_003);
}

fn other_request() -> Message {
    Message::path("acme", "/products/other")
}

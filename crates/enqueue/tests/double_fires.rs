//! One click that calls twice: one message. A change after a message: another one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use everfresh_enqueue::sender::BUCKET;
use everfresh_enqueue::{Fired, IdempotencyKey, Message, Reason, Retry, SendError, Sender, Sent};
use everfresh_local::faults::{Fault, On};
use everfresh_testing::START_MS;
use futures::future::join_all;
use support::{PAGE, Producer, message_for, read, sent_ms};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

fn wish() -> Message {
    Message::path("acme", PAGE)
}

fn sent(fired: Result<Fired, SendError>) -> Sent {
    match fired.unwrap() {
        Fired::Sent(sent) => sent,
        Fired::Dropped => panic!("it was dropped"),
    }
}

async fn after(delay: Duration, sender: &Sender, message: &Message) -> Result<Fired, SendError> {
    sleep(delay).await;
    sender.send_once(message).await
}

#[tokio::test(start_paused = true)]
async fn fifty_changed_calls_in_a_bucket_are_one_message_sent_after_the_last_of_them() {
    for sender in [|sender: Sender| sender, |sender: Sender| sender.retrying(Retry::default())] {
        let producer = Producer::new().await;
        let sender = sender(producer.sender.clone());
        let began_ms = producer.world.now_ms();
        let tasks = (0..50).map(|n| {
            let sender = sender.clone();
            tokio::spawn(async move { after(2 * n * MS, &sender, &wish()).await })
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
async fn a_change_right_after_a_send_is_still_sent() {
    let producer = Producer::new().await;
    let world = &producer.world;
    let sandbox = world.sandbox().await;
    let first = sent(producer.sender.send_once(&wish()).await);
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
    world.origin.content("two");
    let second = sent(producer.sender.send_once(&wish()).await);
    assert_ne!(first, second);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn a_call_joins_until_the_end_of_its_bucket_and_never_a_message_that_is_on_its_way() {
    let producer = Producer::new().await;
    // On its way for longer than a bucket.
    producer.inject(On::next("SendMessage"), Fault::Delay(Duration::from_millis(250)));
    let (sender, message) = (&producer.sender, wish());
    let calls = [0, 99, 100, 199, 250].map(|at| after(at * MS, sender, &message));
    let [a, b, c, d, e] = <[_; 5]>::try_from(join_all(calls).await).unwrap().map(sent);
    assert_eq!((&a, &c), (&b, &d));
    assert!(a != c && c != e && a != e);
    assert_eq!(producer.main_queue().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_error_reaches_every_call_that_joined_and_the_next_call_is_sent_anew() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry { attempts: 2, ..Retry::default() });
    producer.inject(On::every("SendMessage").times(2), Fault::FailBefore);
    let (message, calls) = (wish(), (0..10).map(|n| n * 5 * MS));
    let failed = join_all(calls.map(|delay| after(delay, &sender, &message))).await;
    assert!(failed.iter().all(Result::is_err));
    assert_eq!(producer.calls("SendMessage"), 2, "one send, and its repetition");
    sent(sender.send_once(&message).await);
    assert_eq!(producer.main_queue().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_same_wish_does_not_join() {
    let producer = Producer::new().await;
    let key = |text| Some(IdempotencyKey::parse(text).unwrap());
    let messages = [
        wish(),
        Message::path("globex", PAGE),
        Message::path("acme", "/products/43"),
        Message::tag("acme", PAGE),
        message_for(Reason::Expired, PAGE),
        // Under another's name, which may have been granted long ago, it would vanish.
        Message { idempotency_key: key("k1"), ..wish() },
        Message { idempotency_key: key("k2"), ..wish() },
    ];
    let twice = messages.iter().chain(&messages);
    let results = join_all(twice.map(|message| producer.sender.send_once(message))).await;
    assert_eq!(results.iter().filter(|result| matches!(result, Ok(Fired::Dropped))).count(), 1, "of reason expired");
    let received: Vec<_> = producer.main_queue().await.iter().map(read).collect();
    assert_eq!(received.len(), messages.len());
    assert!(messages.iter().all(|message| received.contains(message)));
}

#[tokio::test(start_paused = true)]
async fn expired_and_prewarm_go_at_once_and_doubles_of_their_bucket_are_dropped() {
    for reason in [Reason::Expired, Reason::Prewarm] {
        let producer = Producer::new().await;
        let (message, began) = (message_for(reason, PAGE), Instant::now());
        sent(producer.sender.send_once(&message).await);
        assert!(began.elapsed() < BUCKET, "nobody waits");
        for _ in 0..5 {
            assert_eq!(producer.sender.send_once(&message).await.unwrap(), Fired::Dropped);
        }
        sleep(BUCKET).await;
        sent(producer.sender.clone().send_once(&message).await);
        assert_eq!(producer.calls("SendMessage"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_call_that_fails_or_is_given_up_has_no_double_dropped_after_it() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry { attempts: 1, ..Retry::default() });
    let message = message_for(Reason::Expired, PAGE);
    producer.inject(On::next("SendMessage"), Fault::FailBefore);
    assert!(sender.send_once(&message).await.is_err());
    producer.inject(On::next("SendMessage"), Fault::Hang);
    assert!(timeout(20 * MS, sender.send_once(&message)).await.is_err());
    sent(sender.send_once(&message).await);
    assert_eq!(sender.send_once(&message).await.unwrap(), Fired::Dropped);
    assert_eq!(producer.main_queue().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_joined_are_sent_although_the_first_of_them_is_given_up() {
    let producer = Producer::new().await;
    let message = wish();
    let given_up = timeout(20 * MS, producer.sender.send_once(&message));
    let (given_up, kept) = tokio::join!(given_up, after(10 * MS, &producer.sender, &message));
    assert!(given_up.is_err());
    sent(kept);
    assert_eq!(producer.main_queue().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn beyond_what_is_remembered_messages_are_sent_as_they_come() {
    let producer = Producer::new().await;
    let sender = &producer.sender;
    let many: Vec<_> = (0..1_000).map(|n| Message::path("acme", format!("/products/{n}"))).collect();
    let calls = join_all(many.iter().map(|message| sender.send_once(message)));
    let beyond = async {
        let began = Instant::now();
        let (one, two) = (sent(sender.send_once(&other_wish()).await), sent(sender.send_once(&other_wish()).await));
        assert_ne!(one, two);
        assert!(began.elapsed() < BUCKET, "they did not wait: nobody could have joined them");
    };
    let (calls, ()) = tokio::join!(calls, beyond);
    assert!(calls.iter().all(Result::is_ok));
    sleep(2 * BUCKET).await;
    let began = Instant::now();
    sent(sender.send_once(&other_wish()).await);
    assert!(began.elapsed() > MS, "it waits again: the old ones are forgotten");
    assert_eq!(producer.world.waiting().await, 1_003);
}

fn other_wish() -> Message {
    Message::path("acme", "/products/other")
}

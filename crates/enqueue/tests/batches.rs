//! Many messages in few calls: within the limits of a call, each with its own result.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use everfresh_enqueue::{IdempotencyKey, Message, MessageError, Reason, Retry, SendError};
use everfresh_local::faults::{Fault, On};
use everfresh_local::in_process::Answer;
use everfresh_testing::World;
use futures::FutureExt;
use http::{Request, Response};
use serde_json::{Value, json};
use support::{Producer, key_of, message_for, read};

/// A request as the queue sees it: the body of each entry, and the bytes that count.
type Seen = Arc<Mutex<Vec<(Vec<String>, usize)>>>;

/// Answers as the queue does, but refuses some entries: those whose body contains `marker`, `times` times, with this code.
fn refusing(world: &World, marker: &'static str, times: usize, code: &'static str, fault: bool) -> (Answer, Seen) {
    let (engines, seen) = (world.engines.clone(), Seen::default());
    let record = seen.clone();
    let answer = move |request: Request<Bytes>| {
        let (engines, record) = (engines.clone(), record.clone());
        async move {
            let (parts, body) = request.into_parts();
            if parts.headers["x-amz-target"] != "AmazonSQS.SendMessageBatch" {
                return engines.call(Request::from_parts(parts, body)).await;
            }
            let mut asked: Value = serde_json::from_slice(&body).unwrap();
            let entries = asked["Entries"].as_array().unwrap().clone();
            let bodies = entries.iter().map(|entry| entry["MessageBody"].as_str().unwrap().to_owned()).collect();
            let bytes = entries.iter().map(counted_bytes).sum();
            let refuses = {
                let mut record = record.lock().unwrap();
                record.push((bodies, bytes));
                record.len() <= times
            };
            let refused = |entry: &Value| refuses && entry["MessageBody"].as_str().unwrap().contains(marker);
            let (refused, taken): (Vec<Value>, Vec<Value>) = entries.into_iter().partition(refused);
            let mut answer = json!({"Successful": []});
            let mut response = Response::new(Bytes::new());
            if !taken.is_empty() {
                asked["Entries"] = Value::from(taken);
                response = engines.call(Request::from_parts(parts, Bytes::from(asked.to_string()))).await;
                answer = serde_json::from_slice(response.body()).unwrap();
            }
            let refused = refused.iter().map(|entry| json!({"Id": entry["Id"], "Code": code, "SenderFault": fault}));
            answer["Failed"] = Value::from(refused.collect::<Vec<_>>());
            *response.body_mut() = Bytes::from(answer.to_string());
            response.headers_mut().remove("content-length");
            response
        }
        .boxed()
    };
    (Arc::new(answer), seen)
}

fn counted_bytes(entry: &Value) -> usize {
    let attributes = entry["MessageAttributes"].as_object().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().len();
    let bytes = attributes.map(|(name, value)| name.len() + text(&value["DataType"]) + text(&value["StringValue"]));
    text(&entry["MessageBody"]) + bytes.sum::<usize>()
}

fn keyed(n: usize, reason: Reason) -> Message {
    let key = IdempotencyKey::parse(&format!("k{n}")).unwrap();
    Message { idempotency_key: Some(key), ..message_for(reason, &format!("/products/{n}")) }
}

#[tokio::test(start_paused = true)]
async fn ten_go_in_a_call_each_queue_has_its_own_and_results_are_in_order() {
    let producer = Producer::new().await;
    let reason = |n| if n % 3 == 0 { Reason::Prewarm } else { Reason::Changed };
    let messages: Vec<_> = (0..37).map(|n| keyed(n, reason(n))).collect();
    let results = producer.sender.send_all(&messages).await;
    assert_eq!(producer.calls("SendMessageBatch"), 3 + 2, "24 to the one and 13 to the other queue");
    let (main, low) = (producer.main_queue().await, producer.low_priority_queue().await);
    assert_eq!((main.len(), low.len()), (24, 13));
    for (message, result) in messages.iter().zip(&results) {
        let sent = result.as_ref().unwrap();
        assert_eq!(Some(&sent.key), message.idempotency_key.as_ref());
        let queue = if message.reason == Reason::Prewarm { &low } else { &main };
        let received = queue.iter().find(|received| received.message_id() == Some(&sent.message_id)).unwrap();
        assert_eq!(&read(received), message);
    }
    assert!(producer.sender.send_all(&[]).await.is_empty());
    assert_eq!(producer.calls("SendMessageBatch"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_batch_stays_below_what_a_call_may_weigh() {
    let world = World::new().await;
    let (answer, seen) = refusing(&world, "nothing", 0, "", false);
    let producer = Producer::over(world, answer);
    // A path that JSON writes six times as long, and a name that counts too.
    let long = format!("/{}", "\u{1}".repeat(4095));
    let messages: Vec<_> = (0..20).map(|_| Message::path("acme", &long)).collect();
    let sender = producer.sender.clone().producer("x".repeat(5_000), "1");
    assert!(sender.send_all(&messages).await.iter().all(Result::is_ok));
    let calls: Vec<_> = seen.lock().unwrap().iter().map(|(bodies, bytes)| (bodies.len(), *bytes)).collect();
    assert_eq!(calls.iter().map(|(entries, _)| entries).collect::<Vec<_>>(), [&8, &8, &4]);
    let (full, each) = (calls[0].1, calls[0].1 / 8);
    assert!(full <= 256 * 1024 && full + each > 256 * 1024, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_only_what_failed_is_repeated() {
    let world = World::new().await;
    let (answer, seen) = refusing(&world, "/products/1", 2, "InternalError", false);
    let producer = Producer::over(world, answer);
    let sender = producer.sender.clone().retrying(Retry::default());
    let messages: Vec<_> = (8..13).map(|n| message_for(Reason::Changed, &format!("/products/{n}"))).collect();
    let results = sender.send_all(&messages).await;
    let sizes: Vec<_> = seen.lock().unwrap().iter().map(|(bodies, _)| bodies.len()).collect();
    assert_eq!(sizes, [5, 3, 3]);
    let calls = seen.lock().unwrap().clone();
    assert_eq!(calls[0].0[2..], calls[1].0, "the same bytes, the same keys");
    let received = producer.main_queue().await;
    let there: HashSet<_> = received.iter().map(key_of).collect();
    let told: HashSet<_> = results.iter().map(|result| result.as_ref().unwrap().key.to_string()).collect();
    assert_eq!((received.len(), &there), (5, &told));
    for (message, result) in messages.iter().zip(results) {
        let sent = result.unwrap();
        let received = received.iter().find(|received| received.message_id() == Some(&sent.message_id)).unwrap();
        assert_eq!(read(received).target, message.target);
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_refused_for_good_is_told_and_takes_no_other_with_it() {
    for (code, fault, calls) in [("InvalidMessageContents", true, 1), ("RequestThrottled", true, 4), ("Odd", false, 4)]
    {
        let world = World::new().await;
        let (answer, seen) = refusing(&world, "/products/2", usize::MAX, code, fault);
        let producer = Producer::over(world, answer);
        let mut messages: Vec<_> = (0..4).map(|n| keyed(n, Reason::Changed)).collect();
        messages[1].tenant.clear();
        let results = producer.sender.clone().retrying(Retry::default()).send_all(&messages).await;
        assert!(results[0].is_ok() && results[3].is_ok(), "{code}");
        assert!(matches!(results[1], Err(SendError::Message(MessageError::Empty { field: "tenant" }))), "{code}");
        assert!(results[2].as_ref().unwrap_err().to_string().contains(code), "{code}");
        assert_eq!(seen.lock().unwrap().len(), calls, "{code}");
        assert_eq!(producer.main_queue().await.len(), 2, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_answer_is_lost_is_repeated_as_the_same_wishes() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry::default());
    producer.inject(On::next("SendMessageBatch"), Fault::LoseResponse);
    let messages: Vec<_> = (0..10).map(|n| message_for(Reason::Changed, &format!("/products/{n}"))).collect();
    let results = sender.send_all(&messages).await;
    let told: HashSet<_> = results.into_iter().map(|result| result.unwrap().key.to_string()).collect();
    let received = producer.main_queue().await;
    assert_eq!(received.len(), 20);
    assert_eq!(received.iter().map(key_of).collect::<HashSet<_>>(), told);
    assert_eq!(told.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_answer_fails_each_message_of_its_batch() {
    let producer = Producer::new().await;
    producer.inject(On::every("SendMessageBatch"), Fault::FailBefore);
    let messages: Vec<_> = (0..3).map(|n| keyed(n, Reason::Changed)).collect();
    let sender = producer.sender.clone().retrying(Retry { attempts: 2, ..Retry::default() });
    let results = sender.send_all(&messages).await;
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 3);
    assert_eq!(producer.calls("SendMessageBatch"), 2);
}

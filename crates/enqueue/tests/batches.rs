//! `send_all`: batches within the SQS limits, one result per message.
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

/// Per call: the body of each entry, and the size that SQS counts.
type SeenCalls = Arc<Mutex<Vec<(Vec<String>, usize)>>>;

/// Answers like SQS, but in the first `times` calls refuses, with this code, the entries whose body
/// contains `marker`.
fn refusing(world: &World, marker: &'static str, times: usize, code: &'static str, fault: bool) -> (Answer, SeenCalls) {
    let (engines, seen) = (world.engines.clone(), SeenCalls::default());
    let record = seen.clone();
    let answer = move |request: Request<Bytes>| {
        let (engines, record) = (engines.clone(), record.clone());
        async move {
            let (parts, body) = request.into_parts();
            if parts.headers["x-amz-target"] != "AmazonSQS.SendMessageBatch" {
                return engines.call(Request::from_parts(parts, body)).await;
            }
            let mut request: Value = serde_json::from_slice(&body).unwrap();
            let entries = request["Entries"].as_array().unwrap().clone();
            let bodies = entries.iter().map(|entry| entry["MessageBody"].as_str().unwrap().to_owned()).collect();
            let bytes = entries.iter().map(counted_bytes).sum();
            let refuses = {
                let mut record = record.lock().unwrap();
                record.push((bodies, bytes));
                record.len() <= times
            };
            let refused = |entry: &Value| refuses && entry["MessageBody"].as_str().unwrap().contains(marker);
            let (refused, accepted): (Vec<Value>, Vec<Value>) = entries.into_iter().partition(refused);
            let mut answer = json!({"Successful": []});
            let mut response = Response::new(Bytes::new());
            if !accepted.is_empty() {
                request["Entries"] = Value::from(accepted);
                response = engines.call(Request::from_parts(parts, Bytes::from(request.to_string()))).await;
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
async fn batches_hold_ten_messages_of_one_queue_and_keep_order() {
    let producer = Producer::new().await;
    let reason = |n| if n % 3 == 0 { Reason::Prewarm } else { Reason::Changed };
    let messages: Vec<_> = (0..37).map(|n| keyed(n, reason(n))).collect();
    let results = producer.sender.send_all(&messages).await;
    assert_eq!(
        producer.calls("SendMessageBatch"),
        3 + 2,
        "24 messages to the main queue, 13 to the low-priority queue"
    );
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
async fn batch_stays_below_sqs_size_limit() {
    let world = World::new().await;
    let (answer, seen) = refusing(&world, "nothing", 0, "", false);
    let producer = Producer::over(world, answer);
    // JSON escapes make the path six times as long, and attributes count too.
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
async fn only_failed_entries_of_a_batch_are_retried() {
    let world = World::new().await;
    let (answer, seen) = refusing(&world, "/products/1", 2, "InternalError", false);
    let producer = Producer::over(world, answer);
    let sender = producer.sender.clone().retrying(Retry::default());
    let messages: Vec<_> = (8..13).map(|n| message_for(Reason::Changed, &format!("/products/{n}"))).collect();
    let results = sender.send_all(&messages).await;
    let sizes: Vec<_> = seen.lock().unwrap().iter().map(|(bodies, _)| bodies.len()).collect();
    assert_eq!(sizes, [5, 3, 3]);
    let calls = seen.lock().unwrap().clone();
    assert_eq!(calls[0].0[2..], calls[1].0, "retries send the same bytes and keys");
    let received = producer.main_queue().await;
    let received_keys: HashSet<_> = received.iter().map(key_of).collect();
    let sent_keys: HashSet<_> = results.iter().map(|result| result.as_ref().unwrap().key.to_string()).collect();
    assert_eq!((received.len(), &received_keys), (5, &sent_keys));
    for (message, result) in messages.iter().zip(results) {
        let sent = result.unwrap();
        let received = received.iter().find(|received| received.message_id() == Some(&sent.message_id)).unwrap();
        assert_eq!(read(received).target, message.target);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_entry_is_reported_and_others_are_sent() {
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
async fn batch_with_lost_response_is_retried_under_the_same_keys() {
    let producer = Producer::new().await;
    let sender = producer.sender.clone().retrying(Retry::default());
    producer.inject(On::next("SendMessageBatch"), Fault::LoseResponse);
    let messages: Vec<_> = (0..10).map(|n| message_for(Reason::Changed, &format!("/products/{n}"))).collect();
    let results = sender.send_all(&messages).await;
    let sent_keys: HashSet<_> = results.into_iter().map(|result| result.unwrap().key.to_string()).collect();
    let received = producer.main_queue().await;
    assert_eq!(received.len(), 20);
    assert_eq!(received.iter().map(key_of).collect::<HashSet<_>>(), sent_keys);
    assert_eq!(sent_keys.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn failed_batch_call_fails_each_message() {
    let producer = Producer::new().await;
    producer.inject(On::every("SendMessageBatch"), Fault::FailBefore);
    let messages: Vec<_> = (0..3).map(|n| keyed(n, Reason::Changed)).collect();
    let sender = producer.sender.clone().retrying(Retry { max_attempts: 2, ..Retry::default() });
    let results = sender.send_all(&messages).await;
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 3);
    assert_eq!(producer.calls("SendMessageBatch"), 2);
}

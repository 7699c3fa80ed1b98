//! The event source treats a handler as Lambda's event source mapping does.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lambda_events::event::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent};
use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_local::event_source::EventSource;
use everfresh_local::stack::arn;
use support::embedded;
use tokio::sync::watch;

/// Number of deliveries per body, and the sizes of the batches.
type Seen = (BTreeMap<String, usize>, Vec<usize>);

struct World {
    clients: Clients,
    queue: String,
    dead: String,
}

impl World {
    /// A queue with a visibility timeout of 10 s and three receives before the dead-letter queue.
    async fn new() -> Self {
        let clients = embedded().await.clients(Clock::system(), ClientTimeouts::WORKER);
        let dead = clients.sqs.create_queue().queue_name("dead").send().await.unwrap().queue_url.unwrap();
        let policy = format!(r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":3}}"#, arn("dead"));
        let queue = clients.sqs.create_queue().queue_name("queue");
        let queue = queue.attributes("VisibilityTimeout".into(), "10").attributes("RedrivePolicy".into(), policy);
        let queue = queue.send().await.unwrap().queue_url.unwrap();
        Self { clients, queue, dead }
    }

    async fn send(&self, bodies: &[&str]) {
        for body in bodies {
            self.clients.sqs.send_message().queue_url(&self.queue).message_body(*body).send().await.unwrap();
        }
    }

    /// Runs the loop with `handle` for some (paused) time.
    async fn run(
        &self,
        seconds: u64,
        window: Duration,
        handle: impl Fn(&SqsEvent) -> SqsBatchResponse + Send + Sync + 'static,
    ) -> Seen {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let source = EventSource {
            sqs: self.clients.sqs.clone(),
            queue_url: self.queue.clone(),
            queue_arn: arn("queue"),
            batch_size: 10,
            window,
            timeout: Duration::from_secs(5),
            concurrency: 1,
        };
        let (stop, stopped) = watch::channel(false);
        let handle = Arc::new(handle);
        let record = seen.clone();
        let running = tokio::spawn(async move {
            let handler = move |event: SqsEvent, _| {
                let (record, handle) = (record.clone(), handle.clone());
                async move {
                    {
                        let mut record = record.lock().unwrap();
                        record.1.push(event.records.len());
                        for message in &event.records {
                            *record.0.entry(message.body.clone().unwrap()).or_default() += 1;
                        }
                    }
                    if event.records.iter().any(|message| message.body.as_deref() == Some("slow")) {
                        tokio::time::sleep(Duration::from_secs(60)).await;
                    }
                    Ok::<_, std::convert::Infallible>(handle(&event))
                }
            };
            source.run(handler, stopped).await;
        });
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        stop.send(true).unwrap();
        running.await.unwrap();
        Arc::into_inner(seen).unwrap().into_inner().unwrap()
    }

    async fn dead_letters(&self) -> Vec<String> {
        let received = self.clients.sqs.receive_message().queue_url(&self.dead).max_number_of_messages(10);
        let received = received.send().await.unwrap().messages.unwrap_or_default();
        let mut bodies: Vec<String> = received.into_iter().filter_map(|message| message.body).collect();
        bodies.sort();
        bodies
    }
}

fn failing(ids: impl IntoIterator<Item = String>) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    for id in ids {
        let mut failure = BatchItemFailure::default();
        failure.item_identifier = id;
        response.batch_item_failures.push(failure);
    }
    response
}

#[tokio::test(start_paused = true)]
async fn succeeded_is_deleted_and_failed_ends_in_dead_letters() {
    let world = World::new().await;
    world.send(&["good", "bad"]).await;
    let (seen, _) = world
        .run(60, Duration::ZERO, |event| {
            let bad = event.records.iter().filter(|message| message.body.as_deref() == Some("bad"));
            failing(bad.map(|message| message.message_id.clone().unwrap()))
        })
        .await;
    assert_eq!(seen["good"], 1);
    assert_eq!(seen["bad"], 3);
    assert_eq!(world.dead_letters().await, ["bad"]);
}

#[tokio::test(start_paused = true)]
async fn empty_or_unknown_failure_id_fails_the_whole_batch() {
    for id in ["", "not-an-id"] {
        let world = World::new().await;
        world.send(&["a", "b"]).await;
        let (seen, _) = world.run(60, Duration::ZERO, move |_| failing([id.to_owned()])).await;
        assert_eq!((seen["a"], seen["b"]), (3, 3), "{id:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn panic_and_timeout_fail_the_batch_only() {
    let world = World::new().await;
    world.send(&["panic"]).await;
    let (seen, _) = world
        .run(60, Duration::ZERO, |event| {
            assert_ne!(event.records[0].body.as_deref(), Some("panic"), "a bug in the handler");
            SqsBatchResponse::default()
        })
        .await;
    assert_eq!(seen["panic"], 3);
    world.send(&["slow"]).await;
    let (seen, _) = world.run(90, Duration::ZERO, |_| SqsBatchResponse::default()).await;
    assert_eq!(seen["slow"], 3, "aborted at the timeout each time");
    assert_eq!(world.dead_letters().await, ["panic", "slow"]);
}

#[tokio::test(start_paused = true)]
async fn batching_window_fills_batches_up_to_their_size() {
    let world = World::new().await;
    let bodies: Vec<String> = (0..25).map(|index| index.to_string()).collect();
    world.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (seen, sizes) = world.run(30, Duration::from_secs(2), |_| SqsBatchResponse::default()).await;
    assert_eq!(sizes, [10, 10, 5]);
    assert!(seen.values().all(|times| *times == 1) && seen.len() == 25);

    let world = World::new().await;
    world.send(&["first"]).await;
    let late = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.send(&["second"]).await;
    };
    let (_, (_, sizes)) = tokio::join!(late, world.run(30, Duration::from_secs(3), |_| SqsBatchResponse::default()));
    assert_eq!(sizes, [2], "the window waits for the second message");
}

#[tokio::test(start_paused = true)]
async fn records_have_the_fields_of_a_lambda_event() {
    let world = World::new().await;
    world.send(&["hello"]).await;
    world
        .run(5, Duration::ZERO, |event| {
            let record = &event.records[0];
            assert_eq!(record.event_source.as_deref(), Some("aws:sqs"));
            assert_eq!(record.event_source_arn.as_deref(), Some("arn:aws:sqs:us-east-1:000000000000:queue"));
            assert_eq!(record.attributes["ApproximateReceiveCount"], "1");
            assert!(record.attributes["SentTimestamp"].parse::<u64>().is_ok());
            assert!(record.receipt_handle.is_some() && record.md5_of_body.is_some());
            SqsBatchResponse::default()
        })
        .await;
    let left = world.clients.sqs.receive_message().queue_url(&world.queue).send().await.unwrap();
    assert!(left.messages().is_empty(), "handled messages are deleted");
}

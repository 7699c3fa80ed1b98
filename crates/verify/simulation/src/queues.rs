//! SQS by seed, with no more than its guarantees: at-least-once delivery in any order, sometimes
//! twice concurrently.
//!
//! The embedded engine has random ids and its own order of delivery; here the seed decides both, so
//! that a run can be replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lambda_events::event::sqs::{SqsMessage, SqsMessageAttribute};
use bytes::Bytes;
use everfresh_core::clock::Clock;
use everfresh_core::stack::Stack;
use everfresh_enqueue::attributes;
use everfresh_local::stack::arn;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

/// The visibility timeout.
pub const VISIBILITY_MS: u64 = 400_000;

/// The `maxReceiveCount` of the redrive policy.
const MAX_RECEIVES: u32 = 100;

#[derive(Clone, Debug)]
pub struct Message {
    /// Determines the message id.
    pub number: u64,
    pub body: String,
    /// Message attributes.
    pub attributes: BTreeMap<String, String>,
    /// SentTimestamp.
    pub sent_ms: u64,
    /// ApproximateReceiveCount.
    pub receives: u32,
    /// Time of this delivery.
    pub received_ms: u64,
    /// Number of invocations that handle it now.
    pub in_flight: u32,
    queue: String,
    visible_ms: u64,
    deleted: bool,
}

impl Message {
    pub fn id(&self) -> String {
        id(self.number)
    }
}

fn id(number: u64) -> String {
    format!("m-{number:06}")
}

#[derive(Clone, Debug)]
pub struct Queues {
    state: Arc<Mutex<BTreeMap<u64, Message>>>,
    clock: Clock,
    duplicates: u8,
    /// Names of table, bucket and queues.
    pub stack: Stack,
}

impl Queues {
    /// Empty queues that deliver `duplicates` of 256 messages twice.
    pub fn new(clock: Clock, duplicates: u8) -> Self {
        let url = |name: &str| format!("http://queues.invalid/000000000000/{name}");
        let stack = Stack {
            table: "everfresh".to_owned(),
            bucket: "everfresh".to_owned(),
            queue: url("everfresh"),
            low_priority_queue: url("everfresh-low-priority"),
            dead_letter_queue: url("everfresh-dead-letters"),
        };
        Self { state: Arc::default(), clock, duplicates, stack }
    }

    /// Serves the SQS operations that our code uses. `sent` is called with every accepted message.
    pub fn call(&self, request: &Request<Bytes>, mut sent: impl FnMut(&Message)) -> Response<Bytes> {
        let target = request.headers().get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        match target.rsplit('.').next() {
            Some("SendMessage") => {
                let message = self.accept(&body, &body["QueueUrl"]);
                sent(&message);
                respond(json!({"MessageId": message.id(), "MD5OfMessageBody": ""}))
            }
            Some("SendMessageBatch") => {
                let entries = body["Entries"].as_array().cloned().unwrap_or_default();
                let mut accepted = Vec::new();
                for entry in &entries {
                    let message = self.accept(entry, &body["QueueUrl"]);
                    sent(&message);
                    accepted.push(json!({"Id": entry["Id"], "MessageId": message.id(), "MD5OfMessageBody": ""}));
                }
                respond(json!({"Successful": accepted, "Failed": []}))
            }
            Some("ChangeMessageVisibilityBatch") => {
                let entries = body["Entries"].as_array().cloned().unwrap_or_default();
                for entry in &entries {
                    let seconds = entry["VisibilityTimeout"].as_u64().unwrap_or_default();
                    self.hide(entry["ReceiptHandle"].as_str().unwrap_or_default(), seconds);
                }
                let done: Vec<Value> = entries.iter().map(|entry| json!({"Id": entry["Id"]})).collect();
                respond(json!({"Successful": done, "Failed": []}))
            }
            other => {
                let mut response = respond(json!({"__type": "InvalidAction", "message": format!("{other:?}")}));
                *response.status_mut() = StatusCode::BAD_REQUEST;
                response
            }
        }
    }

    fn accept(&self, body: &Value, queue: &Value) -> Message {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let attributes = body["MessageAttributes"].as_object().cloned().unwrap_or_default();
        let mut state = self.state();
        let number = state.len() as u64;
        let now_ms = self.clock.now_ms();
        let message = Message {
            number,
            body: text(&body["MessageBody"]),
            attributes: attributes.iter().map(|(name, value)| (name.clone(), text(&value["StringValue"]))).collect(),
            sent_ms: now_ms,
            receives: 0,
            received_ms: 0,
            in_flight: 0,
            queue: text(queue),
            visible_ms: now_ms,
            deleted: false,
        };
        state.insert(number, message.clone());
        message
    }

    fn hide(&self, receipt: &str, seconds: u64) {
        let now_ms = self.clock.now_ms();
        // Only the last receipt handle is valid, as on SQS.
        if let Some(message) = self.state().values_mut().find(|message| self::receipt(message) == receipt) {
            message.visible_ms = now_ms + seconds * 1000;
        }
    }

    /// Receives up to `most` random visible messages. Some stay visible, as on SQS.
    pub fn receive(&self, queue: &str, most: usize, rng: &mut fastrand::Rng) -> Vec<Message> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state();
        let visible =
            |message: &&mut Message| message.queue == queue && !message.deleted && message.visible_ms <= now_ms;
        let mut numbers: Vec<u64> = state.values_mut().filter(visible).map(|message| message.number).collect();
        rng.shuffle(&mut numbers);
        numbers.truncate(most);
        let mut received = Vec::new();
        for number in numbers {
            let Some(message) = state.get_mut(&number) else { continue };
            message.receives += 1;
            if message.receives > MAX_RECEIVES {
                message.queue = self.stack.dead_letter_queue.clone();
                continue;
            }
            let twice = rng.u8(..) < self.duplicates;
            message.visible_ms = if twice { now_ms } else { now_ms + VISIBILITY_MS };
            message.received_ms = now_ms;
            // Sometimes twice in one batch.
            let copies = if twice && rng.bool() { 2 } else { 1 };
            message.in_flight += 1;
            received.extend(std::iter::repeat_n(message.clone(), copies));
        }
        received
    }

    /// The invocation with these messages is over.
    pub fn release(&self, messages: &[Message]) {
        let numbers: BTreeSet<u64> = messages.iter().map(|message| message.number).collect();
        let mut state = self.state();
        for number in numbers {
            if let Some(message) = state.get_mut(&number) {
                message.in_flight -= 1;
            }
        }
    }

    /// The number of invocations that handle matching messages now.
    pub fn in_flight(&self, matches: impl Fn(&Message) -> bool) -> u32 {
        self.state().values().filter(|message| matches(message)).map(|message| message.in_flight).sum()
    }

    /// Makes these messages visible again.
    pub fn make_visible(&self, messages: &[Message]) {
        let now_ms = self.clock.now_ms();
        let mut state = self.state();
        for message in messages {
            if let Some(message) = state.get_mut(&message.number) {
                message.visible_ms = now_ms;
            }
        }
    }

    pub fn delete(&self, number: u64) {
        if let Some(message) = self.state().get_mut(&number) {
            message.deleted = true;
        }
    }

    /// Messages of the main queues, visible or in flight.
    pub fn waiting(&self) -> Vec<Message> {
        let dead = &self.stack.dead_letter_queue;
        let state = self.state();
        state.values().filter(|message| !message.deleted && message.queue != *dead).cloned().collect()
    }

    /// Messages in the dead-letter queue.
    pub fn dead_letters(&self) -> Vec<Message> {
        let dead = &self.stack.dead_letter_queue;
        self.state().values().filter(|message| !message.deleted && message.queue == *dead).cloned().collect()
    }

    /// Messages ever in the dead-letter queue, redriven ones included.
    pub fn all_dead_letters(&self) -> Vec<Message> {
        let dead = &self.stack.dead_letter_queue;
        self.state().values().filter(|message| message.queue == *dead).cloned().collect()
    }

    /// All messages ever sent.
    pub fn all(&self) -> Vec<Message> {
        self.state().values().cloned().collect()
    }

    /// Sends a dead letter again, as `everfresh dlq redrive` does: new id and sent time, same body
    /// and attributes, except that the reason is left out and `key` is attached. The dead letter
    /// stays.
    pub fn send_again(&self, number: u64, key: String) -> Option<Message> {
        let mut state = self.state();
        let mut redriven = state.get(&number)?.clone();
        redriven.attributes.remove(attributes::REASON);
        redriven.attributes.insert(attributes::KEY.to_owned(), key);
        redriven.deleted = false;
        redriven.number = state.len() as u64;
        redriven.queue.clone_from(&self.stack.queue);
        redriven.sent_ms = self.clock.now_ms();
        redriven.visible_ms = redriven.sent_ms;
        redriven.receives = 0;
        redriven.in_flight = 0;
        state.insert(redriven.number, redriven.clone());
        Some(redriven)
    }

    /// The messages as records of a Lambda event.
    pub fn records(&self, messages: &[Message]) -> Vec<SqsMessage> {
        messages.iter().map(|message| self.record(message)).collect()
    }

    fn record(&self, message: &Message) -> SqsMessage {
        let mut record = SqsMessage::default();
        record.message_id = Some(message.id());
        record.receipt_handle = Some(receipt(message));
        record.body = Some(message.body.clone());
        record.event_source_arn = Some(arn(&message.queue));
        record.attributes.insert("SentTimestamp".to_owned(), message.sent_ms.to_string());
        record.attributes.insert("ApproximateReceiveCount".to_owned(), message.receives.to_string());
        for (name, value) in &message.attributes {
            let mut attribute = SqsMessageAttribute::default();
            attribute.string_value = Some(value.clone());
            attribute.data_type = Some("String".to_owned());
            record.message_attributes.insert(name.clone(), attribute);
        }
        record
    }

    fn state(&self) -> MutexGuard<'_, BTreeMap<u64, Message>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn receipt(message: &Message) -> String {
    format!("{}/{}", message.id(), message.receives)
}

fn respond(body: Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/x-amz-json-1.0"));
    response
}

//! The queues of a simulation: what SQS promises and not more, by seed. At least once, in any order, at times twice at once.
//!
//! The embedded engine draws ids by chance and delivers in an order of its own; here the seed decides both, so that a run can be done
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lambda_events::event::sqs::{SqsMessage, SqsMessageAttribute};
use bytes::Bytes;
use everfresh_core::clock::Clock;
use everfresh_core::stack::Stack;
use everfresh_local::stack::arn;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

/// How long a message is hidden after it was received.
pub const VISIBILITY_MS: u64 = 400_000;

/// SQS itself moves a message to the dead letters after so many receives.
const MAX_RECEIVES: u32 = 100;

/// One message, as the queue has it.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its number, which also makes its id.
    pub number: u64,
    /// What was sent.
    pub body: String,
    /// The attributes beside it.
    pub attributes: BTreeMap<String, String>,
    /// When, by the queue's clock.
    pub sent_ms: u64,
    /// How often it was received.
    pub receives: u32,
    /// When this delivery of it was.
    pub received_ms: u64,
    /// How many invocations have it in hand.
    pub hands: u32,
    queue: String,
    visible_ms: u64,
    deleted: bool,
}

impl Message {
    /// Its id.
    pub fn id(&self) -> String {
        id(self.number)
    }
}

fn id(number: u64) -> String {
    format!("m-{number:06}")
}

/// All queues.
#[derive(Clone, Debug)]
pub struct Queues {
    state: Arc<Mutex<BTreeMap<u64, Message>>>,
    clock: Clock,
    forgetful: u8,
    /// Their names.
    pub stack: Stack,
}

impl Queues {
    /// Empty queues on `clock` that hand out so many of 256 messages twice.
    pub fn new(clock: Clock, forgetful: u8) -> Self {
        let url = |name: &str| format!("http://queues.invalid/000000000000/{name}");
        let stack = Stack {
            table: "everfresh".to_owned(),
            bucket: "everfresh".to_owned(),
            queue: url("everfresh"),
            low_priority_queue: url("everfresh-low-priority"),
            dead_letter_queue: url("everfresh-dead-letters"),
        };
        Self { state: Arc::default(), clock, forgetful, stack }
    }

    /// Answers what our code asks of SQS. `sent` is told of every message that was taken.
    pub fn call(&self, request: &Request<Bytes>, mut sent: impl FnMut(&Message)) -> Response<Bytes> {
        let target = request.headers().get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        match target.rsplit('.').next() {
            Some("SendMessage") => {
                let message = self.take(&body, &body["QueueUrl"]);
                sent(&message);
                answer(json!({"MessageId": message.id(), "MD5OfMessageBody": ""}))
            }
            Some("SendMessageBatch") => {
                let entries = body["Entries"].as_array().cloned().unwrap_or_default();
                let mut taken = Vec::new();
                for entry in &entries {
                    let message = self.take(entry, &body["QueueUrl"]);
                    sent(&message);
                    taken.push(json!({"Id": entry["Id"], "MessageId": message.id(), "MD5OfMessageBody": ""}));
                }
                answer(json!({"Successful": taken, "Failed": []}))
            }
            Some("ChangeMessageVisibilityBatch") => {
                let entries = body["Entries"].as_array().cloned().unwrap_or_default();
                for entry in &entries {
                    let seconds = entry["VisibilityTimeout"].as_u64().unwrap_or_default();
                    self.hide(entry["ReceiptHandle"].as_str().unwrap_or_default(), seconds);
                }
                let done: Vec<Value> = entries.iter().map(|entry| json!({"Id": entry["Id"]})).collect();
                answer(json!({"Successful": done, "Failed": []}))
            }
            other => {
                let mut response = answer(json!({"__type": "InvalidAction", "message": format!("{other:?}")}));
                *response.status_mut() = StatusCode::BAD_REQUEST;
                response
            }
        }
    }

    fn take(&self, body: &Value, queue: &Value) -> Message {
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
            hands: 0,
            queue: text(queue),
            visible_ms: now_ms,
            deleted: false,
        };
        state.insert(number, message.clone());
        message
    }

    fn hide(&self, receipt: &str, seconds: u64) {
        let now_ms = self.clock.now_ms();
        // Only the last receipt counts, as on SQS.
        if let Some(message) = self.state().values_mut().find(|message| self::receipt(message) == receipt) {
            message.visible_ms = now_ms + seconds * 1000;
        }
    }

    /// Takes up to `most` visible messages, whichever the seed picks. Now and then the queue forgets that it handed one out.
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
            let twice = rng.u8(..) < self.forgetful;
            message.visible_ms = if twice { now_ms } else { now_ms + VISIBILITY_MS };
            message.received_ms = now_ms;
            // The same message twice in one batch.
            let copies = if twice && rng.bool() { 2 } else { 1 };
            message.hands += 1;
            received.extend(std::iter::repeat_n(message.clone(), copies));
        }
        received
    }

    /// An invocation with these in hand is over, one way or another.
    pub fn let_go(&self, messages: &[Message]) {
        let numbers: BTreeSet<u64> = messages.iter().map(|message| message.number).collect();
        let mut state = self.state();
        for number in numbers {
            if let Some(message) = state.get_mut(&number) {
                message.hands -= 1;
            }
        }
    }

    /// How many invocations have such messages in hand.
    pub fn in_hands(&self, such: impl Fn(&Message) -> bool) -> u32 {
        self.state().values().filter(|message| such(message)).map(|message| message.hands).sum()
    }

    /// Forgets that these were handed out.
    pub fn hand_out_again(&self, messages: &[Message]) {
        let now_ms = self.clock.now_ms();
        let mut state = self.state();
        for message in messages {
            if let Some(message) = state.get_mut(&message.number) {
                message.visible_ms = now_ms;
            }
        }
    }

    /// The message was handled.
    pub fn delete(&self, number: u64) {
        if let Some(message) = self.state().get_mut(&number) {
            message.deleted = true;
        }
    }

    /// Messages that somebody still has to handle.
    pub fn waiting(&self) -> Vec<Message> {
        let dead = &self.stack.dead_letter_queue;
        let state = self.state();
        state.values().filter(|message| !message.deleted && message.queue != *dead).cloned().collect()
    }

    /// What was rejected.
    pub fn dead_letters(&self) -> Vec<Message> {
        let dead = &self.stack.dead_letter_queue;
        self.state().values().filter(|message| !message.deleted && message.queue == *dead).cloned().collect()
    }

    /// What was ever rejected, sent back since or not.
    pub fn letters_ever(&self) -> Vec<Message> {
        let dead = &self.stack.dead_letter_queue;
        self.state().values().filter(|message| message.queue == *dead).cloned().collect()
    }

    /// Everything that was ever sent.
    pub fn all(&self) -> Vec<Message> {
        self.state().values().cloned().collect()
    }

    /// An operator sends a dead letter back: another id, another time of sending, the same body and attributes.
    pub fn redrive(&self, number: u64) -> Option<Message> {
        let mut state = self.state();
        let mut again = state.get(&number)?.clone();
        state.get_mut(&number)?.deleted = true;
        again.number = state.len() as u64;
        again.queue.clone_from(&self.stack.queue);
        again.sent_ms = self.clock.now_ms();
        again.visible_ms = again.sent_ms;
        again.receives = 0;
        again.hands = 0;
        state.insert(again.number, again.clone());
        Some(again)
    }

    /// The messages as Lambda hands them over.
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

fn answer(body: Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/x-amz-json-1.0"));
    response
}

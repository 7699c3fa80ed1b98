//! SQS: sends, receives, visibility changes, deletes and dead letters. SQS guarantees no order, so
//! only sets are compared. No step waits: a message is hidden for longer than the suite runs, and
//! made visible by a change to zero.

use std::collections::BTreeMap;

use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, Message, MessageAttributeValue, MessageSystemAttributeName,
    QueueAttributeName,
};
use everfresh_core::clients::Clients;
use fastrand::Rng;

use super::{Facts, outcome};
use crate::support::unique;

const MAX_RECEIVES: u32 = 3;

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    SendMessage {
        body: String,
        attributes: Vec<(&'static str, &'static str)>,
        delayed: bool,
    },
    /// Repeated until the queue is empty: a message that is not hidden is received again until it
    /// is a dead letter.
    ReceiveMessage {
        hidden: bool,
    },
    /// Index of a held message, and whether to hide it or make it visible; and perhaps an invalid
    /// receipt handle.
    ChangeMessageVisibilityBatch {
        changes: Vec<(usize, bool)>,
        invalid_receipt: bool,
    },
    DeleteMessage {
        held: usize,
    },
    ReceiveDeadLetters,
}

pub(crate) struct Generator {
    rng: Rng,
    sent: usize,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), sent: 0 }
    }

    pub(crate) fn operation(&mut self) -> Operation {
        let rng = &mut self.rng;
        match rng.u32(0..12) {
            0..4 => {
                self.sent += 1;
                let all = [("producer", "blog"), ("trace", "a-b"), ("words", "ü \"quoted\" <b>")];
                Operation::SendMessage {
                    body: format!("{} ü & <{}>", self.sent, "x".repeat(rng.usize(0..50))),
                    attributes: all.into_iter().filter(|_| rng.bool()).collect(),
                    delayed: rng.u32(0..10) == 0,
                }
            }
            4..7 => Operation::ReceiveMessage { hidden: rng.u32(0..4) != 0 },
            7..10 => {
                let changes = (0..rng.usize(1..6)).map(|_| (rng.usize(..), rng.u32(0..4) == 0)).collect();
                Operation::ChangeMessageVisibilityBatch { changes, invalid_receipt: rng.u32(0..8) == 0 }
            }
            10 => Operation::DeleteMessage { held: rng.usize(..) },
            _ => Operation::ReceiveDeadLetters,
        }
    }
}

pub(crate) struct Side {
    clients: Clients,
    queue: String,
    dead_letters: String,
    /// Last receipt handle of each message in flight, by body.
    held: BTreeMap<String, String>,
}

impl super::Side for Side {
    type Operation = Operation;

    async fn new(clients: &Clients) -> Self {
        let make = |attributes: Vec<(QueueAttributeName, String)>| {
            let create = clients.sqs.create_queue().queue_name(unique("queue"));
            create.set_attributes(Some(attributes.into_iter().collect())).send()
        };
        let hidden = (QueueAttributeName::VisibilityTimeout, "600".to_owned());
        let dead_letters = make(vec![hidden.clone()]).await.unwrap().queue_url.unwrap();
        let arn = clients.sqs.get_queue_attributes().queue_url(&dead_letters);
        let arn = arn.attribute_names(QueueAttributeName::QueueArn).send().await.unwrap().attributes.unwrap();
        let arn = &arn[&QueueAttributeName::QueueArn];
        let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{MAX_RECEIVES}}}"#);
        let queue = make(vec![hidden, (QueueAttributeName::RedrivePolicy, policy)]).await.unwrap().queue_url.unwrap();
        Self { clients: clients.clone(), queue, dead_letters, held: BTreeMap::new() }
    }

    async fn execute(&mut self, operation: &Operation) -> Facts {
        let mut facts = Facts::new();
        let sqs = self.clients.sqs.clone();
        match operation {
            Operation::SendMessage { body, attributes, delayed } => {
                let mut send = sqs.send_message().queue_url(&self.queue).message_body(body);
                for (name, value) in attributes {
                    let value = MessageAttributeValue::builder().data_type("String").string_value(*value);
                    send = send.message_attributes(*name, value.build().unwrap());
                }
                let sent = send.set_delay_seconds(delayed.then_some(600)).send().await;
                facts.insert("outcome", outcome(&sent));
                if let Ok(sent) = sent {
                    let digests = (sent.md5_of_message_body(), sent.md5_of_message_attributes());
                    facts.insert("digests", format!("{digests:?}"));
                }
            }
            Operation::ReceiveMessage { hidden } => {
                let queue = self.queue.clone();
                let received = self.receive(&queue, *hidden).await;
                facts.insert("messages", received.values().map(shown).collect::<Vec<_>>().join("\n"));
                if *hidden {
                    let receipts = received.into_iter().map(|(body, message)| (body, message.receipt_handle.unwrap()));
                    self.held.extend(receipts);
                }
            }
            Operation::ChangeMessageVisibilityBatch { changes, invalid_receipt } => {
                self.change(changes, *invalid_receipt, &mut facts).await;
            }
            Operation::DeleteMessage { held } => {
                if let Some(body) = self.pick(*held) {
                    let receipt = self.held.remove(&body).unwrap();
                    let deleted = sqs.delete_message().queue_url(&self.queue).receipt_handle(receipt).send().await;
                    facts.insert("outcome", outcome(&deleted));
                }
            }
            Operation::ReceiveDeadLetters => {
                let received = self.receive(&self.dead_letters.clone(), true).await;
                facts.insert("messages", received.values().map(shown).collect::<Vec<_>>().join("\n"));
            }
        }
        facts.insert("queue", self.counts(&self.queue).await);
        facts.insert("dead letters", self.counts(&self.dead_letters).await);
        facts
    }
}

impl Side {
    /// The same message on both sides, because both hold the same ones.
    fn pick(&self, number: usize) -> Option<String> {
        let bodies: Vec<&String> = self.held.keys().collect();
        (!bodies.is_empty()).then(|| bodies[number % bodies.len()].clone())
    }

    async fn change(&mut self, changes: &[(usize, bool)], invalid_receipt: bool, facts: &mut Facts) {
        let chosen: BTreeMap<String, bool> =
            changes.iter().filter_map(|(number, hidden)| Some((self.pick(*number)?, *hidden))).collect();
        let mut entries: Vec<_> = chosen
            .iter()
            .map(|(body, hidden)| entry(body.split(' ').next().unwrap(), &self.held[body], *hidden))
            .collect();
        if invalid_receipt {
            entries.push(entry("invalid", "not-a-receipt-handle", false));
        }
        let change = self.clients.sqs.change_message_visibility_batch().queue_url(&self.queue);
        let changed = change.set_entries(Some(entries)).send().await;
        facts.insert("outcome", outcome(&changed));
        if let Ok(changed) = changed {
            let mut done: Vec<&str> = changed.successful().iter().map(|entry| entry.id()).collect();
            done.sort_unstable();
            facts.insert("changed", done.join(" "));
            let mut failed: Vec<String> =
                changed.failed().iter().map(|entry| format!("{} {}", entry.id(), entry.code())).collect();
            failed.sort_unstable();
            facts.insert("failed", failed.join(" "));
            // What the receipt handle of a visible message does is unspecified.
            self.held.retain(|body, _| chosen.get(body).is_none_or(|hidden| *hidden));
        }
    }

    async fn receive(&self, queue: &str, hidden: bool) -> BTreeMap<String, Message> {
        let mut all = BTreeMap::new();
        loop {
            let receive = self.clients.sqs.receive_message().queue_url(queue).max_number_of_messages(10);
            let receive = receive.message_attribute_names("All").set_visibility_timeout((!hidden).then_some(0));
            let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
            let some = receive.send().await.unwrap().messages.unwrap_or_default();
            if some.is_empty() {
                return all;
            }
            all.extend(some.into_iter().map(|message| (message.body.clone().unwrap(), message)));
        }
    }

    async fn counts(&self, queue: &str) -> String {
        let all = self.clients.sqs.get_queue_attributes().queue_url(queue).attribute_names(QueueAttributeName::All);
        let all = all.send().await.unwrap().attributes.unwrap();
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let [visible, hidden, delayed] = names.map(|name| all.get(&name).cloned().unwrap_or_default());
        format!("{visible} visible, {hidden} hidden, {delayed} delayed")
    }
}

fn entry(id: &str, receipt: &str, hidden: bool) -> ChangeMessageVisibilityBatchRequestEntry {
    let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(id).receipt_handle(receipt);
    entry.visibility_timeout(if hidden { 900 } else { 0 }).build().unwrap()
}

/// A message without id, receipt handle and timestamps, which differ between the sides.
fn shown(message: &Message) -> String {
    let attributes = message.message_attributes().into_iter().flatten();
    let attributes: BTreeMap<_, _> = attributes.map(|(name, value)| (name, value.string_value())).collect();
    let receives = message.attributes().and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount));
    let digests = (message.md5_of_body(), message.md5_of_message_attributes());
    format!("{:?} {attributes:?} received {receives:?} {digests:?}", message.body().unwrap())
}

//! SQS: what is sent, hidden, shown again, deleted and given up. Order is nobody's promise, so only sets are compared; and no step
//! waits for a clock: a message is hidden for longer than the suite runs, and shown again by a change to zero.

use std::collections::BTreeMap;

use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, Message, MessageAttributeValue, MessageSystemAttributeName,
    QueueAttributeName,
};
use everfresh_core::clients::Clients;
use fastrand::Rng;

use super::{Facts, outcome};
use crate::support::unique;

/// A message is received so often before it goes to the dead letters.
const MAX_RECEIVES: u32 = 3;

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    SendMessage {
        body: String,
        attributes: Vec<(&'static str, &'static str)>,
        delayed: bool,
    },
    /// Until nothing more comes: what is not hidden comes again until it is a dead letter.
    ReceiveMessage {
        hidden: bool,
    },
    /// Of the messages in hand, by their number, each for ever or for no time; and perhaps one that is in nobody's hand.
    ChangeMessageVisibilityBatch {
        changes: Vec<(usize, bool)>,
        nonsense: bool,
    },
    DeleteMessage {
        held: usize,
    },
    ReceiveDeadLetters,
}

pub(crate) struct Generator {
    chance: Rng,
    sent: usize,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { chance: Rng::with_seed(seed), sent: 0 }
    }

    pub(crate) fn operation(&mut self) -> Operation {
        let chance = &mut self.chance;
        match chance.u32(0..12) {
            0..4 => {
                self.sent += 1;
                let all = [("producer", "blog"), ("trace", "a-b"), ("words", "ü \"quoted\" <b>")];
                Operation::SendMessage {
                    body: format!("{} ü & <{}>", self.sent, "x".repeat(chance.usize(0..50))),
                    attributes: all.into_iter().filter(|_| chance.bool()).collect(),
                    delayed: chance.u32(0..10) == 0,
                }
            }
            4..7 => Operation::ReceiveMessage { hidden: chance.u32(0..4) != 0 },
            7..10 => {
                let changes = (0..chance.usize(1..6)).map(|_| (chance.usize(..), chance.u32(0..4) == 0)).collect();
                Operation::ChangeMessageVisibilityBatch { changes, nonsense: chance.u32(0..8) == 0 }
            }
            10 => Operation::DeleteMessage { held: chance.usize(..) },
            _ => Operation::ReceiveDeadLetters,
        }
    }
}

pub(crate) struct Side {
    clients: Clients,
    queue: String,
    dead_letters: String,
    /// The last receipt of each message that is in hand, by body.
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

    async fn answer(&mut self, operation: &Operation) -> Facts {
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
            Operation::ChangeMessageVisibilityBatch { changes, nonsense } => {
                self.change(changes, *nonsense, &mut facts).await;
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
    /// The same message on both sides, for both hold the same ones.
    fn pick(&self, number: usize) -> Option<String> {
        let bodies: Vec<&String> = self.held.keys().collect();
        (!bodies.is_empty()).then(|| bodies[number % bodies.len()].clone())
    }

    async fn change(&mut self, changes: &[(usize, bool)], nonsense: bool, facts: &mut Facts) {
        let chosen: BTreeMap<String, bool> =
            changes.iter().filter_map(|(number, hidden)| Some((self.pick(*number)?, *hidden))).collect();
        let mut entries: Vec<_> = chosen
            .iter()
            .map(|(body, hidden)| entry(body.split(' ').next().unwrap(), &self.held[body], *hidden))
            .collect();
        if nonsense {
            entries.push(entry("nonsense", "no-receipt-at-all", false));
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
            // A receipt of a message that is back in the queue is worth what the service pleases.
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

/// A message without what is each side's own: its id, its receipt and its times.
fn shown(message: &Message) -> String {
    let attributes = message.message_attributes().into_iter().flatten();
    let attributes: BTreeMap<_, _> = attributes.map(|(name, value)| (name, value.string_value())).collect();
    let receives = message.attributes().and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount));
    let digests = (message.md5_of_body(), message.md5_of_message_attributes());
    format!("{:?} {attributes:?} received {receives:?} {digests:?}", message.body().unwrap())
}

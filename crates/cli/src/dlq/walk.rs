//! A walk over the dead-letter queue.
//!
//! SQS has no way to read a queue without receiving its messages: each one is invisible to others
//! until the walk deletes it or makes it visible again.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, anyhow, bail};
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, MessageSystemAttributeName,
    QueueAttributeName,
};
use everfresh_enqueue::explain;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::dead_letter::DeadLetter;
use crate::output::note;
use crate::target::Target;

/// SQS takes at most ten messages per call.
const BATCH: usize = 10;

/// How long received messages stay invisible if the walk is killed. Longer for a long queue: a
/// message that becomes visible before the walk ends is received twice.
const LEAST_SECONDS: u64 = 30;
const MESSAGES_PER_SECOND: u64 = 10;
const MOST_SECONDS: u64 = 3_600;

/// So many batches without a new message end a walk.
const REPEATED_BATCHES: u32 = 10;

pub(super) struct Walk<'t> {
    sqs: &'t aws_sdk_sqs::Client,
    queue: &'t str,
    visibility_seconds: i32,
    interrupt: Signal,
    seen: HashSet<String>,
    /// Receipts of received messages, by message id.
    held: HashMap<String, String>,
}

impl<'t> Walk<'t> {
    pub(super) async fn begin(target: &'t Target) -> anyhow::Result<Self> {
        let queue = target.stack.dead_letter_queue.as_str();
        let sqs = &target.clients.sqs;
        let waiting = QueueAttributeName::ApproximateNumberOfMessages;
        let attributes = sqs.get_queue_attributes().queue_url(queue).attribute_names(waiting.clone()).send().await;
        let attributes = attributes.map_err(|error| anyhow!("the dead-letter queue {queue}: {}", explain(&error)))?;
        let waiting = attributes.attributes().and_then(|all| all.get(&waiting)?.parse::<u64>().ok()).unwrap_or(0);
        let seconds = (LEAST_SECONDS + waiting / MESSAGES_PER_SECOND).min(MOST_SECONDS);
        Ok(Self {
            sqs,
            queue,
            visibility_seconds: i32::try_from(seconds).unwrap_or(i32::MAX),
            interrupt: signal(SignalKind::interrupt()).context("listening for Ctrl-C")?,
            seen: HashSet::new(),
            held: HashMap::new(),
        })
    }

    /// The next messages that the walk has not seen. None at the end of the queue.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Vec<DeadLetter>>> {
        for _ in 0..REPEATED_BATCHES {
            let receive = self
                .sqs
                .receive_message()
                .queue_url(self.queue)
                .max_number_of_messages(10)
                // A short poll reads only some of the servers, and may find none of the messages.
                .wait_time_seconds(1)
                .visibility_timeout(self.visibility_seconds)
                .message_attribute_names("All")
                .message_system_attribute_names(MessageSystemAttributeName::All);
            let received = tokio::select! {
                _ = self.interrupt.recv() => bail!("interrupted"),
                received = receive.send() => received,
            };
            let queue = self.queue;
            let received = received.map_err(|error| anyhow!("receiving from {queue}: {}", explain(&error)))?;
            let dead_letters: Vec<DeadLetter> =
                received.messages.unwrap_or_default().into_iter().filter_map(DeadLetter::read).collect();
            if dead_letters.is_empty() {
                return Ok(None);
            }
            // Only the last receipt of a message is sure to be valid.
            self.held
                .extend(dead_letters.iter().map(|dead_letter| (dead_letter.id.clone(), dead_letter.receipt.clone())));
            let new: Vec<_> =
                dead_letters.into_iter().filter(|dead_letter| self.seen.insert(dead_letter.id.clone())).collect();
            if !new.is_empty() {
                return Ok(Some(new));
            }
        }
        Ok(None)
    }

    /// Deletes messages. Returns the ids of those that SQS deleted.
    pub(super) async fn delete(&mut self, ids: &[String]) -> anyhow::Result<Vec<String>> {
        let mut deleted = Vec::new();
        for chunk in ids.chunks(BATCH) {
            let entries = chunk.iter().enumerate().filter_map(|(index, id)| {
                let entry = DeleteMessageBatchRequestEntry::builder().id(index.to_string());
                entry.receipt_handle(self.held.get(id)?).build().ok()
            });
            let delete = self.sqs.delete_message_batch().queue_url(self.queue).set_entries(Some(entries.collect()));
            let queue = self.queue;
            let answer = delete.send().await.map_err(|error| anyhow!("deleting from {queue}: {}", explain(&error)))?;
            for done in answer.successful() {
                let id = done.id().parse().ok().and_then(|index: usize| chunk.get(index));
                deleted.extend(id.cloned());
            }
        }
        for id in &deleted {
            self.held.remove(id);
        }
        Ok(deleted)
    }

    /// Makes what is left visible again. A failure only costs time: SQS does it after the visibility
    /// timeout.
    pub(super) async fn release(self) {
        let receipts: Vec<String> = self.held.into_values().collect();
        let mut failed = 0;
        for chunk in receipts.chunks(BATCH) {
            let entries = chunk.iter().enumerate().filter_map(|(index, receipt)| {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(index.to_string());
                entry.receipt_handle(receipt).visibility_timeout(0).build().ok()
            });
            let change = self.sqs.change_message_visibility_batch().queue_url(self.queue);
            failed += match change.set_entries(Some(entries.collect())).send().await {
                Ok(answer) => answer.failed().len(),
                Err(_) => chunk.len(),
            };
        }
        if failed > 0 {
            note!("{failed} messages are visible again in at most {} s", self.visibility_seconds);
        }
    }
}

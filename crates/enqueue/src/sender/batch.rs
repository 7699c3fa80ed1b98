//! Sends many messages with `SendMessageBatch`.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_sqs::types::SendMessageBatchRequestEntry;

use super::outbound::OutboundMessage;
use super::retry::{Attempts, Failure};
use super::{SendError, Sender, Sent};
use crate::message::{MAX_MESSAGE_BYTES, Message};

/// SQS limit per call.
const MAX_ENTRIES: usize = 10;

/// A message with its index in the caller's list.
type Indexed<'m> = (usize, &'m OutboundMessage);

impl Sender {
    /// Sends many messages, up to ten per call, and returns one result per message, in order.
    ///
    /// A refused message does not affect the others; with [`Sender::retrying`] only the failed ones
    /// are retried. Calls are sequential, and [`Retry`](crate::Retry) applies to each batch.
    pub async fn send_all(&self, messages: &[Message]) -> Vec<Result<Sent, SendError>> {
        let mut results = BTreeMap::new();
        let mut outbound = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            match self.outbound(message, &[]) {
                Ok(message) => outbound.push((index, message)),
                Err(error) => {
                    results.insert(index, Err(error));
                }
            }
        }
        for batch in batches(outbound.iter().map(|(index, message)| (*index, message))) {
            results.extend(self.deliver_batch(batch).await);
        }
        results.into_values().collect()
    }

    /// Sends one batch until each of its messages is sent or has finally failed.
    async fn deliver_batch(&self, mut pending: Vec<Indexed<'_>>) -> Vec<(usize, Result<Sent, SendError>)> {
        let mut done = Vec::with_capacity(pending.len());
        let mut attempts = Attempts::new(self.retry);
        loop {
            let results = match attempts.run(self.attempt_batch(&pending)).await {
                Ok(results) => results,
                Err(failure) => vec![Err(failure); pending.len()],
            };
            let mut failed = Vec::new();
            for ((index, message), result) in pending.into_iter().zip(results) {
                match result {
                    Ok(sent) => done.push((index, Ok(sent))),
                    Err(failure) if failure.transient => failed.push((index, message, failure)),
                    Err(failure) => done.push((index, Err(message.failed(failure)))),
                }
            }
            if failed.is_empty() {
                return done;
            }
            if !attempts.backoff().await {
                done.extend(failed.into_iter().map(|(index, message, why)| (index, Err(message.failed(why)))));
                return done;
            }
            pending = failed.into_iter().map(|(index, message, _)| (index, message)).collect();
        }
    }

    /// One call. Returns one result per message, in order.
    async fn attempt_batch(&self, pending: &[Indexed<'_>]) -> Result<Vec<Result<Sent, Failure>>, Failure> {
        let Some((_, first)) = pending.first() else { return Ok(Vec::new()) };
        let entries = pending.iter().enumerate().map(|(id, (_, message))| entry(id, message));
        let entries: Vec<_> = entries.collect::<Result<_, _>>()?;
        let call = self.sqs.send_message_batch().queue_url(&first.queue).set_entries(Some(entries));
        let response = call.send().await.map_err(|error| Failure::of(&error))?;
        let mut by_id = HashMap::new();
        for accepted in response.successful {
            by_id.insert(accepted.id, Ok(accepted.message_id));
        }
        for refused in response.failed {
            let why = Failure::of_entry(&refused.code, refused.message.as_deref(), refused.sender_fault);
            by_id.insert(refused.id, Err(why));
        }
        let results = pending.iter().enumerate().map(|(id, (_, message))| match by_id.remove(&id.to_string()) {
            Some(Ok(message_id)) => message.sent(Some(message_id)),
            Some(Err(failure)) => Err(failure),
            None => Err(Failure::transient("SQS returned no result for this message")),
        });
        Ok(results.collect())
    }
}

fn entry(id: usize, message: &OutboundMessage) -> Result<SendMessageBatchRequestEntry, Failure> {
    SendMessageBatchRequestEntry::builder()
        .id(id.to_string())
        .message_body(&message.body)
        .message_group_id(&message.group)
        .set_message_attributes(Some(message.attributes.clone()))
        .set_message_system_attributes(message.system_attributes.clone())
        .build()
        .map_err(|error| Failure::permanent(error.to_string()))
}

/// Splits messages into batches within the SQS limits, one queue each. Keeps the order within each
/// queue.
fn batches<'m>(messages: impl Iterator<Item = Indexed<'m>>) -> Vec<Vec<Indexed<'m>>> {
    let mut full = Vec::new();
    let mut open: BTreeMap<&str, (usize, Vec<Indexed<'m>>)> = BTreeMap::new();
    for (index, message) in messages {
        let (bytes, batch) = open.entry(&message.queue).or_default();
        if batch.len() == MAX_ENTRIES || *bytes + message.bytes > MAX_MESSAGE_BYTES {
            full.push(std::mem::take(batch));
            *bytes = 0;
        }
        *bytes += message.bytes;
        batch.push((index, message));
    }
    full.extend(open.into_values().map(|(_, batch)| batch));
    full
}

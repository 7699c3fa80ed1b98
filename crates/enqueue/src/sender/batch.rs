//! Many messages in few calls.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_sqs::types::SendMessageBatchRequestEntry;

use super::parcel::Parcel;
use super::retry::{Attempts, Failure};
use super::{SendError, Sender, Sent};
use crate::message::{MAX_MESSAGE_BYTES, Message};

/// The most entries that a call takes.
const MOST_ENTRIES: usize = 10;

/// A message's place among those to be sent, and the message.
type Placed<'p> = (usize, &'p Parcel);

impl Sender {
    /// Sends many messages, up to ten in a call, and tells what became of each, in their order.
    ///
    /// A message that is refused takes no other with it; with [`Sender::retrying`] those that failed are repeated alone. Calls are
    /// made one after another, and each batch has the whole patience of the sender.
    pub async fn send_all(&self, messages: &[Message]) -> Vec<Result<Sent, SendError>> {
        let mut results = BTreeMap::new();
        let mut parcels = Vec::with_capacity(messages.len());
        for (place, message) in messages.iter().enumerate() {
            match self.parcel(message, &[]) {
                Ok(parcel) => parcels.push((place, parcel)),
                Err(error) => {
                    results.insert(place, Err(error));
                }
            }
        }
        for batch in batches(parcels.iter().map(|(place, parcel)| (*place, parcel))) {
            results.extend(self.deliver_batch(batch).await);
        }
        results.into_values().collect()
    }

    /// Sends one batch until each of its messages is sent or given up.
    async fn deliver_batch(&self, mut open: Vec<Placed<'_>>) -> Vec<(usize, Result<Sent, SendError>)> {
        let mut done = Vec::with_capacity(open.len());
        let mut attempts = Attempts::new(self.retry);
        loop {
            let answers = match attempts.make(self.attempt_batch(&open)).await {
                Ok(answers) => answers,
                Err(failure) => vec![Err(failure); open.len()],
            };
            let mut failed = Vec::new();
            for ((place, parcel), answer) in open.into_iter().zip(answers) {
                match answer {
                    Ok(sent) => done.push((place, Ok(sent))),
                    Err(failure) if failure.passing => failed.push((place, parcel, failure)),
                    Err(failure) => done.push((place, Err(parcel.failed(failure)))),
                }
            }
            if failed.is_empty() {
                return done;
            }
            if !attempts.pause().await {
                done.extend(failed.into_iter().map(|(place, parcel, why)| (place, Err(parcel.failed(why)))));
                return done;
            }
            open = failed.into_iter().map(|(place, parcel, _)| (place, parcel)).collect();
        }
    }

    /// One call. An answer per message, in order.
    async fn attempt_batch(&self, open: &[Placed<'_>]) -> Result<Vec<Result<Sent, Failure>>, Failure> {
        let Some((_, first)) = open.first() else { return Ok(Vec::new()) };
        let entries = open.iter().enumerate().map(|(id, (_, parcel))| entry(id, parcel));
        let entries: Vec<_> = entries.collect::<Result<_, _>>()?;
        let call = self.sqs.send_message_batch().queue_url(&first.queue).set_entries(Some(entries));
        let answer = call.send().await.map_err(|error| Failure::of(&error))?;
        let mut by_id = HashMap::new();
        for taken in answer.successful {
            by_id.insert(taken.id, Ok(taken.message_id));
        }
        for refused in answer.failed {
            let why = Failure::of_entry(&refused.code, refused.message.as_deref(), refused.sender_fault);
            by_id.insert(refused.id, Err(why));
        }
        let answers = open.iter().enumerate().map(|(id, (_, parcel))| match by_id.remove(&id.to_string()) {
            Some(Ok(message_id)) => parcel.sent(Some(message_id)),
            Some(Err(failure)) => Err(failure),
            None => Err(Failure::passing("the queue does not say what became of it")),
        });
        Ok(answers.collect())
    }
}

fn entry(id: usize, parcel: &Parcel) -> Result<SendMessageBatchRequestEntry, Failure> {
    SendMessageBatchRequestEntry::builder()
        .id(id.to_string())
        .message_body(&parcel.body)
        .message_group_id(&parcel.group)
        .set_message_attributes(Some(parcel.attributes.clone()))
        .set_message_system_attributes(parcel.system_attributes.clone())
        .build()
        .map_err(|error| Failure::lasting(error.to_string()))
}

/// As few batches as keep the order within each queue: of one queue, and within the limits of a call.
fn batches<'p>(parcels: impl Iterator<Item = Placed<'p>>) -> Vec<Vec<Placed<'p>>> {
    let mut full = Vec::new();
    let mut open: BTreeMap<&str, (usize, Vec<Placed<'p>>)> = BTreeMap::new();
    for (place, parcel) in parcels {
        let (bytes, batch) = open.entry(&parcel.queue).or_default();
        if batch.len() == MOST_ENTRIES || *bytes + parcel.bytes > MAX_MESSAGE_BYTES {
            full.push(std::mem::take(batch));
            *bytes = 0;
        }
        *bytes += parcel.bytes;
        batch.push((place, parcel));
    }
    full.extend(open.into_values().map(|(_, batch)| batch));
    full
}

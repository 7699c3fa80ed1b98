//! What the queue is told: a rejection goes to the dead-letter queue, a delay to the message itself.

use std::time::Duration;

use aws_lambda_events::event::sqs::SqsMessageAttribute;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{ChangeMessageVisibilityBatchRequestEntry, MessageAttributeValue};
use everfresh_core::domain::outcome::RejectReason;
use everfresh_core::stack::Stack;
use everfresh_enqueue::{attributes, explain};

use crate::record::Record;

/// The queues of a deployment, as the worker uses them.
#[derive(Clone, Debug)]
pub struct Queues {
    sqs: aws_sdk_sqs::Client,
    stack: Stack,
}

impl Queues {
    /// The queues of `stack`.
    pub fn new(sqs: aws_sdk_sqs::Client, stack: Stack) -> Self {
        Self { sqs, stack }
    }

    /// Sends the record to the dead-letter queue as it came, with the reason and the key under which a redrive is recognised.
    /// Returns whether that worked; if not, the record must come again.
    pub async fn reject(&self, record: &Record<'_>, reason: RejectReason) -> bool {
        let mut send = self
            .sqs
            .send_message()
            .queue_url(&self.stack.dead_letter_queue)
            // SQS refuses an empty body, and an empty one is what is wrong with it.
            .message_body(if record.body.is_empty() { " " } else { &record.body })
            .message_attributes(attributes::REASON, text(reason.as_str()))
            .message_attributes(attributes::KEY, text(record.key()));
        let mut kept: Vec<_> = record.attributes.iter().filter(|(name, _)| !is_ours(name)).collect();
        // What Everfresh itself reads first: without it a redrive would be understood otherwise.
        kept.sort_by_key(|(name, _)| (!name.starts_with(attributes::PREFIX), name.as_str()));
        for (name, value) in kept.into_iter().take(attributes::PRODUCER_ATTRIBUTES_KEPT) {
            if let Some(value) = copy(value) {
                send = send.message_attributes(name, value);
            }
        }
        match send.send().await {
            Ok(_) => true,
            Err(error) => {
                let error = explain(&error);
                tracing::error!(message_id = %record.message_id, %error, "a rejected message could not be dead-lettered and will come again");
                false
            }
        }
    }

    /// Hides each record for its own time. Without it they come back when the queue's visibility time-out ends, so a failure here
    /// costs time and nothing else.
    pub async fn delay(&self, queue_arn: &str, delays: &[(&Record<'_>, Duration)]) {
        let queue_url = self.url_of(queue_arn);
        // One call for a batch of ten, which is what the function is configured for.
        for chunk in delays.chunks(10) {
            let entries = chunk.iter().enumerate().filter_map(|(index, (record, delay))| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(index.to_string())
                    .receipt_handle(&record.receipt)
                    .visibility_timeout(i32::try_from(delay.as_secs()).unwrap_or(i32::MAX))
                    .build()
                    .ok()
            });
            let change = self.sqs.change_message_visibility_batch().queue_url(queue_url);
            match change.set_entries(Some(entries.collect())).send().await {
                Ok(answer) => {
                    for failure in answer.failed() {
                        tracing::warn!(code = failure.code(), "a message could not be delayed and comes back later");
                    }
                }
                Err(error) => {
                    let error = explain(&error);
                    tracing::warn!(%error, "messages could not be delayed and come back later");
                }
            }
        }
    }

    /// The queue that an event came from.
    fn url_of(&self, queue_arn: &str) -> &str {
        let name = queue_arn.rsplit(':').next().unwrap_or_default();
        let is_low_priority = self.stack.low_priority_queue.rsplit('/').next() == Some(name);
        if is_low_priority { &self.stack.low_priority_queue } else { &self.stack.queue }
    }
}

/// Whether an attribute is one that a rejection sets anew.
fn is_ours(name: &str) -> bool {
    name == attributes::KEY || name == attributes::REASON
}

fn text(value: &str) -> MessageAttributeValue {
    let builder = MessageAttributeValue::builder().data_type("String").string_value(value);
    builder.build().unwrap_or_else(|_| unreachable!("the data type is set"))
}

fn copy(value: &SqsMessageAttribute) -> Option<MessageAttributeValue> {
    let builder = MessageAttributeValue::builder().data_type(value.data_type.as_deref()?);
    let builder = match (&value.string_value, &value.binary_value) {
        (Some(text), _) if !text.is_empty() => builder.string_value(text),
        (_, Some(bytes)) => builder.binary_value(Blob::new(bytes.to_vec())),
        (Some(_) | None, None) => return None,
    };
    builder.build().ok()
}

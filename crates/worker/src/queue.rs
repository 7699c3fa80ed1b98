//! Writes to SQS: rejected messages go to the dead-letter queue, delayed ones get a new visibility
//! timeout.

use std::time::Duration;

use aws_lambda_events::event::sqs::SqsMessageAttribute;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{ChangeMessageVisibilityBatchRequestEntry, MessageAttributeValue};
use everfresh_core::domain::outcome::RejectReason;
use everfresh_core::stack::Stack;
use everfresh_enqueue::{attributes, explain};

use crate::record::Record;

#[derive(Clone, Debug)]
pub struct Queues {
    sqs: aws_sdk_sqs::Client,
    stack: Stack,
}

impl Queues {
    pub fn new(sqs: aws_sdk_sqs::Client, stack: Stack) -> Self {
        Self { sqs, stack }
    }

    /// Sends the record unchanged to the dead-letter queue, with the reason and the idempotency key
    /// that a redrive is recognised by. Returns false if SQS did not accept it; the record must
    /// then be redelivered.
    pub async fn reject(&self, record: &Record<'_>, reason: RejectReason) -> bool {
        let mut send = self
            .sqs
            .send_message()
            .queue_url(&self.stack.dead_letter_queue)
            // SQS does not accept an empty body, which is one reason for a rejection.
            .message_body(if record.body.is_empty() { " " } else { &record.body })
            .message_attributes(attributes::REASON, text(reason.as_str()))
            .message_attributes(attributes::KEY, text(record.key()));
        let mut kept: Vec<_> = record.attributes.iter().filter(|(name, _)| !is_set_by_rejection(name)).collect();
        // Attributes that Everfresh reads come first: without them a redrive would be handled
        // differently.
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
                let id = &record.message_id;
                tracing::error!(
                    message_id = %id,
                    detail = reason.as_str(),
                    %error,
                    "message {id}: SQS send to the dead-letter queue failed; the message stays in its queue: {error}"
                );
                false
            }
        }
    }

    /// Sets the visibility timeout of each record. A failure only costs time: the records are
    /// redelivered when the queue's own visibility timeout ends.
    pub async fn delay(&self, queue_arn: &str, delays: &[(&Record<'_>, Duration)]) {
        let queue_url = self.url_of(queue_arn);
        // SQS takes at most ten entries per call; the function is configured for batches of ten.
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
                        let entry = failure.id().parse().ok().and_then(|index: usize| chunk.get(index));
                        let id = entry.map_or("", |(record, _)| &record.message_id);
                        let code = failure.code();
                        tracing::warn!(
                            message_id = id,
                            code,
                            "message {id}: SQS refused its visibility timeout ({code}); it is redelivered after the queue's own"
                        );
                    }
                }
                Err(error) => {
                    let error = explain(&error);
                    let messages = chunk.len();
                    tracing::warn!(
                        queue_url,
                        messages,
                        %error,
                        "SQS visibility change of {messages} messages failed; they are redelivered after the queue's own \
                         timeout: {error}"
                    );
                }
            }
        }
    }

    /// The URL of the queue with this ARN.
    fn url_of(&self, queue_arn: &str) -> &str {
        let name = queue_arn.rsplit(':').next().unwrap_or_default();
        let is_low_priority = self.stack.low_priority_queue.rsplit('/').next() == Some(name);
        if is_low_priority { &self.stack.low_priority_queue } else { &self.stack.queue }
    }
}

fn is_set_by_rejection(name: &str) -> bool {
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

//! Sends messages to the queues of a deployment.

use aws_sdk_sqs::types::MessageAttributeValue;

use crate::attributes;
use crate::explain::explain;
use crate::message::{Message, MessageError, Reason};

/// Where a deployment takes requests.
#[derive(Clone, Debug)]
pub struct Queues {
    /// For what a reader or an editor waits for.
    pub main: String,
    /// For prewarming, which must not stand before a waiting reader.
    pub low_priority: String,
}

/// Asks for regenerations. Cheap to clone; uses the caller's own SQS client, with its credentials, time-outs and retries.
#[derive(Clone, Debug)]
pub struct Sender {
    sqs: aws_sdk_sqs::Client,
    queues: Queues,
    producer: Option<(String, String)>,
}

/// A request that was not sent, or of which that is not known. Sending it again under the same key does no harm.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No worker would accept it.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The queue did not take it.
    #[error("sending to {queue}: {why}")]
    Queue {
        /// The queue's URL.
        queue: String,
        /// What the SDK says.
        why: String,
    },
}

impl Sender {
    /// A sender to these queues.
    pub fn new(sqs: aws_sdk_sqs::Client, queues: Queues) -> Self {
        Self { sqs, queues, producer: None }
    }

    /// Names the sending service in its messages.
    #[must_use]
    pub fn producer(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.producer = Some((name.into(), version.into()));
        self
    }

    /// Sends one message and returns the queue's id for it, which is the request's key unless the message has its own.
    pub async fn send(&self, message: &Message) -> Result<String, SendError> {
        self.send_with(message, &[]).await
    }

    /// The same with message attributes out of [`attributes`].
    pub async fn send_with(&self, message: &Message, beside: &[(&str, &str)]) -> Result<String, SendError> {
        let queue = match message.reason {
            Reason::Changed | Reason::Expired => &self.queues.main,
            Reason::Prewarm => &self.queues.low_priority,
        };
        let mut send = self
            .sqs
            .send_message()
            .queue_url(queue)
            .message_body(message.to_json()?)
            // Fair queueing: one tenant's flood does not hold up another's single wish.
            .message_group_id(&message.tenant);
        let producer = self.producer.iter().flat_map(|(name, version)| {
            [(attributes::PRODUCER, name.as_str()), (attributes::VERSION, version.as_str())]
        });
        for (attribute, value) in producer.chain(beside.iter().copied()) {
            let value = MessageAttributeValue::builder().data_type("String").string_value(value).build();
            // Built from two set fields, so it is always there.
            send = value.map_or(send.clone(), |value| send.message_attributes(attribute, value));
        }
        let refused = |why: String| SendError::Queue { queue: queue.clone(), why };
        let sent = send.send().await.map_err(|error| refused(explain(&error)))?;
        sent.message_id.ok_or_else(|| refused("the queue gave no message id".to_owned()))
    }
}

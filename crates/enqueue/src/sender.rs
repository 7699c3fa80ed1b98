//! Sends messages to the queues of a deployment.

use std::sync::Arc;

use aws_sdk_sqs::config::retry::RetryConfig;

use crate::key::IdempotencyKey;
use crate::message::{Message, MessageError};
use crate::trace::TraceContext;

mod batch;
mod once;
mod parcel;
mod retry;

pub use once::{BUCKET, Fired};
pub use retry::Retry;

use once::DoubleFires;
use parcel::Parcel;
use retry::{Attempts, Failure};

/// Where a deployment takes requests.
#[derive(Clone, Debug)]
pub struct Queues {
    /// For what a reader or an editor waits for.
    pub main: String,
    /// For prewarming, which must not stand before a waiting reader.
    pub low_priority: String,
}

/// Asks for regenerations. Cheap to clone; uses the caller's own SQS client, with its credentials and time-outs.
#[derive(Clone, Debug)]
pub struct Sender {
    sqs: aws_sdk_sqs::Client,
    queues: Queues,
    producer: Option<(String, String)>,
    trace: TraceContext,
    retry: Option<Retry>,
    fires: Arc<DoubleFires>,
}

/// A request that is in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The queue's name for the message.
    pub message_id: String,
    /// The key that the request is handled under: the message's own, or one that was generated for repeating it, or the message id.
    pub key: IdempotencyKey,
}

/// A request that was not sent, or of which that is not known. Sending it again under the same key does no harm.
#[derive(Clone, Debug, thiserror::Error)]
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
        /// The key that every attempt was made under, if the message had one or was given one. Whoever sends it again should use it.
        key: Option<IdempotencyKey>,
    },
}

impl Sender {
    /// A sender to these queues, which leaves retries to the client.
    pub fn new(sqs: aws_sdk_sqs::Client, queues: Queues) -> Self {
        let fires = Arc::new(DoubleFires::new());
        Self { sqs, queues, producer: None, trace: TraceContext::default(), retry: None, fires }
    }

    /// Names the sending service in its messages.
    #[must_use]
    pub fn producer(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.producer = Some((name.into(), version.into()));
        self
    }

    /// Repeats what failed or was not answered, in place of the client's own retries.
    ///
    /// The client does not know whether a message that it repeats arrived before, and then it counts as two wishes. Here a message
    /// without a key is given one before its first attempt, so that all its attempts are one wish.
    #[must_use]
    pub fn retrying(mut self, retry: Retry) -> Self {
        let once = self.sqs.config().to_builder().retry_config(RetryConfig::disabled()).build();
        self.sqs = aws_sdk_sqs::Client::from_conf(once);
        self.retry = Some(retry);
        self
    }

    /// The same sender, whose messages belong to this trace. What it knows of double fires is shared.
    #[must_use]
    pub fn traced(&self, trace: TraceContext) -> Self {
        Self { trace, ..self.clone() }
    }

    /// Sends one message.
    pub async fn send(&self, message: &Message) -> Result<Sent, SendError> {
        self.send_with(message, &[]).await
    }

    /// The same with message attributes out of [`crate::attributes`].
    pub async fn send_with(&self, message: &Message, beside: &[(&str, &str)]) -> Result<Sent, SendError> {
        self.deliver(&self.parcel(message, beside)?).await
    }

    async fn deliver(&self, parcel: &Parcel) -> Result<Sent, SendError> {
        let mut attempts = Attempts::new(self.retry);
        loop {
            match attempts.make(self.attempt(parcel)).await {
                Ok(sent) => return Ok(sent),
                Err(failure) if failure.passing && attempts.pause().await => {}
                Err(failure) => return Err(parcel.failed(failure)),
            }
        }
    }

    async fn attempt(&self, parcel: &Parcel) -> Result<Sent, Failure> {
        let answer = self
            .sqs
            .send_message()
            .queue_url(&parcel.queue)
            .message_body(&parcel.body)
            .message_group_id(&parcel.group)
            .set_message_attributes(Some(parcel.attributes.clone()))
            .set_message_system_attributes(parcel.system_attributes.clone())
            .send()
            .await
            .map_err(|error| Failure::of(&error))?;
        parcel.sent(answer.message_id)
    }
}

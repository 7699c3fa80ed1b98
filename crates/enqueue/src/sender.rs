//! Sends messages to the queues of a deployment.

use std::sync::Arc;

use aws_sdk_sqs::config::retry::RetryConfig;

use crate::key::IdempotencyKey;
use crate::message::{Message, MessageError};
use crate::trace::TraceContext;

mod batch;
mod deduplicate;
mod outbound;
mod retry;

pub use deduplicate::{DEDUPLICATION_WINDOW, SendOutcome};
pub use retry::Retry;

use deduplicate::RecentCalls;
use outbound::OutboundMessage;
use retry::{Attempts, Failure};

/// URLs of a deployment's SQS queues.
#[derive(Clone, Debug)]
pub struct Queues {
    /// For `changed` and `expired` requests.
    pub main: String,
    /// For `prewarm` requests, which must not delay the others.
    pub low_priority: String,
}

/// Enqueues requests. Cheap to clone; uses the caller's SQS client with its credentials and
/// timeouts.
#[derive(Clone, Debug)]
pub struct Sender {
    sqs: aws_sdk_sqs::Client,
    queues: Queues,
    producer: Option<(String, String)>,
    trace: TraceContext,
    retry: Option<Retry>,
    recent: Arc<RecentCalls>,
}

/// A request that is in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// SQS message id.
    pub message_id: String,
    /// Key that the request is handled under: the message's own, else the one generated for
    /// retries (see [`Sender::retrying`]), else the message id.
    pub key: IdempotencyKey,
}

/// The request was not enqueued, or the outcome is unknown. Sending it again under the same key is
/// safe.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// The message is invalid: every worker would reject it.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// SQS did not confirm the message.
    #[error("sending to {queue}: {why}")]
    Queue {
        /// URL of the queue.
        queue: String,
        /// Error code and message of SQS, or the transport failure.
        why: String,
        /// Key of all attempts, if the message had one or one was generated. Send the message again
        /// under this key: an attempt may have succeeded unnoticed.
        key: Option<IdempotencyKey>,
    },
}

impl Sender {
    /// A sender to these queues. Retries are left to the SQS client unless [`Sender::retrying`] is
    /// set.
    pub fn new(sqs: aws_sdk_sqs::Client, queues: Queues) -> Self {
        let recent = Arc::new(RecentCalls::new());
        Self { sqs, queues, producer: None, trace: TraceContext::default(), retry: None, recent }
    }

    /// Sets name and version of the producing service, sent as message attributes.
    #[must_use]
    pub fn producer(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.producer = Some((name.into(), version.into()));
        self
    }

    /// Retries failed and unanswered sends, in place of the SQS client's own retries.
    ///
    /// When the client retries a message that had arrived, its two copies count as two requests.
    /// Here a message without a key is given one before its first attempt, so that all its attempts
    /// are one request.
    #[must_use]
    pub fn retrying(mut self, retry: Retry) -> Self {
        let once = self.sqs.config().to_builder().retry_config(RetryConfig::disabled()).build();
        self.sqs = aws_sdk_sqs::Client::from_conf(once);
        self.retry = Some(retry);
        self
    }

    /// A clone of this sender whose messages carry this trace context. Shares the deduplication of
    /// [`Sender::send_once`].
    #[must_use]
    pub fn traced(&self, trace: TraceContext) -> Self {
        Self { trace, ..self.clone() }
    }

    /// Sends one message, without deduplication.
    pub async fn send(&self, message: &Message) -> Result<Sent, SendError> {
        self.send_with(message, &[]).await
    }

    /// Like [`Sender::send`], with further message attributes, see [`crate::attributes`].
    pub async fn send_with(&self, message: &Message, attributes: &[(&str, &str)]) -> Result<Sent, SendError> {
        self.deliver(&self.outbound(message, attributes)?).await
    }

    async fn deliver(&self, message: &OutboundMessage) -> Result<Sent, SendError> {
        let mut attempts = Attempts::new(self.retry);
        loop {
            match attempts.run(self.attempt(message)).await {
                Ok(sent) => return Ok(sent),
                Err(failure) if failure.transient && attempts.backoff().await => {}
                Err(failure) => return Err(message.failed(failure)),
            }
        }
    }

    async fn attempt(&self, message: &OutboundMessage) -> Result<Sent, Failure> {
        let response = self
            .sqs
            .send_message()
            .queue_url(&message.queue)
            .message_body(&message.body)
            .message_group_id(&message.group)
            .set_message_attributes(Some(message.attributes.clone()))
            .set_message_system_attributes(message.system_attributes.clone())
            .send()
            .await
            .map_err(|error| Failure::of(&error))?;
        message.sent(response.message_id)
    }
}

//! The SQS queue, for page reads ([`crate::enqueue`]) and signed requests ([`crate::trigger`])
//! alike.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::aws_time::AwsTime;
use everfresh_core::metrics;
use everfresh_enqueue::{Message, MessageError, SendError, Sender};

use crate::circuit_breaker::{CircuitBreaker, LONGEST_PAUSE_MS};
use crate::metrics::MetricsBuffer;

/// The next request waits for this instance while a send is in progress.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Queue {
    url: String,
    sender: Sender,
    breaker: CircuitBreaker,
    metrics: Arc<MetricsBuffer>,
    time: AwsTime,
}

pub(crate) enum QueueError {
    /// No worker would accept the message. Not a fault of the queue.
    Message(MessageError),
    /// SQS did not confirm the message, and may or may not have it.
    Unavailable,
}

impl Queue {
    /// `url` is the queue that `sender` sends to, for the log.
    pub(crate) fn new(url: String, sender: Sender, metrics: Arc<MetricsBuffer>, time: AwsTime) -> Self {
        Self { url, sender, breaker: CircuitBreaker::default(), metrics, time }
    }

    /// Whether the last send failed a moment ago. A caller that can do without should not send.
    pub(crate) fn is_suspended(&self) -> bool {
        self.breaker.is_open(self.time.local_now_ms())
    }

    /// Returns once SQS has the message.
    pub(crate) async fn send(&self, message: &Message, attributes: &[(&str, &str)]) -> Result<(), QueueError> {
        match tokio::time::timeout(SEND_TIMEOUT, self.sender.send_with(message, attributes)).await {
            Ok(Ok(_)) => {
                if self.breaker.succeeded() {
                    let queue = &self.url;
                    tracing::info!(queue, "SQS queue {queue}: send succeeded; stale pages are enqueued again");
                }
                Ok(())
            }
            Ok(Err(SendError::Message(error))) => Err(QueueError::Message(error)),
            Ok(Err(SendError::Queue { why, .. })) => Err(self.failed(&why)),
            Err(_) => Err(self.failed("timeout")),
        }
    }

    fn failed(&self, error: &str) -> QueueError {
        self.metrics.count(metrics::SQS_OUTAGE);
        if self.breaker.failed(self.time.local_now_ms()) {
            let (queue, seconds) = (&self.url, LONGEST_PAUSE_MS / 1000);
            tracing::warn!(
                queue,
                error,
                "SQS queue {queue}: send failed; until one succeeds, stale pages are enqueued with a backoff of up to \
                 {seconds} s: {error}"
            );
        }
        QueueError::Unavailable
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.time.now_ms()
    }
}

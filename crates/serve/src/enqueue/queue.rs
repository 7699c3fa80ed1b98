//! The SQS queue, for page reads and signed requests alike.

use std::sync::Arc;
use std::time::Duration;

use everfresh_core::aws_time::AwsTime;
use everfresh_core::metrics;
use everfresh_enqueue::{Message, MessageError, SendError, Sender};

use crate::circuit_breaker::CircuitBreaker;
use crate::metrics::MetricsBuffer;

/// The next request waits for this instance while a send is in progress.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Queue {
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
    pub(crate) fn new(sender: Sender, metrics: Arc<MetricsBuffer>, time: AwsTime) -> Self {
        Self { sender, breaker: CircuitBreaker::default(), metrics, time }
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
                    tracing::info!("SQS send succeeded; enqueue resumed");
                }
                Ok(())
            }
            Ok(Err(SendError::Message(error))) => Err(QueueError::Message(error)),
            Ok(Err(error @ SendError::Queue { .. })) => Err(self.failed(&error.to_string())),
            Err(_) => Err(self.failed("timeout")),
        }
    }

    fn failed(&self, why: &str) -> QueueError {
        self.metrics.count(metrics::SQS_OUTAGE);
        if self.breaker.failed(self.time.local_now_ms()) {
            tracing::warn!(why, "SQS send failed; enqueue suspended with backoff: {why}");
        }
        QueueError::Unavailable
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.time.now_ms()
    }
}

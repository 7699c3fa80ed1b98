//! Sends a regeneration to the queue.

use everfresh_core::domain::artifact::locate;
use everfresh_core::metrics;
use everfresh_enqueue::{Message, attributes};

use super::limiter::RequestKey;
use super::{Enqueue, Enqueuer};
use crate::regeneration_queue::QueueError;

impl Enqueuer {
    /// Returns whether SQS has the message. If not, the next read of the page may try again.
    pub(crate) async fn send(&self, enqueue: Enqueue) -> bool {
        let mut unsent = Unsent { enqueuer: self, key: Some(enqueue.key()) };
        let Enqueue { page, reason, lost, is_first: _ } = enqueue;
        let mut message = Message::path(page.tenant().as_str(), page.path().as_str());
        message.reason = reason;
        let hash = page.hash().to_string();
        let mut attributes = vec![(attributes::PAGE, hash.as_str())];
        // A foreign row's pointer may hold anything, also characters that SQS rejects. The worker
        // replaces such a pointer without the attribute.
        let lost = lost.filter(|key| locate(key, &self.bucket, page.tenant(), self.layout).is_ok());
        attributes.extend(lost.as_deref().map(|key| (attributes::LOST, key)));
        let page = page.logged();
        match self.queue.send(&message, &attributes).await {
            Ok(()) => {
                unsent.key = None;
                tracing::info!(%page, %reason, "regeneration of {page} enqueued");
                self.metrics.count(metrics::ENQUEUED);
                true
            }
            Err(QueueError::Message(error)) => {
                tracing::error!(%page, %error, "regeneration of {page} cannot be enqueued: {error}");
                false
            }
            Err(QueueError::Unavailable) => false,
        }
    }
}

/// Returns the limiter's permit unless the message is known to be in SQS, also when the send is
/// cancelled.
struct Unsent<'a> {
    enqueuer: &'a Enqueuer,
    key: Option<RequestKey>,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.enqueuer.limiter().failed(&key);
        }
    }
}

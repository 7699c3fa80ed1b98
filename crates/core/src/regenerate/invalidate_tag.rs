//! A request by tag: no page is rendered, its pages become stale.

use super::{Outcome, Regenerator, busy};
use crate::domain::outcome::Busy;
use crate::domain::request::Request;
use crate::domain::scrub;
use crate::domain::tag::Tag;
use crate::ledger::TagInvalidation;

impl Regenerator {
    /// Raises the tag's watermark to the moment the message was sent, then has CloudFront
    /// invalidate the tag. A replay is notified too: the worker that wrote the watermark may have
    /// crashed before its notification, and CloudFront recognises a repeated one by its id.
    pub async fn invalidate_tag(&self, request: &Request, tag: &Tag, sent_ms: u64) -> Outcome {
        let Request { tenant, key, .. } = request;
        let logged = scrub::path(tag.as_str());
        let outcome = match self.ledger.invalidate_tag(tenant, tag, key, request.request_hash(), sent_ms).await {
            Ok(TagInvalidation::Done) => Outcome::Committed { version: None },
            Ok(TagInvalidation::Replayed) => Outcome::Replayed,
            Ok(TagInvalidation::Rejected(reason)) => return Outcome::Rejected { reason },
            Err(error) => {
                tracing::error!(
                    %tenant,
                    tag = logged,
                    %error,
                    "invalidation of tag {logged} of {tenant} failed; the message will be retried: {error}"
                );
                return busy(Busy::Unavailable);
            }
        };
        match self.notifier.notify_tag(tenant, tag, key).await {
            Ok(()) => outcome,
            Err(error) => {
                tracing::warn!(
                    %tenant,
                    tag = logged,
                    %error,
                    "tag {logged} of {tenant} is invalidated, but its notification failed; the message will be retried: {error}"
                );
                busy(Busy::NotificationPending { published: outcome != Outcome::Replayed })
            }
        }
    }
}

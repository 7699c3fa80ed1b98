//! notify: notifies CloudFront and subscribers of a published version. Every attempt ends with it;
//! only `settle` follows.
//!
//! # Why a pending notification cannot be lost
//!
//! 1. The commit itself writes the mark `pending_notification` on META, with the key of its
//!    request. There is no moment at which a version is published and its mark is missing.
//! 2. The mark is cleared only after CloudFront and the subscribers have accepted the notification,
//!    and only while that version is the published one. A newer version takes the mark over, and
//!    remembers if an earlier one took the page down: the CDN is then invalidated in any case.
//! 3. While META carries a request's own mark, that request ends as [`Busy::NotificationPending`],
//!    so its message is delivered again. Only a failed attempt stays [`Outcome::Failed`]: its
//!    message is delivered again too, or rejected, and then rule 5 applies, as it does if the
//!    message is rejected because it has waited too long. A redelivery finds the
//!    mark by the lookup it makes anyway, or, if its record says COMPLETED, by one more.
//! 4. An operator's change (purge, rollback, pin) has no message. Its mark is
//!    [`ANY_REQUEST`], and any request for the page waits for it as for its own.
//! 5. A mark can outlive its message: a message delivered twice is deleted when the first of two
//!    workers acks it, and the second may crash after its commit. Once the claim of the marked
//!    request must have expired, the notification is orphaned, and the next request for the page
//!    sends it, without waiting for it.
//!
//! A crash between sending and clearing sends twice. The id is derived from page and version, so
//! CloudFront performs one invalidation, and a subscriber recognises the second event.
//!
//! A request by tag publishes no page, so it has no mark: its record is completed with the
//! watermark, and it is acked only after the notification. A redelivery notifies again, under the
//! same id.
//!
//! In a batch, the first message of a page makes the attempt for all messages of that page. Another
//! message is deleted on that outcome alone only if the attempt published, which replaces every
//! earlier mark. Otherwise the message makes an attempt of its own, which finds its mark.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Attempt, Busy, Job, LedgerError, Meta, Outcome, Published, Regenerator, busy};
use crate::branches::{Branch, reached};
use crate::domain::page::{ANY_REQUEST, PendingNotification, PendingScope};
use crate::domain::seconds;
use crate::notifier::must_invalidate;

/// After a failed notification, those of other requests are not tried for so long: while CloudFront
/// hangs, each would cost a request the time of a render.
const BACKOFF_MS: u64 = 60_000;

/// The time limit of one notification. With less time left in the invocation, those of other
/// requests are not tried.
const NOTIFY_MS: u64 = 15_000;

/// Kept free at the end of an invocation for answering its messages.
const ANSWER_MS: u64 = 2_000;

/// Until when this sandbox sends no notification but a request's own.
#[derive(Debug, Default)]
pub(super) struct NotifyBackoff(AtomicU64);

impl NotifyBackoff {
    fn is_over(&self, now_ms: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now_ms
    }

    fn begin(&self, now_ms: u64) {
        self.0.store(now_ms.saturating_add(BACKOFF_MS), Ordering::Relaxed);
    }
}

/// Which notifications a version needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    None,
    /// The CDN: its copy is the same, but would live too long, or has other tags.
    Cdn,
    /// The CDN and the subscribers.
    All,
}

/// What a pending notification is to the request in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// The request's own: it is not done before.
    Own,
    /// An operator's: every request waits for it.
    Operators,
    /// Another request's, whose message is gone.
    Orphaned,
    /// Another request's, which its worker or a redelivery of its message will send.
    OtherRequests,
}

impl Regenerator {
    /// The mark for the next version. A version that needs no notification gets one if the
    /// previous one is still pending.
    pub(super) fn pending_notification(
        &self,
        job: &Job<'_>,
        previous: Option<&Meta>,
        next: &Meta,
        audience: Audience,
    ) -> Option<PendingNotification> {
        let pending = previous.and_then(|previous| {
            let pending = previous.pending_notification.clone()?;
            let scope = if must_invalidate(previous) { PendingScope::AfterTakedown } else { pending.scope };
            Some(PendingNotification { scope, ..pending })
        });
        if !self.notifier.is_configured() {
            // A worker with another configuration may be able to send it.
            return pending;
        }
        let notify = audience != Audience::None && self.notifier.is_notified_of(next, audience == Audience::Cdn);
        let scope = match pending.as_ref().map_or(PendingScope::CdnOnly, |pending| pending.scope) {
            PendingScope::CdnOnly if audience == Audience::All => PendingScope::Version,
            scope @ (PendingScope::Version | PendingScope::CdnOnly | PendingScope::AfterTakedown) => scope,
        };
        let key = job.request.key.as_str();
        (notify || pending.is_some()).then(|| PendingNotification { key: key.to_owned(), scope })
    }

    /// Sends the notification of the published version, if one is pending and falls to this
    /// request. Returns what became of the request, given that.
    pub(super) async fn notify(&self, job: &Job<'_>, attempt: Attempt) -> Result<Outcome, LedgerError> {
        let Attempt { outcome, published, .. } = attempt;
        if !self.notifier.is_configured() {
            return Ok(outcome);
        }
        let meta = match published {
            Published::Seen(meta) => meta,
            Published::ReadAgain => {
                reached(Branch::ReplayRereads);
                self.ledger.lookup(&job.resolved.page).await?.meta.map(Box::new)
            }
            Published::Unknown => None,
        };
        let Some(meta) = meta else { return Ok(outcome) };
        let Some(pending) = self.pending(job, &meta) else { return Ok(outcome) };
        let sent = match pending {
            Pending::Own => self.send(job, &meta).await,
            Pending::Operators | Pending::Orphaned => self.may_send_for_others(job) && self.send(job, &meta).await,
            Pending::OtherRequests => false,
        };
        reached(match (pending, sent) {
            (Pending::Own, true) => Branch::NotifiedOwn,
            (Pending::Own, false) => Branch::NotifyOwnFailed,
            (Pending::Operators, true) => Branch::NotifiedForOperator,
            (Pending::Operators, false) => Branch::NotifyForOperatorFailed,
            (Pending::Orphaned, true) => Branch::NotifiedForOther,
            (Pending::Orphaned, false) => Branch::NotifyForOtherFailed,
            (Pending::OtherRequests, _) => Branch::NotifyLeftToOther,
        });
        let waits = !sent && matches!(pending, Pending::Own | Pending::Operators);
        // A failure decides whether the message is retried or rejected, so it is not replaced.
        if !waits || matches!(outcome, Outcome::Failed { .. }) {
            return Ok(outcome);
        }
        let published =
            matches!(outcome, Outcome::Committed { .. } | Outcome::Unchanged { .. } | Outcome::Bypassed { .. });
        Ok(busy(Busy::NotificationPending { published }))
    }

    fn pending(&self, job: &Job<'_>, meta: &Meta) -> Option<Pending> {
        let key = meta.pending_notification.as_ref()?.key.as_str();
        let claimed_until_ms = seconds::to_ms(meta.generated_at).saturating_add(self.settings.ladder.claim_expiry_ms);
        Some(if key == job.request.key.as_str() {
            Pending::Own
        } else if key == ANY_REQUEST {
            Pending::Operators
        } else if claimed_until_ms < self.now_ms() {
            Pending::Orphaned
        } else {
            Pending::OtherRequests
        })
    }

    fn may_send_for_others(&self, job: &Job<'_>) -> bool {
        self.notify_backoff.is_over(self.now_ms()) && self.time_left_ms(job) > NOTIFY_MS + ANSWER_MS
    }

    /// Notifies CloudFront and the subscribers, then clears the mark. Returns whether both worked.
    async fn send(&self, job: &Job<'_>, meta: &Meta) -> bool {
        let Some(version) = meta.version else { return true };
        let page = job.resolved.page.logged();
        let timeout_ms = self.time_left_ms(job).saturating_sub(ANSWER_MS).min(NOTIFY_MS);
        let send = async {
            if let Err(error) = self.notifier.notify_page(&job.resolved.page, &version, meta).await {
                tracing::warn!(
                    %page,
                    %version,
                    %error,
                    "{page} is published, but its notification failed; a later delivery for the page sends it: {error}"
                );
                return false;
            }
            if let Err(error) = self.ledger.clear_pending_notification(&job.resolved.page, &version).await {
                tracing::warn!(
                    %page,
                    %version,
                    %error,
                    "{page} is published and its notification sent, but META still says pending, so it will be sent \
                     again: {error}"
                );
                return false;
            }
            true
        };
        let sent = tokio::time::timeout(Duration::from_millis(timeout_ms), send).await.unwrap_or_else(|_| {
            tracing::warn!(
                %page,
                %version,
                timeout_ms,
                "{page} is published, but its notification timed out after {timeout_ms} ms; a later delivery for the page \
                 sends it"
            );
            false
        });
        if !sent {
            self.notify_backoff.begin(self.now_ms());
        }
        sent
    }
}

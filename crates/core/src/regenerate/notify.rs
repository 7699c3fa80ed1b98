//! announce, and what a request does about news that it was to tell and perhaps has not told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Busy, Job, LedgerError, Meta, Outcome, PageState, Regenerator, busy};
use crate::branches::{Branch, reached};
use crate::domain::page::ANY_REQUEST;
use crate::domain::seconds;

/// After a failed attempt nobody tries to tell what is not their own for so long: while the CDN hangs, that would cost each request the
/// time of a render.
const SILENCE_MS: u64 = 60_000;

/// The longest that telling may take. With less time left, what is not one's own is left to the next.
const TELLING_MS: u64 = 15_000;

/// So much of an invocation is not for telling: its messages have to be answered.
const ANSWER_MS: u64 = 2_000;

/// Until when this sandbox tells nothing that is not its request's own.
#[derive(Debug, Default)]
pub(super) struct NotifyBackoff(AtomicU64);

impl Regenerator {
    /// Who is to tell of the next version. One with the old content is no news, unless nobody was told of that either.
    pub(super) fn pending_notification(
        &self,
        job: &Job<'_>,
        previous: Option<&Meta>,
        unchanged: bool,
    ) -> Option<String> {
        let untold = previous.and_then(|meta| meta.pending_notification.clone());
        if !self.notifier.is_configured() {
            // Another worker, of another configuration, may know somebody.
            return untold;
        }
        (!unchanged || untold.is_some()).then(|| job.request.key.as_str().to_owned())
    }

    /// Tells the world outside of a version, if it falls to this request. If that does not succeed, neither is the request done with: its
    /// message comes again. For what others left behind nobody waits.
    pub(super) async fn announce(&self, job: &Job<'_>, meta: &Meta, outcome: Outcome) -> Outcome {
        let Some(due) = meta.pending_notification.as_deref().filter(|_| self.notifier.is_configured()) else {
            return outcome;
        };
        let own = due == job.request.key.as_str();
        let waits_for_it = own || due == ANY_REQUEST;
        if !waits_for_it && !self.is_left_behind(meta) {
            reached(Branch::NotifyLeftToOther);
            return outcome;
        }
        let told = (own || self.may_try(job)) && self.tell(job, meta).await;
        reached(match (own, waits_for_it, told) {
            (true, _, true) => Branch::NotifiedOwn,
            (true, _, false) => Branch::NotifyOwnFailed,
            (false, true, true) => Branch::NotifiedForOperator,
            (false, true, false) => Branch::NotifyForOperatorFailed,
            (false, false, true) => Branch::NotifiedForOther,
            (false, false, false) => Branch::NotifyForOtherFailed,
        });
        if told || !waits_for_it {
            return outcome;
        }
        let published = matches!(outcome, Outcome::Committed { .. } | Outcome::Unchanged { .. });
        busy(Busy::NotificationPending { published })
    }

    /// Before a request is done with that did not publish this time: this may be another delivery of one that did, and whose worker died
    /// before it told.
    pub(super) async fn after_news(
        &self,
        job: &Job<'_>,
        state: &PageState,
        outcome: Outcome,
    ) -> Result<Outcome, LedgerError> {
        let since;
        let state = if outcome == Outcome::Replayed && self.notifier.is_configured() {
            // Its commit may be younger than what was looked up.
            reached(Branch::ReplayLooksAgain);
            since = self.ledger.lookup(&job.resolved.page).await?;
            &since
        } else {
            state
        };
        Ok(match &state.meta {
            Some(meta) => self.announce(job, meta, outcome).await,
            None => outcome,
        })
    }

    /// Whether nobody may be left to tell of this version. A message that was delivered twice is gone when the first of its two workers
    /// acks it, and the second, which publishes for the same request, may die before it tells. Then whoever comes next tells.
    fn is_left_behind(&self, meta: &Meta) -> bool {
        let claimed_until_ms = seconds::to_ms(meta.generated_at).saturating_add(self.settings.ladder.claim_expiry_ms);
        claimed_until_ms < self.now_ms()
    }

    fn may_try(&self, job: &Job<'_>) -> bool {
        self.silence.0.load(Ordering::Relaxed) <= self.now_ms() && self.time_left_ms(job) > TELLING_MS + ANSWER_MS
    }

    /// Tells everybody and takes the mark off. Returns whether that worked.
    async fn tell(&self, job: &Job<'_>, meta: &Meta) -> bool {
        let Some(version) = meta.version else { return true };
        let page = &job.resolved.page;
        let logged = page.logged();
        let time_ms = self.time_left_ms(job).saturating_sub(ANSWER_MS).min(TELLING_MS);
        let telling = async {
            if let Err(error) = self.notifier.notify_page(page, &version, meta).await {
                tracing::warn!(page = %logged, %version, %error, "{logged} is published, but {error}");
                return false;
            }
            if let Err(error) = self.ledger.clear_pending_notification(page, &version).await {
                tracing::warn!(page = %logged, %version, %error, "{logged} is published and told of, but will be told of again: {error}");
                return false;
            }
            true
        };
        let told = tokio::time::timeout(Duration::from_millis(time_ms), telling).await.unwrap_or_else(|_| {
            tracing::warn!(page = %logged, %version, time_ms, "{logged} is published, but telling of it took too long");
            false
        });
        if !told {
            self.silence.0.store(self.now_ms() + SILENCE_MS, Ordering::Relaxed);
        }
        told
    }
}

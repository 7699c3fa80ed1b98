//! announce, and what a request does about news that it was to tell and perhaps has not told.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Busy, Job, LedgerError, Meta, Outcome, PageState, Regenerator, busy};
use crate::domain::page_key::PageKey;
use crate::domain::seconds;

/// After a failed attempt nobody tries to tell what others left behind for so long: while the CDN hangs, that would cost each request
/// the time of a render.
const SILENCE_MS: u64 = 60_000;

/// What telling may take. With less time left, it is left to the next.
const TELLING_MS: u64 = 15_000;

/// Until when this sandbox tells nothing that others left behind.
#[derive(Debug, Default)]
pub(super) struct Silence(AtomicU64);

impl Regenerator {
    /// Who is to tell of the next version. One with the old content is no news, unless nobody was told of that either.
    pub(super) fn downstream_due(&self, job: &Job<'_>, previous: Option<&Meta>, unchanged: bool) -> Option<String> {
        let untold = previous.and_then(|meta| meta.downstream_due.clone());
        if !self.downstream.is_somebody() {
            // Another worker, of another configuration, may know somebody.
            return untold;
        }
        (!unchanged || untold.is_some()).then(|| job.request.key.as_str().to_owned())
    }

    /// Tells the world outside of a version, if it falls to this request. If that does not succeed, neither is the request done with: its
    /// message comes again. For what others left behind nobody waits.
    pub(super) async fn announce(&self, job: &Job<'_>, meta: &Meta, outcome: Outcome) -> Outcome {
        if !self.downstream.is_somebody() {
            return outcome;
        }
        let mine = meta.is_told_by(&job.request.key);
        if !mine && !self.is_left_behind(job, meta) {
            return outcome;
        }
        if self.tell(&job.resolved.page, meta).await || !mine {
            return outcome;
        }
        let published = matches!(outcome, Outcome::Committed { .. } | Outcome::Unchanged { .. });
        busy(Busy::Downstream { published })
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
        let state = if outcome == Outcome::Replayed && self.downstream.is_somebody() {
            // Its commit may be younger than what was looked up.
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
    fn is_left_behind(&self, job: &Job<'_>, meta: &Meta) -> bool {
        let now_ms = self.now_ms();
        let its_worker_is_gone = seconds::to_ms(meta.generated_at) + self.settings.ladder.claim_expiry_ms < now_ms;
        let may_try = self.silence.0.load(Ordering::Relaxed) <= now_ms && self.time_left_ms(job) > TELLING_MS;
        meta.downstream_due.is_some() && its_worker_is_gone && may_try
    }

    /// Tells everybody and takes the mark off. Returns whether that worked.
    async fn tell(&self, page: &PageKey, meta: &Meta) -> bool {
        let Some(version) = meta.version else { return true };
        let told = self.downstream.tell_page(page, &version, meta).await;
        if let Err(error) = told {
            tracing::warn!(%page, %version, %error, "{page} is published, but {error}");
            self.silence.0.store(self.now_ms() + SILENCE_MS, Ordering::Relaxed);
            return false;
        }
        if let Err(error) = self.ledger.announced(page, &version).await {
            tracing::warn!(%page, %version, %error, "{page} is published and told of, but will be told of again: {error}");
            return false;
        }
        true
    }
}

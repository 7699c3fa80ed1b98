//! announce, and what a request does about news that it was to tell and perhaps has not told.

use super::{Busy, Job, LedgerError, Meta, Outcome, PageState, Regenerator, busy};
use crate::domain::version::Version;

impl Regenerator {
    /// Who is to tell of the next version. One with the old content is no news, unless nobody was told of that either.
    pub(super) fn downstream_due(&self, job: &Job<'_>, same: Option<&Meta>) -> Option<String> {
        let untold = same.and_then(|meta| meta.downstream_due.clone());
        if !self.downstream.is_somebody() {
            // Another worker, of another configuration, may know somebody.
            return untold;
        }
        (same.is_none() || untold.is_some()).then(|| job.request.key.as_str().to_owned())
    }

    /// Tells the world outside of a version, if it falls to this request, and takes the mark off.
    pub(super) async fn announce(&self, job: &Job<'_>, meta: &Meta, outcome: Outcome) -> Result<Outcome, LedgerError> {
        let mine = meta.is_told_by(&job.request.key);
        let due = self.downstream.is_somebody() && (mine || self.is_left_behind(meta));
        let Some(version) = meta.version.filter(|_| due) else { return Ok(outcome) };
        let page = &job.resolved.page;
        if let Err(error) = self.downstream.tell_page(page, &version, meta).await {
            tracing::warn!(%page, %version, %error, "{page} is published, but {error}");
            let published = matches!(outcome, Outcome::Committed { .. } | Outcome::Unchanged { .. });
            // Neither is the request done with, then: its message comes again. For another's news nobody waits.
            return Ok(if mine { busy(Busy::Downstream { published }) } else { outcome });
        }
        self.ledger.announced(page, &version).await?;
        Ok(outcome)
    }

    /// Whether nobody may be left to tell of this version. A message that was delivered twice is gone when the first of its two workers
    /// acks it, and the second, which publishes for the same request, may die before it tells. Then whoever comes next tells.
    fn is_left_behind(&self, meta: &Meta) -> bool {
        let outlived = |version: Version| version.ms() + self.settings.ladder.claim_expiry_ms < self.now_ms();
        meta.downstream_due.is_some() && meta.version.is_some_and(outlived)
    }

    /// Before a request is done with that did not publish this time: this may be another delivery of one that did, and whose worker died
    /// before it told. What others have to tell is no reason to wait: their own messages come again.
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
        match &state.meta {
            Some(meta) => self.announce(job, meta, outcome).await,
            None => Ok(outcome),
        }
    }
}

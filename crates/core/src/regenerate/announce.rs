//! announce, and what is done about news that somebody else was to tell.

use super::{Busy, Job, LedgerError, Meta, Outcome, PageState, Regenerator, busy};

impl Regenerator {
    /// Since when the next version is due to be told of. A version with the old content is no news, unless nobody was told of that either.
    pub(super) fn due_ms(&self, same: Option<&Meta>) -> Option<u64> {
        if !self.downstream.is_somebody() {
            return None;
        }
        match same {
            Some(meta) => meta.downstream_due_ms.map(|_| self.now_ms()),
            None => Some(self.now_ms()),
        }
    }

    /// Tells the world outside of a version that is due to be told of, and takes the mark off. If that does not succeed, neither is the
    /// request done with: its message comes again.
    pub(super) async fn announce(&self, job: &Job<'_>, meta: &Meta, outcome: Outcome) -> Result<Outcome, LedgerError> {
        let (Some(due_ms), Some(version)) = (meta.downstream_due_ms, meta.version) else { return Ok(outcome) };
        let page = &job.resolved.page;
        if let Err(error) = self.downstream.tell_page(page, &version, meta).await {
            tracing::warn!(%page, %version, %error, "{page} is published, but {error}");
            return Ok(busy(Busy::Downstream { until_ms: self.told_by_ms(due_ms) }));
        }
        self.ledger.announced(page, &version).await?;
        Ok(outcome)
    }

    /// Whoever published tells. But nobody acks a request over news that may not have been told: this may be another delivery of the very
    /// message whose worker died after its commit, and the last one.
    pub(super) async fn after_news(
        &self,
        job: &Job<'_>,
        state: &PageState,
        outcome: Outcome,
    ) -> Result<Outcome, LedgerError> {
        let due = state.meta.as_ref().and_then(|meta| Some((meta, meta.downstream_due_ms?)));
        let Some((meta, due_ms)) = due.filter(|_| self.downstream.is_somebody()) else { return Ok(outcome) };
        let until_ms = self.told_by_ms(due_ms);
        if self.now_ms() < until_ms {
            return Ok(busy(Busy::Downstream { until_ms }));
        }
        self.announce(job, meta, outcome).await
    }

    /// When a worker that published then has told everybody, or is gone.
    fn told_by_ms(&self, due_ms: u64) -> u64 {
        due_ms.saturating_add(self.settings.ladder.claim_expiry_ms)
    }
}

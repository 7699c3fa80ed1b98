//! settle: completes the record of a request that another version covers. It acknowledges nothing:
//! [`crate::domain::disposition`] decides that.

use super::{Job, Outcome, Regenerator};
use crate::branches::{Branch, reached};
use crate::domain::outcome::RejectReason;
use crate::domain::scrub;
use crate::ledger::Settled;

impl Regenerator {
    /// Completes the record that earlier deliveries left of a request that is covered now. Only the
    /// request's status depends on it, so a failed write is no reason to deliver the message again.
    /// A record of another request under the same key rejects this one, though it is covered: the
    /// producer has to learn of its mistake before a change is lost by it.
    pub async fn settle(&self, job: &Job<'_>, outcome: Outcome) -> Outcome {
        if outcome != Outcome::AlreadyCovered || !job.may_have_record {
            return outcome;
        }
        let page = &job.resolved.page;
        match self.ledger.settle_covered(page, &job.request.key, job.request.request_hash()).await {
            Ok(Settled::Done) => {
                reached(Branch::CoveredSettled);
                outcome
            }
            Ok(Settled::Nothing) => {
                reached(Branch::CoveredNothingToSettle);
                outcome
            }
            Ok(Settled::KeyConflict) => {
                reached(Branch::CoveredConflict);
                Outcome::Rejected { reason: RejectReason::KeyConflict }
            }
            Err(error) => {
                reached(Branch::CoveredUnsettled);
                let page = page.logged();
                tracing::warn!(
                    %page,
                    key = scrub::key(job.request.key.as_str()),
                    %error,
                    "{page} covers the request, which is done, but its record could not be completed: {error}"
                );
                outcome
            }
        }
    }
}

//! Messages about one page in one batch: the page is regenerated once for all of them.

use std::collections::HashMap;

use everfresh_core::branches::{Branch, reached};
use everfresh_core::domain::outcome::{Busy, Outcome, RejectReason};
use everfresh_core::regenerate::{Job, Regenerator};
use everfresh_enqueue::{Reason, attributes};

use crate::record::Record;

#[derive(Clone, Copy, Debug)]
pub struct Invocation {
    /// When it started, by AWS's clock.
    pub started_ms: u64,
    /// Its messages were received at this moment or later, by AWS's clock: the event source may
    /// have collected them for the batching window.
    pub received_ms: u64,
    /// When it ends, by the sandbox's own clock.
    pub deadline_ms: u64,
}

/// Regenerates the page that all messages in `records` are about. Returns the outcome of each, in
/// order.
///
/// The first message leads. If its attempt publishes, the other messages are covered: they were in
/// hand when the render began. If its attempt ends without saying anything about them (rejected,
/// replayed, already covered, too close, pinned), the next message leads. If it fails or is busy,
/// so would they be. A message whose sender computed another page is kept apart: it says nothing
/// about this page, and this page does not cover it.
pub async fn regenerate(regenerator: &Regenerator, records: &[&Record<'_>], invocation: Invocation) -> Vec<Outcome> {
    let newest_sent_ms = records.iter().map(|record| record.sent_ms).max().unwrap_or_default();
    let changed = records.iter().filter(|record| is_changed(record));
    let newest_changed_ms = changed.map(|record| record.sent_ms).max();
    let missing_objects: Vec<&str> = records.iter().filter_map(|record| record.attribute(attributes::LOST)).collect();
    let mut outcomes = Vec::with_capacity(records.len());
    let mut for_followers = None;
    // Two different requests under one key: the first that is not rejected keeps it.
    let mut keys = HashMap::new();
    for record in records {
        if sender_computed_another_page(record) {
            reached(Branch::OtherPage);
            outcomes.push(Outcome::Busy { why: Busy::OtherPage });
            continue;
        }
        let Some((accepted, resolved)) = record.page_request() else {
            // Only messages with a page are grouped.
            outcomes.push(Outcome::Busy { why: Busy::Unavailable });
            continue;
        };
        let hash = accepted.request.request_hash();
        if keys.get(&accepted.request.key).is_some_and(|other| *other != hash) {
            reached(Branch::ConflictInBatch);
            outcomes.push(Outcome::Rejected { reason: RejectReason::KeyConflict });
            continue;
        }
        let job = Job {
            request: &accepted.request,
            resolved,
            tenant: accepted.tenant,
            sent_ms: record.sent_ms,
            received_ms: invocation.received_ms,
            newest_sent_ms,
            newest_changed_ms,
            deadline_ms: invocation.deadline_ms,
            // A redriven message counts its receives anew, but carries the key of its REQ row. A
            // producer's own key may be that of another request.
            may_have_record: record.receive_count > 1
                || record.explicit_key.is_some()
                || record.attribute(attributes::KEY).is_some(),
            missing_objects: &missing_objects,
        };
        if let Some(outcome) = for_followers.as_ref().filter(|outcome| !ends_message(outcome, record)) {
            let covered = *outcome == Outcome::AlreadyCovered;
            reached(if covered { Branch::FollowerCovered } else { Branch::FollowerWaits });
            let outcome = regenerator.settle(&job, Outcome::clone(outcome)).await;
            if !matches!(outcome, Outcome::Rejected { .. }) {
                keys.insert(&accepted.request.key, hash);
            }
            outcomes.push(outcome);
            continue;
        }
        if !outcomes.is_empty() {
            reached(if for_followers.is_some() { Branch::NextLeadsForItself } else { Branch::NextLeads });
        }
        let outcome = regenerator.regenerate(&job).await;
        if !matches!(outcome, Outcome::Rejected { .. }) {
            keys.insert(&accepted.request.key, hash);
        }
        for_followers = match &outcome {
            Outcome::Committed { .. } | Outcome::Unchanged { .. } | Outcome::Bypassed { .. } => {
                Some(Outcome::AlreadyCovered)
            }
            // The pending notification is the leader's own; the others have none.
            Outcome::Busy { why: Busy::NotificationPending { published } } => {
                published.then_some(Outcome::AlreadyCovered)
            }
            Outcome::Busy { .. } | Outcome::Superseded | Outcome::Failed { .. } => Some(outcome.clone()),
            Outcome::Rejected { .. }
            | Outcome::Replayed
            | Outcome::AlreadyCovered
            | Outcome::TooClose { .. }
            | Outcome::Pinned { .. } => None,
        };
        outcomes.push(outcome);
    }
    outcomes
}

/// Whether the leader's outcome would end this message for good: a cooldown or a stale origin cache
/// (acked, unless the reason is `changed`), or a failure that is not retried. Then the message
/// leads an attempt itself, for a notification of its own may be pending.
fn ends_message(outcome: &Outcome, record: &Record<'_>) -> bool {
    let page_waits = matches!(
        outcome,
        Outcome::Busy {
            why: Busy::Cooldown { .. } | Busy::OriginStale { .. } | Busy::Withdrawals { .. } | Busy::Paused
        } | Outcome::Failed { nothing_published: true, .. }
    );
    let acked = !is_changed(record) && page_waits;
    acked || matches!(outcome, Outcome::Failed { class, .. } if !class.retryable())
}

fn is_changed(record: &Record<'_>) -> bool {
    record.page_request().is_some_and(|(accepted, _)| accepted.request.reason == Reason::Changed)
}

fn sender_computed_another_page(record: &Record<'_>) -> bool {
    let Some((_, resolved)) = record.page_request() else { return false };
    let page = &resolved.page;
    let differs = record.attribute(attributes::PAGE).is_some_and(|hash| hash != page.hash().to_string());
    if differs {
        let page = page.logged();
        tracing::warn!(
            message_id = %record.message_id,
            %page,
            "message {} names another page than {page}, which this worker computes: sender and worker have different \
             configurations; the message will be retried",
            record.message_id
        );
    }
    differs
}

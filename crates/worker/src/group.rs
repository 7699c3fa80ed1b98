//! Records of one page in one batch: they are regenerated once.

use std::collections::HashMap;

use everfresh_core::branches::{Branch, reached};
use everfresh_core::config::Resolved;
use everfresh_core::domain::outcome::{Busy, Outcome, RejectReason};
use everfresh_core::regenerate::{Job, Regenerator};
use everfresh_enqueue::{Reason, attributes};

use crate::record::Record;

/// When an invocation began and when it must be over.
#[derive(Clone, Copy, Debug)]
pub struct Invocation {
    /// Its messages were received then or later, by AWS's clock.
    pub received_ms: u64,
    /// Its end, by the sandbox's own clock.
    pub deadline_ms: u64,
}

/// Regenerates the page that all `records` ask for, and tells what became of each, in order.
///
/// The first leads. If it publishes, the rest are granted by that: they were in hand when the render began. If it leads nowhere by
/// itself (rejected, replayed, already covered, too close, pinned), the next leads. If it fails or meets somebody else, so would
/// they. A record whose sender means another page stands apart: it says nothing about this page, and this page grants it nothing.
pub async fn regenerate(regenerator: &Regenerator, records: &[&Record<'_>], invocation: Invocation) -> Vec<Outcome> {
    let newest_sent_ms = records.iter().map(|record| record.sent_ms).max().unwrap_or_default();
    let changed = records.iter().filter(|record| is_changed(record));
    let newest_changed_ms = changed.map(|record| record.sent_ms).max();
    let lost: Vec<&str> = records.iter().filter_map(|record| record.attribute(attributes::LOST)).collect();
    let mut outcomes = Vec::with_capacity(records.len());
    let mut for_the_rest = None;
    // One key for two different requests: the first one that is not rejected has it.
    let mut keys = HashMap::new();
    for record in records {
        if sender_sees_another_page(record) {
            reached(Branch::OtherPage);
            outcomes.push(Outcome::Busy { why: Busy::OtherPage });
            continue;
        }
        let Some((accepted, resolved)) = wish(record) else {
            // Only records with a page are grouped.
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
            has_record: record.receive_count > 1,
            lost: &lost,
        };
        if let Some(outcome) = for_the_rest.as_ref().filter(|outcome| !ends(outcome, record)) {
            let covered = *outcome == Outcome::AlreadyCovered;
            reached(if covered { Branch::FollowerCovered } else { Branch::FollowerWaits });
            outcomes.push(regenerator.settle(&job, Outcome::clone(outcome)).await);
            continue;
        }
        if !outcomes.is_empty() {
            reached(if for_the_rest.is_some() { Branch::NextLeadsForItself } else { Branch::NextLeads });
        }
        let outcome = regenerator.regenerate(&job).await;
        if !matches!(outcome, Outcome::Rejected { .. }) {
            keys.insert(&accepted.request.key, hash);
        }
        for_the_rest = match &outcome {
            Outcome::Committed { .. } | Outcome::Unchanged { .. } => Some(Outcome::AlreadyCovered),
            // It has news to tell and could not. The others have none.
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

/// Whether the record would be done with, or given up, because of a cooldown, an origin's cache or a failure that another one met. Then it
/// leads too: it may have news of its own.
fn ends(outcome: &Outcome, record: &Record<'_>) -> bool {
    let page_waits = matches!(outcome, Outcome::Busy { why: Busy::Cooldown { .. } | Busy::OriginStale { .. } });
    let by_page = !is_changed(record) && page_waits;
    by_page || matches!(outcome, Outcome::Failed { class, .. } if !class.retryable())
}

/// Whether the record says that its page has changed.
fn is_changed(record: &Record<'_>) -> bool {
    wish(record).is_some_and(|(accepted, _)| accepted.request.reason == Reason::Changed)
}

/// The page that a record asks for, if it asks for one.
pub fn wish<'r, 'c>(record: &'r Record<'c>) -> Option<(&'r everfresh_core::config::Accepted<'c>, &'r Resolved<'c>)> {
    let accepted = record.accepted.as_ref().ok()?;
    Some((accepted, accepted.resolved.as_ref()?))
}

fn sender_sees_another_page(record: &Record<'_>) -> bool {
    let Some((_, resolved)) = wish(record) else { return false };
    let page = &resolved.page;
    let differs = record.attribute(attributes::PAGE).is_some_and(|hash| hash != page.hash().to_string());
    if differs {
        let page = page.logged();
        tracing::warn!(
            message_id = %record.message_id,
            %page,
            "message {} names another page than this worker computes: the sender runs with another configuration",
            record.message_id
        );
    }
    differs
}

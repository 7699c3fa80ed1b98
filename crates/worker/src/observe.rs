//! Metrics and the log line of each record.

use everfresh_core::domain::outcome::{Busy, Outcome, RejectReason};
use everfresh_core::domain::scrub;
use everfresh_core::metrics::{self, Metrics};

use crate::record::{Record, RecordError};

/// Counts and logs the outcome of a record. `started_ms` is when the invocation started. A rejection
/// is logged when its message is in the dead-letter queue.
pub(crate) fn observe(metrics: &mut Metrics, record: &Record<'_>, outcome: &Outcome, started_ms: u64, now_ms: u64) {
    metrics.count(metrics::RECEIVED);
    let (metric, duplicate) = match outcome {
        Outcome::Committed { .. } => (metrics::COMMITTED, false),
        Outcome::Unchanged { .. } => (metrics::UNCHANGED, false),
        Outcome::AlreadyCovered => (metrics::ALREADY_COVERED, true),
        Outcome::Replayed => (metrics::REPLAYED, true),
        Outcome::Busy { .. } => (metrics::BUSY, false),
        Outcome::TooClose { .. } => (metrics::TOO_CLOSE, false),
        Outcome::Superseded => (metrics::SUPERSEDED, false),
        Outcome::Pinned { .. } => (metrics::PINNED, false),
        Outcome::Failed { .. } => (metrics::FAILED, false),
        // Counted once it is in the dead-letter queue.
        Outcome::Rejected { reason } => {
            if *reason == RejectReason::KeyConflict {
                metrics.count(metrics::HASH_MISMATCHES);
            }
            if record.accepted.as_ref().is_err_and(RecordError::is_unknown_version) {
                metrics.count(metrics::UNKNOWN_VERSION);
            }
            return;
        }
    };
    metrics.count(metric);
    if duplicate {
        metrics.count(metrics::DUPLICATES_PREVENTED);
    }
    match outcome {
        Outcome::Busy { why: Busy::Lease { .. } | Busy::Claim { .. } } => metrics.count(metrics::LOCK_CONTENTION),
        Outcome::Busy { why: Busy::OtherPage } => metrics.count(metrics::CONFIGURATION_SKEW),
        Outcome::Busy { why: Busy::NotificationPending { published } } => {
            metrics.count(metrics::NOTIFICATIONS_PENDING);
            if *published {
                metrics.count(metrics::COMMITTED);
            }
        }
        Outcome::Committed { .. } | Outcome::Unchanged { .. } => {
            metrics.record(metrics::REGENERATION_TIME, now_ms.saturating_sub(record.sent_ms));
        }
        Outcome::Busy { .. }
        | Outcome::AlreadyCovered
        | Outcome::Replayed
        | Outcome::TooClose { .. }
        | Outcome::Superseded
        | Outcome::Pinned { .. }
        | Outcome::Failed { .. }
        | Outcome::Rejected { .. } => {}
    }
    let page = record.page_request().map(|(_, resolved)| resolved.page.logged().to_string());
    let detail = detail(outcome);
    let in_brackets = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
    tracing::info!(
        message_id = %record.message_id,
        key = scrub::key(record.key()),
        page,
        reason = record.accepted.as_ref().ok().map(|accepted| accepted.request.reason.as_str()),
        outcome = outcome.as_str(),
        detail,
        duration_ms = now_ms.saturating_sub(started_ms),
        since_sent_ms = now_ms.saturating_sub(record.sent_ms),
        "{}: {}{in_brackets}",
        record.logged(),
        outcome.as_str()
    );
}

/// What keeps the request waiting, or why its attempt failed.
fn detail(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Busy { why } => Some(match why {
            Busy::Lease { .. } => "lease_held",
            Busy::Claim { .. } => "claim_held",
            Busy::Cooldown { .. } => "cooldown",
            Busy::LostLease => "lease_lost",
            Busy::NoTime => "no_time",
            Busy::OtherPage => "other_page",
            Busy::OlderDeploy => "older_deploy",
            Busy::OriginStale { .. } => "origin_stale",
            Busy::NotificationPending { .. } => "notification_pending",
            Busy::Unavailable => "unavailable",
        }),
        Outcome::Failed { class, .. } => Some(class.as_str()),
        Outcome::Committed { .. }
        | Outcome::Unchanged { .. }
        | Outcome::AlreadyCovered
        | Outcome::Replayed
        | Outcome::TooClose { .. }
        | Outcome::Superseded
        | Outcome::Pinned { .. }
        | Outcome::Rejected { .. } => None,
    }
}

//! Metrics and the log line of each record.

use everfresh_core::domain::outcome::{Busy, Outcome, RejectReason};
use everfresh_core::domain::scrub;
use everfresh_core::metrics::{self, Metrics};

use crate::record::{Record, RecordError};

/// Counts and logs the outcome of a record. `started_ms` is when the invocation started.
pub(crate) fn observe(metrics: &mut Metrics, record: &Record<'_>, outcome: &Outcome, started_ms: u64, now_ms: u64) {
    metrics.count(metrics::RECEIVED);
    let counted = match outcome {
        Outcome::Committed { .. } => Some((metrics::COMMITTED, false)),
        Outcome::Unchanged { .. } => Some((metrics::UNCHANGED, false)),
        Outcome::Bypassed { .. } => Some((metrics::BYPASSED, false)),
        Outcome::AlreadyCovered => Some((metrics::ALREADY_COVERED, true)),
        Outcome::Replayed => Some((metrics::REPLAYED, true)),
        Outcome::Busy { .. } => Some((metrics::BUSY, false)),
        Outcome::TooClose { .. } => Some((metrics::TOO_CLOSE, false)),
        Outcome::Superseded => Some((metrics::SUPERSEDED, false)),
        Outcome::Pinned { .. } => Some((metrics::PINNED, false)),
        Outcome::Failed { .. } => Some((metrics::FAILED, false)),
        // Counted once it is in the dead-letter queue.
        Outcome::Rejected { reason } => {
            if *reason == RejectReason::KeyConflict {
                metrics.count(metrics::KEY_CONFLICTS);
            }
            if record.accepted.as_ref().is_err_and(RecordError::is_unknown_version) {
                metrics.count(metrics::UNKNOWN_VERSION);
            }
            None
        }
    };
    if let Some((metric, duplicate)) = counted {
        metrics.count(metric);
        if duplicate {
            metrics.count(metrics::DUPLICATES_PREVENTED);
        }
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
        Outcome::Busy { why: Busy::Withdrawals { .. } } => metrics.count(metrics::WITHDRAWALS_REFUSED),
        Outcome::Committed { .. } | Outcome::Unchanged { .. } | Outcome::Bypassed { .. } => {
            if matches!(outcome, Outcome::Bypassed { withdrawn: true, .. }) {
                metrics.count(metrics::WITHDRAWN);
            }
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

/// What keeps the request waiting, or why its attempt failed or it is rejected.
fn detail(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Busy { why } => Some(match why {
            Busy::Lease { .. } => "lease_held",
            Busy::Claim { .. } => "claim_held",
            Busy::Cooldown { .. } => "cooldown",
            Busy::LostLease => "lease_lost",
            Busy::NoTime => "no_time",
            Busy::OtherPage => "configuration_skew",
            Busy::OlderDeploy => "older_deploy",
            Busy::OriginStale { .. } => "origin_stale",
            Busy::Withdrawals { .. } => "too_many_withdrawals",
            Busy::NotificationPending { .. } => "notification_pending",
            Busy::Paused => "paused",
            Busy::Unavailable => "unavailable",
        }),
        Outcome::Failed { class, .. } => Some(class.as_str()),
        Outcome::Rejected { reason } => Some(reason.as_str()),
        Outcome::Bypassed { reason, .. } => Some(reason.as_str()),
        Outcome::Committed { .. }
        | Outcome::Unchanged { .. }
        | Outcome::AlreadyCovered
        | Outcome::Replayed
        | Outcome::TooClose { .. }
        | Outcome::Superseded
        | Outcome::Pinned { .. } => None,
    }
}

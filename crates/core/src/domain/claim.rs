//! What an existing record means for a message that tries to claim it.

use crate::domain::digest::Digest;
use crate::domain::outcome::RejectReason;
use crate::domain::page::{ReqRow, ReqStatus};
use crate::domain::seconds;

/// How long a record lives: as long as its message can, first in the queue and then in the
/// dead-letter queue, and a day more. A message that is redriven within that time is still
/// recognised as completed (I3).
pub const RECORD_LIFE_S: u64 = (13 + 14 + 1) * 24 * 3600;

/// The `ttl` of a record that is written now.
pub fn record_ttl(now_ms: u64) -> u64 {
    seconds::ceil(now_ms).saturating_add(RECORD_LIFE_S)
}

/// One attempt to claim a request.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// Token of this attempt; never used twice.
    pub owner: &'a str,
    pub request_hash: Digest,
    /// When the message was sent, by the queue's clock.
    pub sent_ms: u64,
    pub max_attempts: u32,
}

impl Claimant<'_> {
    /// Whether the message was sent after the record's rejection: its counts begin anew.
    pub fn is_redrive_of(&self, row: &ReqRow) -> bool {
        row.rejected_at_ms.is_some_and(|rejected_ms| self.sent_ms > rejected_ms)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The record is this attempt's own: the response to its write was lost.
    Mine,
    /// The request was completed, whatever the clock says.
    Replayed,
    /// Another worker's claim is valid until `until_ms`.
    Busy { until_ms: u64 },
    /// No worker holds it any more: overwrite it, on condition that owner, status and expiry are
    /// still those read. The new record has no rejection time, or a redriven request would reset
    /// its count with every attempt.
    TakeOver {
        /// Attempts to write, this one included.
        attempts: u32,
    },
    /// The request must not be handled.
    Rejected { reason: RejectReason },
}

pub fn judge(row: &ReqRow, claimant: &Claimant<'_>, now_ms: u64) -> ClaimVerdict {
    if !row.counts(now_ms) {
        return ClaimVerdict::TakeOver { attempts: 1 };
    }
    // One key for two different requests: a producer's defect, and handling either would be a
    // guess.
    if row.request_hash != claimant.request_hash.to_string() {
        return ClaimVerdict::Rejected { reason: RejectReason::KeyConflict };
    }
    match row.status {
        ReqStatus::Completed => ClaimVerdict::Replayed,
        ReqStatus::Started if row.owner.as_deref() == Some(claimant.owner) => ClaimVerdict::Mine,
        ReqStatus::Started => match row.claim_expires_ms {
            Some(until_ms) if until_ms > now_ms => ClaimVerdict::Busy { until_ms },
            // A crashed worker's record. So is a foreign one, without expiry: waiting for it would
            // drop the message, while taking it over can at worst render twice.
            Some(_) | None => take_over(row, claimant),
        },
        ReqStatus::Failed => take_over(row, claimant),
    }
}

fn take_over(row: &ReqRow, claimant: &Claimant<'_>) -> ClaimVerdict {
    if claimant.is_redrive_of(row) {
        return ClaimVerdict::TakeOver { attempts: 1 };
    }
    if row.error_class.is_some_and(|class| !class.retryable()) {
        return ClaimVerdict::Rejected { reason: RejectReason::NotRetryable };
    }
    if row.attempts >= claimant.max_attempts {
        return ClaimVerdict::Rejected { reason: RejectReason::Attempts };
    }
    ClaimVerdict::TakeOver { attempts: row.attempts + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::ErrorClass;
    use proptest::prelude::*;

    const NOW: u64 = 1_763_270_000_000;

    fn row(status: ReqStatus) -> ReqRow {
        ReqRow {
            request_hash: Digest::of(b"request").to_string(),
            status,
            result_s3_key: None,
            result_version: None,
            result_etag: None,
            result_bypass: false,
            ttl: Some(NOW / 1000 + 1000),
            owner: Some("other".into()),
            claim_expires_ms: Some(NOW),
            attempts: 1,
            stale_answers: 0,
            error_class: None,
            rejected_at_ms: None,
            reject_reason: None,
            events: Vec::new(),
        }
    }

    fn judged(row: &ReqRow) -> ClaimVerdict {
        let request_hash = Digest::of(b"request");
        let claimant = Claimant { owner: "me", request_hash, sent_ms: NOW, max_attempts: 3 };
        judge(row, &claimant, NOW)
    }

    #[test]
    fn record_lives_for_both_retentions_and_a_day() {
        let day = 24 * 3600;
        assert_eq!(record_ttl(5_000), 5 + 13 * day + 14 * day + day);
    }

    #[test]
    fn completed_request_is_replayed_whatever_the_clock_says() {
        assert_eq!(judged(&row(ReqStatus::Completed)), ClaimVerdict::Replayed);
    }

    #[test]
    fn own_claim_is_recognised_after_a_lost_response() {
        let mine = ReqRow { owner: Some("me".into()), ..row(ReqStatus::Started) };
        assert_eq!(judged(&mine), ClaimVerdict::Mine);
    }

    #[test]
    fn only_an_expired_claim_is_taken_over() {
        let expiring = |at| ReqRow { claim_expires_ms: at, ..row(ReqStatus::Started) };
        let until_ms = NOW + 1;
        assert_eq!(judged(&expiring(Some(until_ms))), ClaimVerdict::Busy { until_ms });
        assert_eq!(judged(&expiring(Some(NOW))), ClaimVerdict::TakeOver { attempts: 2 });
        assert_eq!(judged(&expiring(None)), ClaimVerdict::TakeOver { attempts: 2 });
    }

    #[test]
    fn same_key_for_another_request_is_refused_in_every_status() {
        for status in [ReqStatus::Started, ReqStatus::Completed, ReqStatus::Failed] {
            let other = ReqRow { request_hash: Digest::of(b"other").to_string(), ..row(status) };
            let reason = RejectReason::KeyConflict;
            assert_eq!(judged(&other), ClaimVerdict::Rejected { reason });
        }
    }

    #[test]
    fn record_past_its_ttl_is_as_if_absent() {
        let other = Digest::of(b"other").to_string();
        let gone = ReqRow { ttl: Some(NOW / 1000), request_hash: other, ..row(ReqStatus::Completed) };
        assert_eq!(judged(&gone), ClaimVerdict::TakeOver { attempts: 1 });
    }

    #[test]
    fn record_outlives_its_message_in_both_queues() {
        let ttl = record_ttl(NOW);
        assert_eq!(record_ttl(NOW + 1), ttl + 1);
        let deleted_ms = NOW + crate::domain::disposition::RETENTION_MS + 14 * 24 * 3_600_000;
        let kept = ReqRow { ttl: Some(ttl), ..row(ReqStatus::Completed) };
        assert!(kept.counts(deleted_ms));
    }

    #[test]
    fn crashes_count_as_attempts_too() {
        for status in [ReqStatus::Started, ReqStatus::Failed] {
            let worn = |attempts| ReqRow { attempts, ..row(status) };
            assert_eq!(judged(&worn(2)), ClaimVerdict::TakeOver { attempts: 3 });
            let reason = RejectReason::Attempts;
            assert_eq!(judged(&worn(3)), ClaimVerdict::Rejected { reason });
        }
    }

    #[test]
    fn redrive_after_the_rejection_starts_counting_anew() {
        let rejected = |at| ReqRow { attempts: 3, rejected_at_ms: Some(at), ..row(ReqStatus::Failed) };
        assert_eq!(judged(&rejected(NOW - 1)), ClaimVerdict::TakeOver { attempts: 1 });
        let reason = RejectReason::Attempts;
        assert_eq!(judged(&rejected(NOW)), ClaimVerdict::Rejected { reason });
    }

    #[test]
    fn final_failure_is_not_retried_until_redriven() {
        let mut failed = row(ReqStatus::Failed);
        failed.error_class = Some(ErrorClass::OriginForbidden);
        let reason = RejectReason::NotRetryable;
        assert_eq!(judged(&failed), ClaimVerdict::Rejected { reason });
        failed.rejected_at_ms = Some(NOW - 1);
        assert_eq!(judged(&failed), ClaimVerdict::TakeOver { attempts: 1 });
    }

    proptest! {
        #[test]
        fn attempts_never_exceed_the_limit(attempts: u32, max_attempts in 1..10u32, started: bool) {
            let status = if started { ReqStatus::Started } else { ReqStatus::Failed };
            let row = ReqRow { attempts, ..row(status) };
            let request_hash = Digest::of(b"request");
            let claimant = Claimant { owner: "me", request_hash, sent_ms: NOW, max_attempts };
            if let ClaimVerdict::TakeOver { attempts } = judge(&row, &claimant, NOW) {
                prop_assert!(attempts <= max_attempts);
            }
        }
    }
}

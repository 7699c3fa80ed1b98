//! Whether the published version already covers a request, so that it is acked without a render
//! (I1). [`super::disposition`] lists the other acks.
//!
//! A `changed` request is covered only by a render that began to read after the message was sent. A
//! held lease, a record in status STARTED or a page that is merely fresh prove nothing of the kind.
//!
//! `source_ms` comes from a worker's clock and `sent_ms` from the queue's; they differ by less than
//! ε. So there are three answers: surely later, surely not later, and too close to decide. In the
//! last case the request waits until a render is surely later, then renders. A hundred requests
//! sent at one moment therefore cost at most two renders.

use everfresh_enqueue::Reason;

use crate::domain::freshness::{Freshness, Policy};
use crate::domain::page::Meta;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverageQuery {
    pub reason: Reason,
    /// When it was sent, by the queue's clock.
    pub sent_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Ack.
    Covered,
    /// Render.
    NotCovered,
    /// Cannot be decided yet: wait, and do not render.
    TooClose {
        /// From this moment on it is [`Coverage::Covered`] or [`Coverage::NotCovered`].
        until_ms: u64,
    },
}

/// Whether `meta` covers the request. `freshness` is that of the same row at the same moment.
pub fn coverage(
    query: &CoverageQuery,
    meta: Option<&Meta>,
    freshness: Freshness,
    policy: &Policy,
    now_ms: u64,
) -> Coverage {
    match query.reason {
        Reason::Changed => changed(query.sent_ms, meta, policy.epsilon_ms, now_ms),
        Reason::Expired => covered_if(expired(query.sent_ms, meta, freshness, policy.epsilon_ms, now_ms)),
        Reason::Prewarm => {
            let current = meta.and_then(|meta| meta.deploy) >= Some(policy.deploy);
            // A purged page stays purged: a deployment is no reason to bring it back.
            let gone = freshness == Freshness::Gone;
            covered_if(gone || (current && freshness.satisfies()))
        }
    }
}

fn changed(sent_ms: u64, meta: Option<&Meta>, epsilon_ms: u64, now_ms: u64) -> Coverage {
    // A row without a believable render time covers no change: it may have read its source before
    // it.
    let Some(source_ms) = meta.and_then(|meta| meta.believable_source_ms(now_ms, epsilon_ms)) else {
        return Coverage::NotCovered;
    };
    let until_ms = sent_ms.saturating_add(epsilon_ms);
    if source_ms >= until_ms {
        return Coverage::Covered;
    }
    let surely_before = source_ms.saturating_add(epsilon_ms) < sent_ms;
    if surely_before || now_ms >= until_ms {
        return Coverage::NotCovered;
    }
    Coverage::TooClose { until_ms }
}

/// The sender saw the page expire, perhaps by a clock that is slightly ahead of this one. A page
/// that is about to expire therefore does not cover the request, unless it was rendered since.
fn expired(sent_ms: u64, meta: Option<&Meta>, freshness: Freshness, epsilon_ms: u64, now_ms: u64) -> bool {
    let source_ms = meta.and_then(|meta| meta.believable_source_ms(now_ms, epsilon_ms));
    let made_since = source_ms.is_some_and(|source_ms| source_ms >= sent_ms);
    match freshness {
        Freshness::Fresh { until_ms } => made_since || until_ms > now_ms.saturating_add(epsilon_ms),
        Freshness::Gone | Freshness::Bypass { due: None } => true,
        Freshness::Bypass { due: Some(_) } => made_since,
        Freshness::Stale { .. } | Freshness::Expired { .. } | Freshness::Missing => false,
    }
}

fn covered_if(covered: bool) -> Coverage {
    if covered { Coverage::Covered } else { Coverage::NotCovered }
}

#[cfg(test)]
#[path = "coverage_tests.rs"]
mod tests;

//! Whether a published page is good enough to serve.
//!
//! Serving function and worker use the same function. If they disagreed, readers would enqueue for
//! ever a regeneration that the worker does not consider necessary.

use everfresh_enqueue::Reason;

use crate::domain::bypass::{Bypass, LONGEST_CHECK_MS};
use crate::domain::health::Health;
use crate::domain::invalidations::Invalidations;
use crate::domain::page::Meta;
use crate::domain::seconds;

/// How long a page is said to be fresh while it is pinned, counted from now: short enough that a
/// CDN notices the unpin.
pub const PINNED_FRESH_MS: u64 = 60_000;

/// A page from further in the future than this comes from a broken clock. Far above honest skew.
pub const FUTURE_TOLERANCE_MS: u64 = 300_000;

/// The render of a row without `source_ms` is assumed to have begun this long before it finished:
/// the longest a Lambda function runs.
pub const UNKNOWN_RENDER_MS: u64 = 900_000;

/// What the running deployment requires of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Number of the running deployment.
    pub deploy: u64,
    /// How long a page may be served stale; none sets no end to it.
    pub max_stale_seconds: Option<u64>,
    /// Greater than the clock error that is left between workers and AWS.
    pub epsilon_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Serve it.
    Fresh {
        /// Until this moment, which is later than now.
        until_ms: u64,
    },
    /// Serve it, and enqueue a regeneration.
    Stale { why: Why },
    /// Stale for longer than the route allows: wait for a new one first.
    Expired { why: Why },
    /// It has never been published.
    Missing,
    /// It was purged. Only a `changed` request brings it back.
    Gone,
    /// The origin answers each reader by itself.
    Bypass {
        /// Why a check is due whether the page can be stored again; none while none is.
        due: Option<Why>,
    },
}

/// What made a page stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its life is over.
    Age,
    /// Its path, a prefix or a tag was invalidated after its render began.
    Invalidated,
    /// The same, and an operator wants readers to wait for a newer version.
    InvalidatedHard,
    /// An older deployment rendered it.
    Deployed,
    /// It claims to come from the future.
    Clock,
}

impl Freshness {
    /// The reason with which a reader enqueues a regeneration; none if none is needed.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Freshness::Fresh { .. } | Freshness::Gone | Freshness::Bypass { due: None } => None,
            Freshness::Missing => Some(Reason::Expired),
            Freshness::Stale { why } | Freshness::Expired { why } | Freshness::Bypass { due: Some(why) } => {
                Some(match why {
                    Why::Invalidated | Why::InvalidatedHard => Reason::Changed,
                    Why::Age | Why::Deployed | Why::Clock => Reason::Expired,
                })
            }
        }
    }

    /// Whether no regeneration is needed.
    pub fn satisfies(&self) -> bool {
        self.reason().is_none()
    }
}

/// The page's freshness at `now_ms`. META's `ttl` does not matter: it only lets DynamoDB delete old
/// rows.
///
/// In this order:
/// - no row is [`Freshness::Missing`], a tombstone [`Freshness::Gone`], whatever else is known;
/// - a bypass is [`Freshness::Bypass`], unchecked while it is pinned;
/// - a pinned page is fresh: an operator chose it, and no request would be rendered;
/// - a page whose render may have begun before its watermark is invalidated, and so is one whose
///   life was set to zero;
/// - a page of an older deployment, from the future, or older than its life is stale;
/// - a page that has been stale for `max_stale_seconds` is expired, and at once one that was
///   invalidated hard.
pub fn freshness(
    meta: Option<&Meta>,
    health: &Health,
    invalidations: &Invalidations,
    policy: &Policy,
    now_ms: u64,
) -> Freshness {
    let Some(meta) = meta else {
        return Freshness::Missing;
    };
    if meta.tombstone {
        return Freshness::Gone;
    }
    if let Some(bypass) = &meta.bypass {
        let due = || check_due(meta, bypass, health, invalidations, policy, now_ms);
        return Freshness::Bypass { due: if health.pinned() { None } else { due() } };
    }
    if health.pinned() {
        return Freshness::Fresh { until_ms: now_ms.saturating_add(PINNED_FRESH_MS) };
    }
    let Some((why, since_ms)) = stale_since(meta, health, invalidations, policy, now_ms) else {
        // A clock that jumped back must not make the page live longer than its life from now.
        let life_ms = seconds::to_ms(meta.revalidate_seconds);
        let until_ms = fresh_until_ms(meta).min(now_ms.saturating_add(life_ms));
        return Freshness::Fresh { until_ms };
    };
    let max_stale_ms = max_stale_seconds(meta, policy).map(seconds::to_ms);
    match max_stale_ms {
        Some(max_stale_ms) if now_ms >= since_ms.saturating_add(max_stale_ms) => Freshness::Expired { why },
        Some(_) | None if invalidated_hard(meta, health, invalidations, policy, now_ms) => {
            Freshness::Expired { why: Why::InvalidatedHard }
        }
        Some(_) | None => Freshness::Stale { why },
    }
}

/// How long this version may be served stale: the route's limit, or the origin's if it is shorter.
pub fn max_stale_seconds(meta: &Meta, policy: &Policy) -> Option<u64> {
    match (policy.max_stale_seconds, meta.max_stale_seconds) {
        (Some(route), Some(origin)) => Some(route.min(origin)),
        (route, origin) => route.or(origin),
    }
}

impl Meta {
    /// Whether the origin forbids serving this version by now, also while no other can be had: its
    /// life and the time for which it may be served stale are over.
    pub fn must_not_be_served(&self, policy: &Policy, now_ms: u64) -> bool {
        let stale_s = max_stale_seconds(self, policy);
        let ends_s = match self.stale_if_error_seconds {
            Some(if_error_s) => Some(if_error_s.max(stale_s.unwrap_or(0))),
            None => stale_s.filter(|_| self.must_revalidate),
        };
        let ended = |stale_s: u64| now_ms >= fresh_until_ms(self).saturating_add(seconds::to_ms(stale_s));
        ends_s.is_some_and(ended)
    }

    /// The same of a version that is [`Freshness::Expired`]: an invalidation may have expired it
    /// before its life was over. A hard one alone forbids nothing: readers wait, and are then served
    /// what its origin still allows.
    pub fn must_not_be_served_expired(&self, why: Why, policy: &Policy, now_ms: u64) -> bool {
        match (why, self.stale_if_error_seconds) {
            (Why::InvalidatedHard, _) | (_, Some(_)) => self.must_not_be_served(policy, now_ms),
            (Why::Age | Why::Invalidated | Why::Deployed | Why::Clock, None) => self.must_revalidate,
        }
    }
}

/// Whether the tenant's epoch is newer than the page, so that the page's own watermarks must be
/// read.
pub fn needs_watermarks(meta: &Meta, epoch_ms: Option<u64>, policy: &Policy, now_ms: u64) -> bool {
    epoch_ms.is_some_and(|epoch_ms| !began_after(meta, epoch_ms, policy.epsilon_ms, now_ms))
}

/// Why it should be tried whether a bypassed page can be stored again.
fn check_due(
    meta: &Meta,
    bypass: &Bypass,
    health: &Health,
    invalidations: &Invalidations,
    policy: &Policy,
    now_ms: u64,
) -> Option<Why> {
    if invalidated_ms(meta, health, invalidations, policy, now_ms).is_some() {
        return Some(Why::Invalidated);
    }
    let latest_ms = now_ms.saturating_add(LONGEST_CHECK_MS);
    if now_ms >= bypass.check_at_ms {
        return Some(Why::Age);
    }
    if bypass.check_at_ms > latest_ms {
        return Some(Why::Clock);
    }
    meta.deploy.is_some_and(|deploy| deploy < policy.deploy).then_some(Why::Deployed)
}

/// The newest watermark, unless the render surely began after it.
fn invalidated_ms(
    meta: &Meta,
    health: &Health,
    invalidations: &Invalidations,
    policy: &Policy,
    now_ms: u64,
) -> Option<u64> {
    // Always ε: the watermark is a reading of one clock, and `source_ms` is one of another.
    let newest_ms = health.path_watermark_ms.max(invalidations.watermark_ms);
    newest_ms.filter(|at| !began_after(meta, *at, policy.epsilon_ms, now_ms))
}

/// Whether an operator wants readers to wait for a version whose render surely began later.
fn invalidated_hard(meta: &Meta, health: &Health, invalidations: &Invalidations, policy: &Policy, now_ms: u64) -> bool {
    let newest_ms = health.path_hard_ms.max(invalidations.hard_ms);
    newest_ms.is_some_and(|at_ms| !began_after(meta, at_ms, policy.epsilon_ms, now_ms))
}

/// Why the page is stale, and since when; none while it is fresh.
fn stale_since(
    meta: &Meta,
    health: &Health,
    invalidations: &Invalidations,
    policy: &Policy,
    now_ms: u64,
) -> Option<(Why, u64)> {
    let generated_ms = seconds::to_ms(meta.generated_at);
    let ended_ms = fresh_until_ms(meta);

    if let Some(at) = invalidated_ms(meta, health, invalidations, policy, now_ms) {
        let ended_ms = if meta.revalidate_seconds == 0 { u64::MAX } else { ended_ms };
        return Some((Why::Invalidated, at.max(generated_ms).min(ended_ms)));
    }
    if meta.revalidate_seconds == 0 {
        return Some((Why::Invalidated, generated_ms));
    }
    if generated_ms > now_ms.saturating_add(FUTURE_TOLERANCE_MS) {
        // Its age is unknown, so it may still be served.
        return Some((Why::Clock, now_ms));
    }
    if now_ms >= ended_ms {
        return Some((Why::Age, ended_ms));
    }
    // A row without a deployment number is foreign: only its age counts.
    if meta.deploy.is_some_and(|deploy| deploy < policy.deploy) {
        return Some((Why::Deployed, ended_ms));
    }
    None
}

fn fresh_until_ms(meta: &Meta) -> u64 {
    seconds::to_ms(meta.generated_at.saturating_add(meta.revalidate_seconds))
}

/// Whether the render of `meta` surely began at or after `at_ms`, clocks being off by less than
/// `epsilon_ms`.
fn began_after(meta: &Meta, at_ms: u64, epsilon_ms: u64, now_ms: u64) -> bool {
    let began_ms = match meta.believable_source_ms(now_ms, epsilon_ms) {
        Some(source_ms) => source_ms,
        None => seconds::to_ms(meta.generated_at).saturating_sub(UNKNOWN_RENDER_MS),
    };
    began_ms >= at_ms.saturating_add(epsilon_ms)
}

#[cfg(test)]
#[path = "freshness_tests.rs"]
mod tests;

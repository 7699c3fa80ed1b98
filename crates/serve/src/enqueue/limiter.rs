//! Which regenerations page reads may enqueue.
//!
//! Many reads of one stale page are one enqueue. After it, the instance suppresses the same one for
//! a window that doubles each time. The window always ends, because the regeneration may have
//! failed. A crawler that reads every page of a tenant is held to the tenant's rate limit.
//!
//! There are three token buckets, so that invented paths keep no page from being refreshed: for
//! published pages; for the first render of paths that match a route of their own, which a cold
//! site needs in great number; and for all other paths without a page. An enqueue that fails returns
//! its token.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::{PageKey, Tenant};
use everfresh_core::domain::request::Reason;
use everfresh_core::ledger::Seen;
use lru::LruCache;

use crate::token_bucket::TokenBucket;

/// How long the first enqueue for a version suppresses others.
const FIRST_WINDOW_MS: u64 = 5_000;
const LONGEST_WINDOW_MS: u64 = 300_000;

/// An enqueue that was evicted may be repeated, which does no harm.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// What is suppressed together. Another reason has a window of its own: two that alternate do not
/// reset each other's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestKey {
    pub(super) page: PageKey,
    pub(super) reason: Reason,
    /// S3 does not have the body.
    pub(super) lost: bool,
    /// Nothing is published yet, and the path matches a route of its own: one that does not end in
    /// `{*rest}`, which every invented path matches.
    pub(super) is_first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Allowed,
    /// This instance has enqueued the same a moment ago.
    Suppressed,
    /// The tenant's rate limit is exceeded.
    RateLimited,
}

#[derive(Debug)]
pub(super) struct EnqueueLimiter {
    sent: LruCache<RequestKey, Sent>,
    buckets: HashMap<(Tenant, Bucket), TokenBucket>,
    rates: Rates,
}

/// How many regenerations a tenant's reads may enqueue a minute through this instance, and as many
/// at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// Of published pages; and as many again of paths without a page.
    pub(super) per_minute: u32,
    /// Of pages that were never rendered, on a route of their own.
    pub(super) first_per_minute: u32,
}

/// Which of a tenant's token buckets is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bucket {
    Pages,
    /// Nothing was rendered yet, and the path matches a route of its own.
    FirstRender,
    /// Nothing is published, or a bypass, a 404 or a redirect: what an invented path gets.
    NoPage,
}

impl Bucket {
    fn of(meta: Option<&Meta>, is_first: bool) -> Self {
        if is_first {
            return Bucket::FirstRender;
        }
        // A foreign row has no status, and is a page.
        match meta.filter(|meta| meta.has_body()).map(|meta| meta.status.unwrap_or(200)) {
            Some(200) => Bucket::Pages,
            Some(_) | None => Bucket::NoPage,
        }
    }
}

#[derive(Debug)]
struct Sent {
    /// The version at that time.
    seen: Seen,
    bucket: Bucket,
    at_ms: u64,
    window_ms: u64,
}

impl EnqueueLimiter {
    pub(super) fn new(rates: Rates) -> Self {
        Self { sent: LruCache::new(CAPACITY), buckets: HashMap::new(), rates }
    }

    /// Decides with the published version. After [`Permit::Allowed`] the caller sends, or calls
    /// [`Self::failed`].
    pub(super) fn decide(&mut self, key: RequestKey, meta: Option<&Meta>, now_ms: u64) -> Permit {
        let (seen, bucket) = (Seen::of(meta), Bucket::of(meta, key.is_first));
        let before = self.sent.get(&key).filter(|sent| sent.seen == seen);
        // A clock that jumped back must not suppress for longer than the window.
        if before.is_some_and(|sent| now_ms.abs_diff(sent.at_ms) < sent.window_ms) {
            return Permit::Suppressed;
        }
        let window_ms = before.map_or(FIRST_WINDOW_MS, |sent| (sent.window_ms * 2).min(LONGEST_WINDOW_MS));
        if !self.take_token((key.page.tenant().clone(), bucket), now_ms) {
            return Permit::RateLimited;
        }
        self.sent.put(key, Sent { seen, bucket, at_ms: now_ms, window_ms });
        Permit::Allowed
    }

    /// As [`Self::decide`], whatever was enqueued before. False if the tenant's rate limit is
    /// exceeded.
    pub(super) fn decide_again(&mut self, key: RequestKey, meta: Option<&Meta>, now_ms: u64) -> bool {
        let (seen, bucket) = (Seen::of(meta), Bucket::of(meta, key.is_first));
        let window_ms = self.sent.get(&key).filter(|sent| sent.seen == seen).map(|sent| sent.window_ms);
        let allowed = self.take_token((key.page.tenant().clone(), bucket), now_ms);
        if allowed {
            let window_ms = window_ms.unwrap_or(FIRST_WINDOW_MS);
            self.sent.put(key, Sent { seen, bucket, at_ms: now_ms, window_ms });
        }
        allowed
    }

    /// The message did not reach SQS: the next read may try again, and the token is returned.
    pub(super) fn failed(&mut self, key: &RequestKey) {
        let Some(sent) = self.sent.pop(key) else { return };
        if let Some(tokens) = self.buckets.get_mut(&(key.page.tenant().clone(), sent.bucket)) {
            tokens.put_back();
        }
    }

    fn take_token(&mut self, bucket: (Tenant, Bucket), now_ms: u64) -> bool {
        let per_minute = match bucket.1 {
            Bucket::Pages | Bucket::NoPage => self.rates.per_minute,
            Bucket::FirstRender => self.rates.first_per_minute,
        };
        self.buckets.entry(bucket).or_insert_with(|| TokenBucket::new(per_minute, now_ms)).take(now_ms)
    }
}

#[cfg(test)]
#[path = "limiter_tests.rs"]
mod tests;

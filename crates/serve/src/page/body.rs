//! From the published version to its body; without it, to the last body that was served, or to a
//! regenerated one.

use std::sync::Arc;

use everfresh_core::artifacts::StoredBody;
use everfresh_core::domain::page::Meta;
use everfresh_core::metrics;

use super::error::PageError;
use super::{Found, PageRead};
use crate::cache::bodies::Fetched;
use crate::cache::ledger_reads::Until;
use crate::cache::snapshot::{CachedPage, PageSnapshot};
use crate::enqueue::EnqueueDecision;
use crate::http::cache_status::Outage;
use crate::log_throttle::Problem;
use crate::server::RETRY_AFTER;

/// A version and its body: what a response is built from.
pub(super) struct PageContent {
    /// The page's state, whose `meta` is the published version.
    pub(super) snapshot: PageSnapshot,
    /// The version that `body` belongs to: the published one, or an older one in its place.
    pub(super) meta: Arc<Meta>,
    pub(super) body: Arc<StoredBody>,
    /// No call was made to DynamoDB or S3.
    pub(super) from_cache: bool,
    pub(super) outage: Option<Outage>,
    /// The key of the published body, if S3 does not have it.
    pub(super) lost: Option<String>,
}

impl PageContent {
    /// Whether this is another version than the published one.
    pub(super) fn is_fallback(&self) -> bool {
        let published = self.snapshot.meta.as_ref();
        published.is_some_and(|meta| (meta.version, &meta.s3_key) != (self.meta.version, &self.meta.s3_key))
    }
}

impl PageRead<'_> {
    /// The published body; without it, the last one that was served.
    pub(super) async fn content(&self, cached: CachedPage) -> Result<Found, PageError> {
        let CachedPage { snapshot, from_cache, outage } = cached;
        let Some(meta) = snapshot.meta.clone() else { return Err(self.not_ready(RETRY_AFTER, "waiting")) };
        let has_fallback = self.last_served().is_some();
        match self.server.cache.body(self.routed.page, &meta, has_fallback).await {
            Fetched::Found { body, from_cache: body_from_cache } => {
                let from_cache = body_from_cache && from_cache;
                Ok(Found::Content(PageContent { snapshot, meta, body, from_cache, outage, lost: None }))
            }
            Fetched::Unavailable => {
                self.server.metrics.count(metrics::S3_OUTAGE);
                // Looked up again: another request may have seen the page taken down meanwhile.
                let Some((meta, body)) = self.last_served() else {
                    return Err(self.not_ready(RETRY_AFTER, Outage::S3.as_str()));
                };
                let outage = Some(Outage::S3);
                Ok(Found::Content(PageContent { snapshot, meta, body, from_cache: false, outage, lost: None }))
            }
            Fetched::Missing => self.without_body(snapshot, &meta.s3_key).await,
        }
    }

    /// The row points at an object that S3 does not have. A newer version may have been published
    /// meanwhile, which one more read shows.
    async fn without_body(&self, mut snapshot: PageSnapshot, lost: &str) -> Result<Found, PageError> {
        let cache = &self.server.cache;
        if let Ok(newer) = cache.read_consistent(self.routed.page, &self.routed.policy).await {
            if let Some(content) = self.other_body(&newer, lost).await? {
                return Ok(content);
            }
            snapshot = newer;
        }
        self.server.metrics.count(metrics::BODIES_LOST);
        if self.server.log.should_log(Problem::BodyLost, self.routed.page) {
            let (page, bucket) = (self.routed.page.logged(), &self.server.settings.bucket);
            tracing::error!(%page, bucket, s3_key = lost, "the published body of {page} is gone from {bucket}: {lost}");
        }
        if let Some((meta, body)) = self.last_served() {
            let lost = Some(lost.to_owned());
            return Ok(Found::Content(PageContent { snapshot, meta, body, from_cache: false, outage: None, lost }));
        }
        // Without a queue no regeneration starts, and the origin answers at once.
        let passes = self.tenant.has_origin();
        if passes && self.server.enqueuer.is_suspended() {
            return Err(self.not_ready(RETRY_AFTER, "body-lost"));
        }
        if let EnqueueDecision::Enqueue(enqueue) = self.decide(&snapshot, Some(lost))
            && !self.server.enqueuer.send(enqueue).await
            && passes
        {
            return Err(self.not_ready(RETRY_AFTER, "body-lost"));
        }
        let until = Until::OtherBody(lost.to_owned());
        if let Some(newer) = cache.wait(self.routed.page, &self.routed.policy, until, self.wait_time()).await
            && let Some(content) = self.other_body(&newer, lost).await?
        {
            return Ok(content);
        }
        Err(self.not_ready(RETRY_AFTER, "body-lost"))
    }

    /// The last version that was served, unless its origin forbids serving it any longer.
    fn last_served(&self) -> Option<(Arc<Meta>, Arc<StoredBody>)> {
        let now_ms = self.server.now_ms();
        self.server
            .cache
            .last_served(self.routed.page)
            .filter(|(meta, _)| !meta.must_not_be_served(&self.routed.policy, now_ms))
    }

    /// The snapshot's body in place of the lost one. None if it still points at the lost one, or at
    /// another that cannot be read.
    async fn other_body(&self, snapshot: &PageSnapshot, lost: &str) -> Result<Option<Found>, PageError> {
        let Some(meta) = snapshot.meta.clone() else { return Ok(None) };
        if meta.tombstone {
            // Purged meanwhile: a regeneration enqueued now would bring the page back.
            return Err(PageError::Gone);
        }
        if let Some(bypass) = meta.bypass {
            return Ok(Some(Found::Bypass(CachedPage::from_ledger(snapshot.clone()), bypass)));
        }
        if meta.s3_key == lost {
            return Ok(None);
        }
        let Fetched::Found { body, .. } = self.server.cache.body(self.routed.page, &meta, false).await else {
            return Ok(None);
        };
        let snapshot = snapshot.clone();
        Ok(Some(Found::Content(PageContent { snapshot, meta, body, from_cache: false, outage: None, lost: None })))
    }

    /// The cached content, once the response deadline has passed.
    pub(super) fn out_of_time(&self) -> Result<Found, PageError> {
        if self.server.log.should_log(Problem::DeadlineExceeded, self.routed.page) {
            let page = self.routed.page.logged();
            tracing::warn!(%page, "response deadline of {page} exceeded: DynamoDB, S3 and SQS took too long together");
        }
        let cache = &self.server.cache;
        let Some(snapshot) = cache.cached(self.routed.page) else {
            return Err(self.not_ready(RETRY_AFTER, Outage::Time.as_str()));
        };
        if snapshot.meta.as_ref().is_some_and(|meta| meta.tombstone) {
            return Err(PageError::Gone);
        }
        if let Some(bypass) = snapshot.meta.as_ref().and_then(|meta| meta.bypass) {
            let cached = CachedPage { snapshot, from_cache: true, outage: Some(Outage::Time) };
            return Ok(Found::Bypass(cached, bypass));
        }
        let Some((meta, body)) = self.last_served() else {
            return Err(self.not_ready(RETRY_AFTER, Outage::Time.as_str()));
        };
        let outage = Some(Outage::Time);
        Ok(Found::Content(PageContent { snapshot, meta, body, from_cache: false, outage, lost: None }))
    }
}

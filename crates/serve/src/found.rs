//! From what is published to its body; if that cannot be had, to the last one that could, or to a new one.

use std::sync::Arc;

use everfresh_core::artifacts::StoredBody;
use everfresh_core::domain::artifact::locate;
use everfresh_core::domain::page::Meta;
use everfresh_core::metrics;

use crate::bodies::{BodyName, Fetched};
use crate::pages::CachedPage;
use crate::remarks::Remark;
use crate::rules::cache_status::Outage;
use crate::rules::page_error::PageError;
use crate::serve::{PageRead, RETRY_AFTER, Server};
use crate::sights::{PageSnapshot, Until};
use crate::wish::EnqueueDecision;

/// What can be answered with.
pub(crate) struct PageContent {
    pub(crate) look: CachedPage,
    pub(crate) meta: Arc<Meta>,
    pub(crate) body: Arc<StoredBody>,
    pub(crate) from_memory: bool,
    pub(crate) outage: Option<Outage>,
    /// The published body is gone, and this is another one.
    pub(crate) lost: Option<String>,
}

impl PageContent {
    /// Whether this is an older version than the one that is published.
    pub(crate) fn stands_in(&self) -> bool {
        let published = self.look.sight.meta.as_ref();
        published.is_some_and(|meta| (meta.version, &meta.s3_key) != (self.meta.version, &self.meta.s3_key))
    }
}

impl Server {
    /// The body of what is published; if it cannot be had, the last one that could.
    pub(crate) async fn body(&self, visit: &PageRead<'_>, look: CachedPage) -> Result<PageContent, PageError> {
        let Some(meta) = look.sight.meta.clone() else { return Err(self.not_yet(visit, RETRY_AFTER, "waiting")) };
        let good = self.good(visit);
        match self.fetch(visit, &meta, good.is_some()).await {
            Fetched::Here { body, from_memory } => {
                let from_memory = from_memory && look.from_memory;
                let outage = look.outage;
                Ok(PageContent { look, meta, body, from_memory, outage, lost: None })
            }
            Fetched::Down => {
                self.count(metrics::S3_OUTAGE);
                let Some((meta, body)) = good else {
                    return Err(self.not_yet(visit, RETRY_AFTER, Outage::S3.as_str()));
                };
                Ok(PageContent { look, meta, body, from_memory: false, outage: Some(Outage::S3), lost: None })
            }
            Fetched::Missing => self.without_body(visit, look, &meta.s3_key, good).await,
        }
    }

    /// META points at nothing. Usually a newer version has come and the old body has gone: one more look tells.
    async fn without_body(
        &self,
        visit: &PageRead<'_>,
        mut look: CachedPage,
        lost: &str,
        good: Option<(Arc<Meta>, Arc<StoredBody>)>,
    ) -> Result<PageContent, PageError> {
        if let Ok(sight) = self.pages.look_again(visit.page, &visit.policy).await {
            if let Some(found) = self.other_body(visit, &sight, lost).await? {
                return Ok(found);
            }
            look.sight = sight;
        }
        let page = visit.page;
        self.count(metrics::BODIES_LOST);
        if self.remarks.due(Remark::BodyLost, page) {
            let (page, bucket) = (page.logged(), self.bodies.bucket());
            tracing::error!(%page, key = lost, "the published body of {page} is gone from {bucket}: {lost}");
        }
        if let Some((meta, body)) = good {
            let lost = Some(lost.to_owned());
            return Ok(PageContent { look, meta, body, from_memory: false, outage: None, lost });
        }
        if let EnqueueDecision::Ask(wish) = self.asking(visit, &look.sight, Some(lost)) {
            self.ask(wish).await;
        }
        let until = Until::OtherBody(lost.to_owned());
        if let Some(sight) = self.pages.wait(visit.page, &visit.policy, until, self.patience(visit)).await
            && let Some(found) = self.other_body(visit, &sight, lost).await?
        {
            return Ok(found);
        }
        Err(self.not_yet(visit, RETRY_AFTER, "body-lost"))
    }

    /// What this sight has in place of the lost body. Nothing if it points at that one still, or at another that cannot be had.
    async fn other_body(
        &self,
        visit: &PageRead<'_>,
        sight: &PageSnapshot,
        lost: &str,
    ) -> Result<Option<PageContent>, PageError> {
        let Some(meta) = sight.meta.clone() else { return Ok(None) };
        if meta.tombstone {
            // Purged meanwhile. To ask for it now would be to ask for it back.
            return Err(PageError::Gone);
        }
        if meta.s3_key == lost {
            return Ok(None);
        }
        let Fetched::Here { body, .. } = self.fetch(visit, &meta, false).await else { return Ok(None) };
        let look = CachedPage::new(sight.clone());
        Ok(Some(PageContent { look, meta, body, from_memory: false, outage: None, lost: None }))
    }

    /// The object that a version points at, if it may be read. A pointer that leads elsewhere leads nowhere (I7).
    async fn fetch(&self, visit: &PageRead<'_>, meta: &Meta, spare: bool) -> Fetched {
        match locate(&meta.s3_key, self.bodies.bucket(), visit.tenant(), self.settings.layout) {
            Ok(key) => self.bodies.fetch(&BodyName::new(key, meta), spare).await,
            Err(error) => {
                let page = visit.page;
                if self.remarks.due(Remark::Pointer, page) {
                    let page = page.logged();
                    tracing::error!(%page, %error, "{page} cannot be served: {error}");
                }
                Fetched::Missing
            }
        }
    }

    /// What memory can answer with when the visit's time is over, however that came.
    pub(crate) fn out_of_time(&self, visit: &PageRead<'_>) -> Result<PageContent, PageError> {
        let page = visit.page;
        if self.remarks.due(Remark::OutOfTime, page) {
            let page = page.logged();
            tracing::warn!(%page, "table, bucket and queue together took too long for a reader of {page}");
        }
        let (Some(sight), Some((meta, body))) = (self.pages.remembered(page), self.good(visit)) else {
            return Err(self.not_yet(visit, RETRY_AFTER, Outage::Time.as_str()));
        };
        if sight.meta.as_ref().is_some_and(|meta| meta.tombstone) {
            return Err(PageError::Gone);
        }
        let outage = Some(Outage::Time);
        let look = CachedPage { sight, from_memory: true, outage };
        Ok(PageContent { look, meta, body, from_memory: false, outage, lost: None })
    }

    /// The last version whose body was served, if memory still has both.
    fn good(&self, visit: &PageRead<'_>) -> Option<(Arc<Meta>, Arc<StoredBody>)> {
        let meta = self.pages.good(visit.page)?;
        let key = locate(&meta.s3_key, self.bodies.bucket(), visit.tenant(), self.settings.layout).ok()?;
        let body = self.bodies.remembered(&BodyName::new(key, &meta))?;
        Some((meta, body))
    }
}

//! The page flow: from a request to a reply, fresh, or stale with a regeneration to enqueue.
//!
//! Read `Server::page` first, then `PageRead::find`.
//!
//! | Where | What |
//! |---|---|
//! | `find` | look up the page, wait for a regeneration if it is missing or expired |
//! | `body` | the body of the published version, or the last good one |
//! | `respond` | from the content to the reply |
//! | `after_write` | the pages that an unsafe request has probably changed |
//! | `recent_writes` | visitors who have just written to a page |
//! | [`error`] | requests that are answered without a page |

mod after_write;
mod body;
pub mod error;
mod find;
pub(crate) mod recent_writes;
mod respond;

use std::time::Duration;

use everfresh_core::config::{Destination, Resolved, Route, TenantConfig};
use everfresh_core::domain::bypass::{Bypass, BypassReason};
use everfresh_core::domain::freshness::Policy;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::metrics;
use tokio::time::{Instant, timeout_at};

use crate::cache::snapshot::CachedPage;
use crate::enqueue::{Enqueue, RoutedPage};
use crate::http::{Method, Request};
use crate::pass::PassReason;
use crate::server::{Served, Server};
use body::PageContent;
use error::PageError;

/// What is behind a page's path.
enum Found {
    Content(PageContent),
    /// The version says that the origin answers each reader.
    Bypass(CachedPage, Bypass),
}

/// What a read of a stored page leads to.
enum Stored {
    Served(Box<Served>),
    Bypass {
        reason: BypassReason,
        /// The status with which the renderer answered.
        status: Option<u16>,
        /// The check whether the page can be stored again, if one is due.
        enqueue: Option<Enqueue>,
    },
}

/// One read of one page.
struct PageRead<'a> {
    server: &'a Server,
    tenant: &'a TenantConfig,
    routed: RoutedPage<'a>,
    /// When the response must be ready.
    deadline: Instant,
    /// The read has waited for a regeneration.
    waited: bool,
    /// The read has enqueued a regeneration before its reply.
    enqueued: bool,
}

impl Server {
    pub(crate) async fn serve_page(&self, request: &Request) -> Served {
        match self.page(request).await {
            Ok(served) => served,
            Err(error) => {
                self.metrics.count(error.metric());
                error.reply_to(request).into()
            }
        }
    }

    /// tenant → preview, or what is behind the path: its page, or the tenant's origin.
    async fn page(&self, request: &Request) -> Result<Served, PageError> {
        let began = Instant::now();
        let tenant = self.tenant(request).ok_or(PageError::Host)?;
        let method = Method::parse(&request.method);
        if method.is_none() && !tenant.has_origin() {
            return Err(PageError::Method);
        }
        if let Some(method) = method
            && self.previews.is_preview(request, tenant)
        {
            return Box::pin(self.previews.fetch(request, method, tenant)).await.map(Served::from);
        }
        match tenant.destination(&request.target)? {
            Destination::Page(resolved) => self.page_or_pass(request, method, tenant, resolved, began).await,
            Destination::Origin(how) => {
                // A write to an asset's path is no request for the file.
                let reason = if method.is_some() { how.into() } else { PassReason::Route };
                let served = self.pass(request, tenant, reason, began).await?;
                Ok(self.after_write(request, tenant, served).await)
            }
            Destination::NotFound => Err(PageError::NoRoute),
        }
    }

    async fn page_or_pass(
        &self,
        request: &Request,
        method: Option<Method>,
        tenant: &TenantConfig,
        resolved: Resolved<'_>,
        began: Instant,
    ) -> Result<Served, PageError> {
        let Resolved { page, route, .. } = resolved;
        let policy = route.policy(self.settings.deploy, self.settings.epsilon_ms);
        if tenant.has_origin() {
            let trusts_proxy = self.passes.trusts_proxy();
            if let Some(reason) = PassReason::of_page_request(request, &route.pass_when, trusts_proxy) {
                let served = self.pass(request, tenant, reason, began).await?;
                return Ok(self.after_write(request, tenant, served).await);
            }
            if self.has_unseen_write(request, &page, &policy).await {
                return self.pass(request, tenant, PassReason::NotReady("written"), began).await;
            }
        }
        let method = method.ok_or(PageError::Method)?;
        match self.stored_page(request, method, tenant, (&page, route), began).await {
            Ok(Stored::Served(served)) => Ok(*served),
            Ok(Stored::Bypass { reason, enqueue, .. }) if tenant.has_origin() => {
                let served = self.pass(request, tenant, PassReason::Bypass(reason), began).await?;
                Ok(Served { enqueues: enqueue.into_iter().collect(), ..served })
            }
            Ok(Stored::Bypass { reason, status, .. }) => Err(PageError::Bypassed { status, reason }),
            // Waiting has collapsed a herd of readers, and the origin can still answer this one.
            Err(PageError::NotYet { detail, .. }) if tenant.has_origin() => {
                self.pass(request, tenant, PassReason::NotReady(detail), began).await
            }
            Err(error) => Err(error),
        }
    }

    /// content → reply, and the regeneration to enqueue after it.
    async fn stored_page(
        &self,
        request: &Request,
        method: Method,
        tenant: &TenantConfig,
        (page, route): (&PageKey, &Route),
        began: Instant,
    ) -> Result<Stored, PageError> {
        let deadline = began + Duration::from_millis(self.settings.response_deadline_ms);
        let policy = route.policy(self.settings.deploy, self.settings.epsilon_ms);
        let own_route = !route.path.ends_in_rest();
        let routed = RoutedPage { page, policy, own_route };
        let mut read = PageRead { server: self, tenant, routed, deadline, waited: false, enqueued: false };
        // Each call has its own timeout, but one read may make many calls.
        let found = match timeout_at(deadline, read.find()).await {
            Ok(found) => found?,
            Err(_) => read.out_of_time()?,
        };
        let content = match found {
            Found::Content(content) => content,
            Found::Bypass(cached, bypass) => {
                let enqueue = read.check(&cached.snapshot);
                let status = cached.snapshot.meta.as_deref().and_then(|meta| meta.status);
                return Ok(Stored::Bypass { reason: bypass.reason, status, enqueue });
            }
        };
        let reads = self.cache.record_served(page, &content.meta);
        let enqueue = read.regeneration(&content, reads);
        let reply = read.respond(request, method, &content, enqueue.is_some());
        let enqueues = enqueue.into_iter().collect();
        Ok(Stored::Served(Box::new(Served { reply, enqueues, stream: None })))
    }

    /// Within the time that is left since the request `began`: the function must not be cut off.
    async fn pass(
        &self,
        request: &Request,
        tenant: &TenantConfig,
        reason: PassReason,
        began: Instant,
    ) -> Result<Served, PageError> {
        self.metrics.count(metrics::PASSED);
        let host = self.host(request).unwrap_or_default();
        let time = Duration::from_millis(self.settings.pass_deadline_ms).saturating_sub(began.elapsed());
        // On the heap, so that a read of a stored page does not carry an exchange with the origin.
        Box::pin(self.passes.pass(request, tenant, host, reason, time)).await
    }

    /// Whether this visitor has just written to the page, and the stored one does not show it.
    async fn has_unseen_write(&self, request: &Request, page: &PageKey, policy: &Policy) -> bool {
        let Some(visitor) = request.client.as_deref().filter(|_| !self.recent_writes.is_empty()) else { return false };
        if !self.recent_writes.is_unseen(visitor, page, None, self.now_ms()) {
            return false;
        }
        // Without DynamoDB nothing shows it.
        let Ok(cached) = self.cache.lookup(page, policy).await else { return true };
        self.recent_writes.is_unseen(visitor, page, cached.snapshot.meta.as_deref(), self.now_ms())
    }
}

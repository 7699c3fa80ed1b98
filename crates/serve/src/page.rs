//! The page flow: from a request to a reply, fresh, or stale with a regeneration to enqueue.
//!
//! Read `Server::page` first, then `PageRead::find`.
//!
//! | Where | What |
//! |---|---|
//! | `find` | look up the page, wait for a regeneration if it is missing or expired |
//! | `content` | the body of the published version, or the last good one |
//! | `respond` | from the content to the reply |
//! | [`error`] | requests that are answered without a page |

mod content;
pub mod error;
mod find;
mod respond;

use std::time::Duration;

use everfresh_core::config::{Resolved, TenantConfig};
use everfresh_core::domain::freshness::Policy;
use everfresh_core::domain::page_key::PageKey;
use tokio::time::{Instant, timeout_at};

use crate::http::{Method, Request};
use crate::server::{Served, Server};
use error::PageError;

/// One read of one page.
struct PageRead<'a> {
    server: &'a Server,
    tenant: &'a TenantConfig,
    page: &'a PageKey,
    policy: Policy,
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

    /// method → tenant → page → content → reply, and the regeneration to enqueue after it.
    async fn page(&self, request: &Request) -> Result<Served, PageError> {
        let deadline = Instant::now() + Duration::from_millis(self.settings.response_deadline_ms);
        let method = Method::parse(&request.method).ok_or(PageError::Method)?;
        let tenant = self.tenant(request).ok_or(PageError::Host)?;
        if self.previews.is_preview(request, tenant) {
            return self.previews.fetch(request, method, tenant).await.map(Served::from);
        }
        let Resolved { page, route, .. } = tenant.resolve(&request.target)?;
        let policy = route.policy(self.settings.deploy, self.settings.epsilon_ms);
        let mut read = PageRead { server: self, tenant, page: &page, policy, deadline, waited: false, enqueued: false };
        // Each call has its own timeout, but one read may make many calls.
        let content = match timeout_at(deadline, read.find()).await {
            Ok(found) => found?,
            Err(_) => read.out_of_time()?,
        };
        let reads = self.cache.record_served(&page, &content.meta);
        let enqueue = read.regeneration(&content, reads);
        let reply = read.respond(request, method, &content, enqueue.is_some());
        Ok(Served { reply, enqueue })
    }
}

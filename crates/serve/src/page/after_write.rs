//! After an unsafe method that was no error, the pages that have probably changed: the request's
//! own, and those on this site that the answer names in `Location` and `Content-Location` (RFC
//! 9111, section 4.4).

use everfresh_core::config::{Destination, TenantConfig};
use everfresh_core::domain::freshness::Policy;
use everfresh_core::domain::page_key::PageKey;

use crate::enqueue::Enqueue;
use crate::http::{Reply, Request, reference};
use crate::server::{Served, Server};

impl Server {
    /// Enqueues the pages after the reply, and remembers them as written by this visitor.
    pub(super) async fn after_write(&self, request: &Request, tenant: &TenantConfig, mut served: Served) -> Served {
        if !may_have_changed(&request.method, served.reply.status) {
            return served;
        }
        let mut written = Vec::new();
        for target in targets(request, self.host(request).unwrap_or_default(), &served.reply) {
            let Ok(Destination::Page(resolved)) = tenant.destination(&target) else { continue };
            if !written.contains(&resolved.page) {
                let policy = resolved.route.policy(self.settings.deploy, self.settings.epsilon_ms);
                served.enqueues.extend(self.page_written(request, &resolved.page, &policy).await);
                written.push(resolved.page);
            }
        }
        served
    }

    async fn page_written(&self, request: &Request, page: &PageKey, policy: &Policy) -> Option<Enqueue> {
        // Without a snapshot nothing is known to be published, so nothing has to be regenerated.
        let cached = self.cache.lookup(page, policy).await.ok()?;
        if let Some(visitor) = &request.client {
            self.recent_writes.remember(visitor, page, cached.snapshot.meta.as_deref(), self.now_ms());
        }
        self.enqueuer.decide_written(page, &cached.snapshot)
    }
}

/// Whether the answer to an unsafe method was no error, so that pages have probably changed.
fn may_have_changed(method: &str, status: u16) -> bool {
    let safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
    !safe && (200..400).contains(&status)
}

/// Path and query of the request and of what its answer names on the same host.
fn targets(request: &Request, host: &str, reply: &Reply) -> Vec<String> {
    let scheme = if request.is_encrypted { "https" } else { "http" };
    let named = ["location", "content-location"].into_iter().filter_map(|name| reply.header(name));
    let named = named.filter_map(|named| reference::target_on_site(named, &request.target, scheme, host));
    std::iter::once(request.target.clone()).chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unsafe_methods_without_error_change_a_page() {
        assert!(may_have_changed("POST", 303) && may_have_changed("DELETE", 204));
        assert!(!may_have_changed("GET", 200) && !may_have_changed("OPTIONS", 204) && !may_have_changed("POST", 422));
    }
}

//! From the content to the reply.

use everfresh_core::domain::freshness::{Freshness, Why};
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::seconds;
use everfresh_core::metrics;

use super::PageRead;
use super::body::PageContent;
use crate::http::cache_status::CacheStatus;
use crate::http::page_response::PageResponse;
use crate::http::{Method, Reply, Request};

impl PageRead<'_> {
    pub(super) fn respond(&self, request: &Request, method: Method, content: &PageContent, enqueues: bool) -> Reply {
        let now_ms = self.server.now_ms();
        let freshness = self.served_freshness(content, now_ms);
        let (ttl, stale_ms) = ttl(&freshness, &content.meta, now_ms);
        let cache_status = match (self.waited, &freshness) {
            (true, Freshness::Fresh { .. }) => CacheStatus::Waited { ttl },
            _ => CacheStatus::Hit { freshness, ttl, outage: content.outage },
        };
        let settings = &self.server.settings;
        let tags = settings.tag_header.as_deref().map(|name| (name, self.cdn_tags(&content.meta)));
        let response = PageResponse {
            meta: &content.meta,
            body: &content.body,
            freshness,
            stale_ms,
            policy: self.routed.policy,
            cache_status,
            stands_in: content.outage.is_some(),
            tags: tags.as_ref().map(|(name, value)| (*name, value.as_str())),
        };
        let reply = response.reply(request, method, now_ms);
        self.record(content, &reply, stale_ms);
        if settings.debug_header {
            reply.with("x-everfresh-debug", self.debug(content, &cache_status, enqueues))
        } else {
            reply
        }
    }

    /// How fresh the served version is. An older one in place of the published one is never fresh,
    /// so that no cache keeps it for the rest of its lifetime.
    fn served_freshness(&self, content: &PageContent, now_ms: u64) -> Freshness {
        let mut snapshot = content.snapshot.clone();
        snapshot.meta = Some(content.meta.clone());
        let freshness = snapshot.freshness(&self.routed.policy, now_ms);
        if content.is_fallback() && matches!(freshness, Freshness::Fresh { .. }) {
            return Freshness::Stale { why: Why::Age };
        }
        freshness
    }

    fn record(&self, content: &PageContent, reply: &Reply, stale_ms: u64) {
        let metrics = &self.server.metrics;
        metrics.record(metrics::STALENESS, stale_ms);
        if content.from_cache {
            metrics.count(metrics::MEMORY_HITS);
        }
        if reply.status == 304 {
            metrics.count(metrics::NOT_MODIFIED);
        }
    }

    /// The page's tags for the CDN, each with its tenant: two tenants may use the same tag. The
    /// page's own tag comes first, because a CDN reads a limited number.
    fn cdn_tags(&self, meta: &Meta) -> String {
        let tags = meta.tags.iter().map(|tag| tag.for_cdn(self.routed.page.tenant()));
        let tags: Vec<String> = std::iter::once(self.routed.page.for_cdn()).chain(tags).collect();
        tags.join(",")
    }

    fn debug(&self, content: &PageContent, cache_status: &CacheStatus, enqueues: bool) -> String {
        let page = self.routed.page.hash();
        let version = content.meta.version.map_or("foreign".to_owned(), |version| version.to_string());
        let from = if content.from_cache { "memory" } else { "store" };
        format!("page={page}; version={version}; from={from}; enqueues={enqueues}; why=\"{cache_status}\"")
    }
}

/// Seconds until the page becomes stale, negative if it is; and for how many milliseconds it has
/// been.
fn ttl(freshness: &Freshness, meta: &Meta, now_ms: u64) -> (i64, u64) {
    let ends_ms = match freshness {
        Freshness::Fresh { until_ms } => *until_ms,
        Freshness::Stale { .. }
        | Freshness::Expired { .. }
        | Freshness::Missing
        | Freshness::Gone
        | Freshness::Bypass { .. } => {
            // An invalidation or a deployment may have ended its lifetime early.
            seconds::to_ms(meta.generated_at.saturating_add(meta.revalidate_seconds)).min(now_ms)
        }
    };
    let left_ms = i64::try_from(ends_ms).unwrap_or(i64::MAX).saturating_sub_unsigned(now_ms);
    (left_ms.div_euclid(1000), now_ms.saturating_sub(ends_ms))
}

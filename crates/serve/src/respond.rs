//! From what was found to the reply.

use everfresh_core::domain::freshness::{Freshness, Why};
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::seconds;
use everfresh_core::metrics;

use crate::found::PageContent;
use crate::reply::Reply;
use crate::request::{Method, Request};
use crate::rules::cache_status::Did;
use crate::rules::page::{self, Page};
use crate::serve::{Before, PageRead, Server};

impl Server {
    /// The page as the reader gets it.
    pub(crate) fn respond(
        &self,
        request: &Request,
        method: Method,
        visit: &PageRead<'_>,
        found: &PageContent,
        before: Before,
        asks: bool,
    ) -> Reply {
        let now_ms = self.now_ms();
        let mut sight = found.look.sight.clone();
        // An older version that stands in for the published one is as fresh as it is, not as that one is.
        sight.meta = Some(found.meta.clone());
        let mut freshness = sight.freshness(&visit.policy, now_ms);
        // What is published cannot be had. Nobody shall keep the stand-in for what would have been left of its life.
        if found.stands_in() && matches!(freshness, Freshness::Fresh { .. }) {
            freshness = Freshness::Stale { why: Why::Age };
        }
        let (ttl, stale_ms) = ttl(&freshness, &found.meta, now_ms);
        let did = match (before.waited, &freshness) {
            (true, Freshness::Fresh { .. }) => Did::Waited { ttl },
            _ => Did::Hit { freshness, ttl, outage: found.outage },
        };
        let tags = self.settings.tag_header.as_deref().map(|name| (name, cdn_tags(visit, &found.meta)));
        let tags = tags.as_ref().map(|(name, value)| (*name, value.as_str()));
        let page = Page { meta: &found.meta, body: &found.body, freshness, stale_ms, policy: visit.policy, did, tags };
        let reply = page::reply(request, method, &page, now_ms);
        self.record(metrics::STALENESS, stale_ms);
        if found.from_memory {
            self.count(metrics::MEMORY_HITS);
        }
        if reply.status == 304 {
            self.count(metrics::NOT_MODIFIED);
        }
        if self.settings.debug_header {
            reply.with("x-everfresh-debug", debug(visit, found, &did, asks))
        } else {
            reply
        }
    }
}

/// Seconds until the page becomes stale, negative since then; and for how many milliseconds it has been.
fn ttl(freshness: &Freshness, meta: &Meta, now_ms: u64) -> (i64, u64) {
    let ends_ms = match freshness {
        Freshness::Fresh { until_ms } => *until_ms,
        Freshness::Stale { .. } | Freshness::Expired { .. } | Freshness::Missing | Freshness::Gone => {
            // Something else than its age may have ended its life early.
            seconds::to_ms(meta.generated_at.saturating_add(meta.revalidate_seconds)).min(now_ms)
        }
    };
    let left_ms = i64::try_from(ends_ms).unwrap_or(i64::MAX).saturating_sub_unsigned(now_ms);
    (left_ms.div_euclid(1000), now_ms.saturating_sub(ends_ms))
}

/// The page's tags as a CDN reads them: each with its tenant, for tags of two tenants may be the same word. Its own comes first, for a
/// CDN does not read on for ever.
fn cdn_tags(visit: &PageRead<'_>, meta: &Meta) -> String {
    let tags = meta.tags.iter().map(|tag| tag.for_cdn(visit.tenant()));
    let tags: Vec<String> = std::iter::once(visit.page.for_cdn()).chain(tags).collect();
    tags.join(",")
}

fn debug(visit: &PageRead<'_>, found: &PageContent, did: &Did, asks: bool) -> String {
    let version = found.meta.version.map_or("foreign".to_owned(), |version| version.to_string());
    let from = if found.from_memory { "memory" } else { "store" };
    let page = visit.page;
    format!("page={}; version={version}; from={from}; asks={asks}; why=\"{did}\"", page.hash())
}

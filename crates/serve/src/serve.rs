//! From a reader's request to an answer: fresh, or stale with a wish for a new one.
//!
//! Read `Server::answer` first: it is the whole flow. The HTTP rules are in [`crate::rules`].

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, Resolved, TenantConfig};
use everfresh_core::domain::freshness::{Freshness, Policy};
use everfresh_core::domain::page::Meta;
use everfresh_core::domain::page_key::{PageKey, Tenant};
use everfresh_core::domain::seconds;
use everfresh_core::ledger::Ledger;
use everfresh_core::metrics;
use everfresh_enqueue::{Queues, Sender};
use everfresh_origin::Origins;

use crate::asks::Asks;
use crate::bodies::Bodies;
use crate::found::Found;
use crate::pages::{Look, Pages, Until, must_wait, unreadable};
use crate::reply::Reply;
use crate::request::{Method, Request};
use crate::rules::cache_status::{Did, Outage};
use crate::rules::page::{self, Page};
use crate::rules::refusal::Refusal;
use crate::settings::Settings;
use crate::telling::Telling;
use crate::wish::{Asking, Wish};

/// The header in which a trusted proxy names the host that the reader asked for.
pub const HOST_HEADER: &str = "x-everfresh-host";

/// After so many seconds a reader may try again.
pub(crate) const RETRY_AFTER: u64 = 5;

/// What one instance serves with. Built once; any number of requests at a time.
#[derive(Debug)]
pub struct Server {
    config: Config,
    pub(crate) settings: Settings,
    pub(crate) pages: Pages,
    pub(crate) bodies: Bodies,
    pub(crate) asks: Mutex<Asks>,
    pub(crate) sender: Sender,
    pub(crate) origins: Origins,
    pub(crate) telling: Telling,
}

/// An answer, and what is to be asked for once it is on its way.
#[derive(Clone, Debug)]
pub struct Served {
    /// What the reader gets.
    pub reply: Reply,
    /// Hand this to [`Server::ask`] after the reply was sent, and wait for it before the instance rests.
    pub wish: Option<Wish>,
}

impl From<Reply> for Served {
    fn from(reply: Reply) -> Self {
        Self { reply, wish: None }
    }
}

/// A page that a reader asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit<'a> {
    tenant: &'a TenantConfig,
    pub(crate) page: &'a PageKey,
    pub(crate) policy: Policy,
}

impl Server {
    /// A server over `clients`.
    pub fn new(config: Config, settings: Settings, clients: &Clients) -> Self {
        let ledger = Ledger::new(clients, &settings.table, settings.layout);
        let artifacts = Artifacts::new(clients, &settings.bucket);
        // Readers ask for nothing that may wait in the second queue.
        let queues = Queues { main: settings.queue.clone(), low_priority: settings.queue.clone() };
        let sender = Sender::new(clients.sqs.clone(), queues).producer("everfresh-serve", env!("CARGO_PKG_VERSION"));
        Self {
            pages: Pages::new(ledger, settings.memory_ms, settings.page_bytes),
            bodies: Bodies::new(artifacts, settings.body_bytes),
            asks: Mutex::new(Asks::new(settings.asks_per_minute)),
            sender,
            origins: Origins::new(everfresh_origin::Patience::default()),
            telling: Telling::default(),
            config,
            settings,
        }
    }

    /// Answers one request. Whatever happens, the reader gets an answer.
    pub async fn serve(&self, request: &Request) -> Served {
        match self.answer(request).await {
            Ok(served) => served,
            Err(refusal) => {
                self.count(match refusal {
                    Refusal::NotYet { .. } | Refusal::OriginDown => metrics::UNAVAILABLE,
                    Refusal::Gone => metrics::GONE,
                    Refusal::Method | Refusal::Host | Refusal::BadPath | Refusal::NoRoute | Refusal::NoOrigin => {
                        metrics::REFUSED
                    }
                });
                let reply = refusal.reply();
                match Method::parse(&request.method) {
                    Some(Method::Head) => reply.body(Bytes::new()).into(),
                    Some(Method::Get) | None => reply.into(),
                }
            }
        }
    }

    /// method → tenant → page → lookup → (wait) → body → reply, and what to ask for.
    async fn answer(&self, request: &Request) -> Result<Served, Refusal> {
        let method = Method::parse(&request.method).ok_or(Refusal::Method)?;
        let tenant = self.tenant(request).ok_or(Refusal::Host)?;
        if self.is_preview(request, tenant) {
            return self.preview(request, method, tenant).await.map(Served::from);
        }
        let Resolved { page, route, .. } = tenant.resolve(&request.target)?;
        let policy = route.policy(self.settings.deploy, self.settings.epsilon_ms);
        let visit = Visit { tenant, page: &page, policy };
        let look = self.look(&visit).await?;
        let met = self.freshness(&visit, &look);
        self.count_met(&met);
        let look = if must_wait(&met) { self.wait(&visit, look).await? } else { look };
        let found = match self.freshness(&visit, &look) {
            Freshness::Missing => return Err(self.not_yet(&visit, RETRY_AFTER, "waiting")),
            Freshness::Gone => return Err(Refusal::Gone),
            // Better an old page than none: what is Expired was waited for, in vain.
            Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Expired { .. } => {
                self.body(&visit, look).await?
            }
        };
        let reads = self.pages.served(&page, &found.meta);
        let wish = self.wish(&visit, &found, reads);
        let reply = self.page(request, method, &visit, &found, must_wait(&met), wish.is_some());
        Ok(Served { reply, wish })
    }

    /// The tenant whose page is asked for. Where a proxy is trusted to name the host, nobody else is.
    fn tenant(&self, request: &Request) -> Option<&TenantConfig> {
        let header = if self.settings.trust_host_header { HOST_HEADER } else { "host" };
        self.config.tenant_of_host(request.header(header)?)
    }

    pub(crate) fn first_tenant(&self) -> Option<&Tenant> {
        self.config.tenants().next().map(|config| &config.tenant)
    }

    /// What is known of the page.
    async fn look(&self, visit: &Visit<'_>) -> Result<Look, Refusal> {
        let look = self.pages.look(visit.page, &visit.policy).await;
        if look.as_ref().map_or_else(|error| !unreadable(error), |look| look.outage) {
            self.count(metrics::DYNAMODB_OUTAGE);
        }
        look.map_err(|error| {
            let page = visit.page;
            tracing::error!(%page, %error, "{page} cannot be looked up and is not in memory: {error}");
            let detail = if unreadable(&error) { "row-unreadable" } else { Outage::DynamoDb.as_str() };
            self.not_yet(visit, RETRY_AFTER, detail)
        })
    }

    /// Asks for the page and waits for it, as long as a reader can. What was there before is the answer if it does not come.
    async fn wait(&self, visit: &Visit<'_>, before: Look) -> Result<Look, Refusal> {
        let missing = before.sight.meta.is_none();
        match self.asking(visit, &before.sight, None) {
            // Asked before waiting, for nobody else may have.
            Asking::Ask(wish) => self.ask(wish).await,
            Asking::Suppressed | Asking::Rendering => {}
            // The origin is given a rest, or has enough to do: waiting would be in vain.
            Asking::Cooldown { until_ms } if missing => {
                let seconds = until_ms.saturating_sub(self.now_ms()).div_ceil(1000);
                return Err(self.not_yet(visit, seconds.max(1), "cooldown"));
            }
            Asking::OverBudget if missing => return Err(self.not_yet(visit, 60, "over-budget")),
            Asking::Cooldown { .. } | Asking::OverBudget | Asking::Nothing => return Ok(before),
        }
        let time = Duration::from_millis(self.settings.wait_ms);
        Ok(match self.pages.wait(visit.page, &visit.policy, Until::Servable, time).await {
            Some(sight) => Look { sight, from_memory: false, outage: false },
            None => before,
        })
    }

    /// What to ask for after the reply.
    fn wish(&self, visit: &Visit<'_>, found: &Found, reads: u32) -> Option<Wish> {
        let sight = &found.look.sight;
        let asking = self.asking(visit, sight, found.lost.as_deref());
        let asking = if matches!(asking, Asking::Nothing) { self.asking_early(visit, sight, reads) } else { asking };
        match asking {
            Asking::Ask(wish) => Some(wish),
            Asking::Nothing | Asking::Rendering | Asking::Suppressed | Asking::OverBudget | Asking::Cooldown { .. } => {
                None
            }
        }
    }

    fn page(
        &self,
        request: &Request,
        method: Method,
        visit: &Visit<'_>,
        found: &Found,
        waited: bool,
        asks: bool,
    ) -> Reply {
        let now_ms = self.now_ms();
        let mut sight = found.look.sight.clone();
        // An older version that stands in for the published one is as fresh as it is, not as that one is.
        sight.meta = Some(found.meta.clone());
        let freshness = sight.freshness(&visit.policy, now_ms);
        let (ttl, stale_ms) = ttl(&freshness, &found.meta, now_ms);
        let did = match (waited, &freshness) {
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

    pub(crate) fn not_yet(&self, visit: &Visit<'_>, retry_after: u64, detail: &'static str) -> Refusal {
        Refusal::NotYet { retry_after, detail, placeholder: visit.tenant.placeholder.clone() }
    }

    fn freshness(&self, visit: &Visit<'_>, look: &Look) -> Freshness {
        look.sight.freshness(&visit.policy, self.now_ms())
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.pages.ledger().time().now_ms()
    }
}

impl<'a> Visit<'a> {
    pub(crate) fn tenant(&self) -> &'a Tenant {
        &self.tenant.tenant
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

/// The page's tags as a CDN reads them: each with its tenant, for tags of two tenants may be the same word.
fn cdn_tags(visit: &Visit<'_>, meta: &Meta) -> String {
    let tags: Vec<String> = meta.tags.iter().map(|tag| tag.for_cdn(visit.tenant())).collect();
    tags.join(",")
}

fn debug(visit: &Visit<'_>, found: &Found, did: &Did, asks: bool) -> String {
    let version = found.meta.version.map_or("foreign".to_owned(), |version| version.to_string());
    let from = if found.from_memory { "memory" } else { "store" };
    let page = visit.page;
    format!("page={}; version={version}; from={from}; asks={asks}; why=\"{did}\"", page.hash())
}

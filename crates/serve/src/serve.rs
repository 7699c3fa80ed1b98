//! From a reader's request to an answer: fresh, or stale with a wish for a new one.
//!
//! Read `Server::answer` first: it is the whole flow. The HTTP rules are in [`crate::rules`].

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, Resolved, TenantConfig};
use everfresh_core::domain::freshness::{Freshness, Policy};
use everfresh_core::domain::page_key::{PageKey, Tenant};
use everfresh_core::ledger::Ledger;
use everfresh_core::ledger::Seen;
use everfresh_core::metrics;
use everfresh_enqueue::{Queues, Sender};
use everfresh_origin::Origins;
use tokio::time::{Instant, timeout_at};

use crate::asks::EnqueueLimiter;
use crate::bodies::Bodies;
use crate::found::PageContent;
use crate::limits::Limits;
use crate::outages::CircuitBreaker;
use crate::pages::{CachedPage, Pages};
use crate::remarks::{LogThrottle, Remark};
use crate::reply::Reply;
use crate::request::{Method, Request};
use crate::rules::cache_status::Outage;
use crate::rules::page_error::PageError;
use crate::rules::trigger;
use crate::settings::{FOR_BODY_MS, Settings};
use crate::sights::{Until, must_wait, unreadable};
use crate::telling::MetricsBuffer;
use crate::wish::{Enqueue, EnqueueDecision};

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
    pub(crate) asks: Mutex<EnqueueLimiter>,
    pub(crate) sender: Sender,
    pub(crate) queue_breaker: CircuitBreaker,
    pub(crate) origins: Origins,
    pub(crate) telling: MetricsBuffer,
    pub(crate) remarks: Arc<LogThrottle>,
    pub(crate) limits: Limits,
}

/// An answer, and what is to be asked for once it is on its way.
#[derive(Clone, Debug)]
pub struct Served {
    /// What the reader gets.
    pub reply: Reply,
    /// Hand this to [`Server::finish`] after the reply was sent, and wait for it before the instance rests.
    pub wish: Option<Enqueue>,
}

impl From<Reply> for Served {
    fn from(reply: Reply) -> Self {
        Self { reply, wish: None }
    }
}

/// A page that a reader asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRead<'a> {
    tenant: &'a TenantConfig,
    pub(crate) page: &'a PageKey,
    pub(crate) policy: Policy,
    /// When the reader must have an answer.
    ends: Instant,
}

/// What a visit did before it found something to answer with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    /// It waited for a regeneration.
    pub(crate) waited: bool,
    /// It asked for one, and the queue has it.
    asked: bool,
}

impl Server {
    /// A server over `clients`.
    pub fn new(config: Config, settings: Settings, clients: &Clients) -> Self {
        let ledger = Ledger::new(clients, &settings.table, settings.layout);
        let artifacts = Artifacts::new(clients, &settings.bucket);
        // Readers ask for nothing that may wait in the second queue.
        let queues = Queues { main: settings.queue.clone(), low_priority: settings.queue.clone() };
        let sender = Sender::new(clients.sqs.clone(), queues).producer("everfresh-serve", env!("CARGO_PKG_VERSION"));
        let remarks = Arc::new(LogThrottle::new(clients.time.clone()));
        let limits = Limits::new(settings.revalidate_per_minute, clients.time.local_now_ms());
        Self {
            pages: Pages::new(ledger, settings.cache_ttl_ms, settings.page_bytes, remarks.clone()),
            bodies: Bodies::new(artifacts, settings.body_bytes, clients.time.clone(), remarks.clone()),
            asks: Mutex::new(EnqueueLimiter::new(settings.enqueues_per_minute)),
            sender,
            queue_breaker: CircuitBreaker::default(),
            remarks,
            origins: Origins::new(everfresh_origin::OriginTimeouts::default()),
            telling: MetricsBuffer::default(),
            limits,
            config,
            settings,
        }
    }

    /// Previews may come from an origin on this machine too, as on a developer's.
    pub fn with_loopback_origins(self) -> Self {
        Self { origins: self.origins.with_loopback(), ..self }
    }

    /// Answers one request. Whatever happens, whoever asks gets an answer: a panic is answered with 500.
    pub async fn serve(&self, request: &Request) -> Served {
        let answer = async {
            if trigger::reserved(&request.target) {
                self.trigger(request).await.into()
            } else {
                self.read(request).await
            }
        };
        match self.unless_it_panics("a request", answer).await {
            Some(served) => served,
            None => {
                self.count(metrics::UNAVAILABLE);
                refused(request, &PageError::Internal)
            }
        }
    }

    async fn read(&self, request: &Request) -> Served {
        match self.answer(request).await {
            Ok(served) => served,
            Err(refusal) => {
                self.count(match refusal {
                    PageError::NotYet { .. } | PageError::OriginDown | PageError::Internal => metrics::UNAVAILABLE,
                    PageError::Gone => metrics::GONE,
                    PageError::Method
                    | PageError::Host
                    | PageError::BadPath
                    | PageError::NoRoute
                    | PageError::NoOrigin => metrics::REFUSED,
                });
                refused(request, &refusal)
            }
        }
    }

    /// method → tenant → page → find → reply, and what to ask for.
    async fn answer(&self, request: &Request) -> Result<Served, PageError> {
        let ends = Instant::now() + Duration::from_millis(self.settings.response_deadline_ms);
        let method = Method::parse(&request.method).ok_or(PageError::Method)?;
        let tenant = self.tenant(request).ok_or(PageError::Host)?;
        if self.is_preview(request, tenant) {
            return self.preview(request, method, tenant).await.map(Served::from);
        }
        let Resolved { page, route, .. } = tenant.resolve(&request.target)?;
        let policy = route.policy(self.settings.deploy, self.settings.epsilon_ms);
        let visit = PageRead { tenant, page: &page, policy, ends };
        // Each call has its time-out, but there may be many of them.
        let mut before = Before::default();
        let found = match timeout_at(ends, self.find(&visit, &mut before)).await {
            Ok(found) => found?,
            Err(_) => self.out_of_time(&visit)?,
        };
        let reads = self.pages.served(&page, &found.meta);
        // A visit that waited as long as its wish keeps others quiet would ask for the same a second time.
        let wish = if before.asked && found.lost.is_none() { None } else { self.wish(&visit, &found, reads) };
        let reply = self.respond(request, method, &visit, &found, before, wish.is_some());
        Ok(Served { reply, wish })
    }

    /// lookup → (wait) → body.
    async fn find(&self, visit: &PageRead<'_>, before: &mut Before) -> Result<PageContent, PageError> {
        let look = self.look(visit).await?;
        let met = self.freshness(visit, &look);
        self.count_met(&met);
        // While memory stands in for the table, nothing newer would be seen, however long one waits.
        let in_vain = look.outage.is_some() && look.sight.meta.is_some();
        before.waited = must_wait(&met) && !in_vain;
        let look = if before.waited { self.wait(visit, look, before).await? } else { look };
        match self.freshness(visit, &look) {
            Freshness::Missing => Err(self.not_yet(visit, RETRY_AFTER, "waiting")),
            Freshness::Gone => Err(PageError::Gone),
            // Better an old page than none: what is Expired was waited for, in vain.
            Freshness::Fresh { .. } | Freshness::Stale { .. } | Freshness::Expired { .. } => {
                self.body(visit, look).await
            }
        }
    }

    /// The tenant whose page is asked for. Where a proxy is trusted to name the host, nobody else is.
    pub(crate) fn tenant(&self, request: &Request) -> Option<&TenantConfig> {
        self.config.tenant_of_host(self.host(request)?)
    }

    /// The host that decides the tenant, as it came.
    pub(crate) fn host<'a>(&self, request: &'a Request) -> Option<&'a str> {
        request.header(if self.settings.trust_host_header { HOST_HEADER } else { "host" })
    }

    pub(crate) fn first_tenant(&self) -> Option<&Tenant> {
        self.config.tenants().next().map(|config| &config.tenant)
    }

    /// What is known of the page.
    async fn look(&self, visit: &PageRead<'_>) -> Result<CachedPage, PageError> {
        match self.pages.look(visit.page, &visit.policy).await {
            Ok(look) => {
                if look.outage == Some(Outage::DynamoDb) {
                    self.count(metrics::DYNAMODB_OUTAGE);
                }
                Ok(look)
            }
            // No outage: the table has answered. What it said was remarked on by whoever read it.
            Err(error) if unreadable(&error) => Err(self.not_yet(visit, RETRY_AFTER, Outage::Row.as_str())),
            Err(error) => {
                self.count(metrics::DYNAMODB_OUTAGE);
                let page = visit.page;
                if self.remarks.due(Remark::NotLookedUp, page) {
                    let page = page.logged();
                    tracing::error!(%page, %error, "{page} cannot be looked up and is not in memory: {error}");
                }
                Err(self.not_yet(visit, RETRY_AFTER, Outage::DynamoDb.as_str()))
            }
        }
    }

    /// EnqueueLimiter for the page and waits for it, as long as a reader can. If it does not come, what is there then is the answer, or what was
    /// there before if the table does not say.
    async fn wait(
        &self,
        visit: &PageRead<'_>,
        already: CachedPage,
        before: &mut Before,
    ) -> Result<CachedPage, PageError> {
        let missing = already.sight.meta.is_none();
        match self.asking(visit, &already.sight, None) {
            // Asked before waiting, for nobody else may have.
            EnqueueDecision::Ask(wish) => {
                before.asked = self.ask(wish).await;
                if !before.asked && !missing {
                    return Ok(already);
                }
            }
            EnqueueDecision::Suppressed | EnqueueDecision::Rendering => {}
            // The origin is given a rest, or has enough to do: waiting would be in vain.
            EnqueueDecision::Cooldown { until_ms } if missing => {
                let seconds = until_ms.saturating_sub(self.now_ms()).div_ceil(1000);
                return Err(self.not_yet(visit, seconds.max(1), "cooldown"));
            }
            EnqueueDecision::RateLimited if missing => return Err(self.not_yet(visit, 60, "over-budget")),
            EnqueueDecision::Cooldown { .. }
            | EnqueueDecision::RateLimited
            | EnqueueDecision::QueueDown
            | EnqueueDecision::Nothing => {
                return Ok(already);
            }
        }
        let until = Until::NewerThan(Seen::of(already.sight.meta.as_deref()));
        let come = self.pages.wait(visit.page, &visit.policy, until, self.patience(visit)).await;
        Ok(come.map_or(already, CachedPage::new))
    }

    /// How long a reader waits for a regeneration. Of the visit's time something is left to fetch what it gives, or what was there before.
    pub(crate) fn patience(&self, visit: &PageRead<'_>) -> Duration {
        let left = visit.ends.saturating_duration_since(Instant::now());
        left.saturating_sub(Duration::from_millis(FOR_BODY_MS)).min(Duration::from_millis(self.settings.wait_ms))
    }

    /// What to ask for after the reply.
    fn wish(&self, visit: &PageRead<'_>, found: &PageContent, reads: u32) -> Option<Enqueue> {
        let sight = &found.look.sight;
        let asking = self.asking(visit, sight, found.lost.as_deref());
        let asking =
            if matches!(asking, EnqueueDecision::Nothing) { self.asking_early(visit, sight, reads) } else { asking };
        match asking {
            EnqueueDecision::Ask(wish) => Some(wish),
            EnqueueDecision::Nothing
            | EnqueueDecision::Rendering
            | EnqueueDecision::Suppressed
            | EnqueueDecision::QueueDown
            | EnqueueDecision::RateLimited
            | EnqueueDecision::Cooldown { .. } => None,
        }
    }

    pub(crate) fn not_yet(&self, visit: &PageRead<'_>, retry_after: u64, detail: &'static str) -> PageError {
        PageError::NotYet { retry_after, detail, placeholder: visit.tenant.placeholder.clone() }
    }

    fn freshness(&self, visit: &PageRead<'_>, look: &CachedPage) -> Freshness {
        look.sight.freshness(&visit.policy, self.now_ms())
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.pages.ledger().time().now_ms()
    }

    /// The sandbox's own time, for how long something lasts.
    pub(crate) fn local_now_ms(&self) -> u64 {
        self.pages.ledger().time().local_now_ms()
    }
}

/// The answer without a page, and for HEAD without its words.
fn refused(request: &Request, refusal: &PageError) -> Served {
    let reply = refusal.reply();
    match Method::parse(&request.method) {
        Some(Method::Head) => reply.body(Bytes::new()).into(),
        Some(Method::Get) | None => reply.into(),
    }
}

impl<'a> PageRead<'a> {
    pub(crate) fn tenant(&self) -> &'a Tenant {
        &self.tenant.tenant
    }
}

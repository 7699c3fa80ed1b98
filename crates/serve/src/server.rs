//! The server: built once per sandbox, serves any number of requests at a time.
//!
//! [`Server::serve`] answers a request with the page flow ([`crate::page`]), and one below
//! `/_everfresh/` with the trigger ([`crate::trigger`]). It listens nowhere: `main.rs` hands it
//! Lambda's events, and the CLI's `dev` requests from a port.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use everfresh_core::artifacts::Artifacts;
use everfresh_core::aws_time::AwsTime;
use everfresh_core::clients::Clients;
use everfresh_core::config::{Config, TenantConfig};
use everfresh_core::ledger::Ledger;
use everfresh_core::metrics::{self, Metrics};
use everfresh_enqueue::{Queues, Sender};
use everfresh_origin::{PassBody, PassError};
use http_body_util::BodyExt;
use hyper::upgrade::Upgraded;

use crate::access_log;
use crate::cache::PageCache;
use crate::enqueue::{Enqueue, Enqueuer};
use crate::http::{Reply, Request};
use crate::log_throttle::LogThrottle;
use crate::metrics::MetricsBuffer;
use crate::page::error::PageError;
use crate::page::recent_writes::RecentWrites;
use crate::panics;
use crate::pass::Passes;
use crate::preview::Previews;
use crate::regeneration_queue::Queue;
use crate::settings::Settings;
use crate::trigger::Trigger;
use crate::trigger::endpoint::reserved;

/// The header in which a trusted proxy names the host of the viewer's request.
pub const HOST_HEADER: &str = "x-everfresh-host";

/// `Retry-After` of a 503, in seconds.
pub(crate) const RETRY_AFTER: u64 = 5;

/// The largest passed body that is returned in one piece: base64 adds a third, and Lambda's
/// response limit is 6 MB.
const MOST_BUFFERED_BYTES: usize = 4_400_000;

const WARM_UP_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct Server {
    config: Config,
    pub(crate) settings: Settings,
    pub(crate) cache: PageCache,
    pub(crate) enqueuer: Enqueuer,
    pub(crate) previews: Previews,
    pub(crate) passes: Passes,
    pub(crate) recent_writes: RecentWrites,
    trigger: Trigger,
    pub(crate) metrics: Arc<MetricsBuffer>,
    pub(crate) log: Arc<LogThrottle>,
    time: AwsTime,
}

/// A reply, and the regenerations to enqueue once the reply was sent.
#[derive(Debug)]
pub struct Served {
    pub reply: Reply,
    /// The body of a passed reply, in place of the reply's own.
    pub stream: Option<Stream>,
    /// Hand this to [`Server::finish`] after the reply was sent, and await it before the sandbox
    /// may freeze.
    pub enqueues: Vec<Enqueue>,
}

/// What follows the head of a passed reply.
#[derive(Debug)]
pub struct Stream {
    /// Dropping it closes the connection to the origin.
    pub body: PassBody,
    /// After a 101, the connection to the origin, for the caller to connect with the visitor's.
    pub upgraded: Option<Upgraded>,
}

/// A passed body could not be read whole.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    #[error("the body is larger than {most_bytes} bytes, the most that can be returned in one piece")]
    TooLarge { most_bytes: usize },
    #[error(transparent)]
    Origin(#[from] PassError),
}

impl From<Reply> for Served {
    fn from(reply: Reply) -> Self {
        Self { reply, stream: None, enqueues: Vec::new() }
    }
}

impl Served {
    /// The reply with its whole body, for a caller that cannot stream it.
    async fn buffered(self, most_bytes: usize) -> Result<Reply, BufferError> {
        let Self { reply, stream, .. } = self;
        let Some(Stream { mut body, .. }) = stream else { return Ok(reply) };
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if bytes.len() + data.len() > most_bytes {
                return Err(BufferError::TooLarge { most_bytes });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(reply.body(bytes.freeze()))
    }
}

impl Server {
    pub fn new(config: Config, settings: Settings, clients: &Clients) -> Self {
        let time = clients.time.clone();
        let log = Arc::new(LogThrottle::new(time.clone()));
        let metrics = Arc::new(MetricsBuffer::default());
        let ledger = Ledger::new(clients, &settings.table, settings.layout);
        let artifacts = Artifacts::new(clients, &settings.bucket);
        // Readers enqueue nothing of low priority.
        let queues = Queues { main: settings.queue.clone(), low_priority: settings.queue.clone() };
        let sender = Sender::new(clients.sqs.clone(), queues).producer("everfresh-serve", env!("CARGO_PKG_VERSION"));
        let queue = Arc::new(Queue::new(settings.queue.clone(), sender, metrics.clone(), time.clone()));
        Self {
            trigger: Trigger::new(&settings, ledger.clone(), queue.clone(), metrics.clone(), log.clone()),
            cache: PageCache::new(&settings, ledger, artifacts, log.clone()),
            enqueuer: Enqueuer::new(&settings, queue, metrics.clone(), log.clone()),
            previews: Previews::new(&settings, time.clone()),
            passes: Passes::new(&settings),
            recent_writes: RecentWrites::default(),
            config,
            settings,
            metrics,
            log,
            time,
        }
    }

    /// Origins may be on this machine too.
    pub fn with_loopback_origins(self) -> Self {
        let (previews, passes) = (self.previews.with_loopback_origins(), self.passes.with_loopback_origins());
        Self { previews, passes, ..self }
    }

    /// Opens connections to DynamoDB and S3 during the cold start, when no request waits. Errors
    /// are ignored, and only a timeout is logged: the first request that needs a connection opens
    /// it.
    pub async fn warm_up(&self) {
        let tenant = self.config.tenants().next().map(|config| &config.tenant);
        if tokio::time::timeout(WARM_UP_TIMEOUT, self.cache.warm_up(tenant)).await.is_err() {
            let (table, bucket, timeout) = (&self.settings.table, &self.settings.bucket, WARM_UP_TIMEOUT);
            tracing::warn!(
                table,
                bucket,
                "DynamoDB table {table} or S3 bucket {bucket} did not answer within {timeout:?} of the cold start; the \
                 first request opens the connections"
            );
        }
    }

    /// Answers every request; a panic is answered with 500.
    pub async fn serve(&self, request: &Request) -> Served {
        // On the heap: a caller would otherwise hold it several times over on its stack, and a debug
        // build of these flows fills a thread's two megabytes.
        let answer = Box::pin(async {
            if reserved(&request.target) {
                self.trigger.serve(request, self.host(request), self.tenant(request)).await.into()
            } else {
                self.serve_page(request).await
            }
        });
        let began = Instant::now();
        let served = match panics::catch(&self.metrics, "request", answer).await {
            Some(served) => served,
            None => {
                self.metrics.count(metrics::UNAVAILABLE);
                PageError::Internal.reply_to(request).into()
            }
        };
        if self.settings.access_log {
            let tenant = self.tenant(request).map(|tenant| tenant.tenant.as_str());
            access_log::log(request, tenant, &served.reply, began.elapsed());
        }
        served
    }

    /// The whole reply, for a Lambda function that returns it in one piece.
    pub async fn buffered(&self, mut served: Served) -> (Reply, Vec<Enqueue>) {
        // Also if the answer cannot be returned: the page has changed either way.
        let enqueues = std::mem::take(&mut served.enqueues);
        match served.buffered(MOST_BUFFERED_BYTES).await {
            Ok(reply) => (reply, enqueues),
            Err(error) => {
                tracing::warn!(%error, "the answer to a passed request was not returned: {error}");
                self.metrics.count(metrics::UNAVAILABLE);
                (PageError::Unreturnable.reply(), enqueues)
            }
        }
    }

    /// Does what is left for after the reply: enqueues the regenerations, and completes the
    /// deferred reads. Await it before the sandbox may freeze. A panic in it is caught: the next
    /// read of the page enqueues again.
    pub async fn finish(&self, enqueues: impl IntoIterator<Item = Enqueue>) {
        let send = async {
            for enqueue in enqueues {
                self.enqueuer.send(enqueue).await;
            }
        };
        let all = Box::pin(async { tokio::join!(send, self.cache.finish_deferred_reads()) });
        panics::catch(&self.metrics, "work after a reply", all).await;
    }

    /// Sends one regeneration and returns whether SQS has it. [`Server::finish`] also completes the
    /// deferred reads.
    pub async fn enqueue(&self, enqueue: Enqueue) -> bool {
        self.enqueuer.send(enqueue).await
    }

    /// A line of the embedded metric format, if one is due.
    pub fn metrics_line(&self, now_ms: u64) -> Option<String> {
        self.metrics.line(&self.settings.stack_name, now_ms)
    }

    /// The metrics since the last line or call.
    pub fn take_metrics(&self) -> Metrics {
        self.metrics.take()
    }

    /// The tenant of the request's host.
    pub(crate) fn tenant(&self, request: &Request) -> Option<&TenantConfig> {
        self.config.tenant_of_host(self.host(request)?)
    }

    /// The host that decides the tenant, as received. Where a proxy is trusted to name it, the
    /// `Host` header is ignored.
    pub(crate) fn host<'a>(&self, request: &'a Request) -> Option<&'a str> {
        request.header(if self.settings.trust_host_header { HOST_HEADER } else { "host" })
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.time.now_ms()
    }
}

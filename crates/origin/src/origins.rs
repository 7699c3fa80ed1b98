//! The exchange, on a pooled connection or a new one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::connection::{Connection, SendOutcome};
use crate::connector::Connector;
use crate::decode::{DECODER, Decoder, IDENTITY};
use crate::error::OriginError;
use crate::limits::Limits;
use crate::pass::{PassHead, PassRequest, PassResponse};
use crate::pass_body::PassBody;
use crate::pool::{Pool, PoolKey, PoolSlot};
use crate::prepared::Prepared;
use crate::request::OriginRequest;
use crate::response;

/// Timeouts for parts of an exchange. The whole is bounded by [`OriginRequest::time`].
#[derive(Clone, Copy, Debug)]
pub struct OriginTimeouts {
    /// For name resolution, TCP and TLS together.
    pub connect: Duration,
    /// From the request to the end of the response's head. `None`: only the whole time counts,
    /// because many origins send nothing before the page is rendered.
    pub head: Option<Duration>,
    /// A connection is not reused earlier after its last response, so that surplus bytes can arrive
    /// and be detected.
    pub min_idle: Duration,
}

impl Default for OriginTimeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), head: None, min_idle: Duration::from_millis(50) }
    }
}

/// How visitors reach a site, for pages that are fetched on no visitor's behalf.
const PUBLIC_SCHEME: &str = "https";
const LOCAL_SCHEME: &str = "http";

/// Longer than any exchange. Not `Duration::MAX`, which overflows the clock.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Requests pages from HTTP origins. Create it once and share it: it pools connections.
#[derive(Debug)]
pub struct Origins {
    connector: Connector,
    pool: Arc<Pool>,
    limits: Limits,
    timeouts: OriginTimeouts,
    scheme: &'static str,
    decoder: Option<Decoder>,
}

impl Origins {
    /// Opens no connection and reads no root certificates: those are read for the first `https`
    /// origin. Reads `AWS_LAMBDA_RUNTIME_API`, an address that is never used as an origin.
    pub fn new(timeouts: OriginTimeouts) -> Self {
        let (connector, pool) = (Connector::new(timeouts.connect), Arc::new(Pool::new(timeouts.min_idle)));
        Self { connector, pool, limits: Limits::default(), timeouts, scheme: PUBLIC_SCHEME, decoder: None }
    }

    /// Allows origins on loopback, for `everfresh dev` and tests, where the sites themselves are
    /// plain `http`. Never in a Lambda function, where loopback serves other tenants' events.
    pub fn with_loopback(self) -> Self {
        Self { connector: self.connector.with_loopback(), scheme: LOCAL_SCHEME, ..self }
    }

    /// Lets fetches accept gzip, br and zstd, and decodes them. For what stores pages: without this
    /// call a binary has no decoders in it.
    pub fn with_decoding(self) -> Self {
        Self { decoder: Some(DECODER), ..self }
    }

    /// GETs a page from `origin` with one request. Any complete response is `Ok`, whatever its
    /// status.
    ///
    /// Dropping the future or a timeout closes the connection.
    pub async fn fetch(&self, origin: &HttpOrigin, request: OriginRequest<'_>) -> Result<Rendered, RenderFailure> {
        let deadline = deadline(request.time);
        let prepared =
            Prepared::fetch(origin, &request, self.scheme, self.decoder.map_or(IDENTITY, |decoder| decoder.accepted))?;
        let key = PoolKey { tenant: request.tenant.clone(), origin: origin.clone() };
        let exchange = async {
            let (response, mut connection, slot) = self.send(key, &prepared, deadline).await?;
            let rendered = response::read(response, request.max_bytes).await?;
            if connection.end_exchange().await? {
                slot.put(connection);
            }
            match self.decoder {
                Some(decoder) => decoder.decode(rendered, request.max_bytes).await,
                None => Ok(rendered),
            }
        };
        before(deadline, exchange).await
    }

    /// Sends one visitor's request to `origin`, and streams the response, whatever its status and
    /// size. It is this visitor's alone.
    ///
    /// Dropping the future or the body, or a timeout of either, closes the connection.
    pub async fn pass(&self, origin: &HttpOrigin, request: PassRequest<'_>) -> Result<PassResponse, RenderFailure> {
        let deadline = deadline(request.time);
        let key = PoolKey { tenant: request.tenant.clone(), origin: origin.clone() };
        let prepared = Prepared::pass(origin, request)?;
        let exchange = async {
            let (response, connection, mut slot) = self.send(key, &prepared, deadline).await?;
            // The body may be an event stream, which does not end.
            slot.permit = None;
            Ok((PassHead::of(response, prepared.upgrade).await?, connection, slot))
        };
        let (head, connection, slot) = before(deadline, exchange).await?;
        let PassHead { status, headers, body, upgraded } = head;
        let connection = upgraded.is_none().then_some((connection, slot));
        Ok(PassResponse { status, headers, body: PassBody::new(body, sleep_until(deadline), connection), upgraded })
    }

    /// Sends the request, as soon as the origin's limits allow it. If a pooled connection turns out
    /// to be closed before anything was written, another connection is used; if it is closed while
    /// a request that may be repeated is on its way, a new one, once.
    async fn send(
        &self,
        key: PoolKey,
        prepared: &Prepared,
        deadline: Instant,
    ) -> Result<(Response<Incoming>, Connection, PoolSlot), RenderFailure> {
        let limits = self.limits.of(&key);
        let permit = limits.enter(&key, prepared.shared_path()).await?;
        let slot = PoolSlot { pool: self.pool.clone(), key, permit: Some(permit) };
        let mut request = prepared.request();
        while let Some(mut pooled) = prepared.may_reuse().then(|| self.pool.take(&slot.key)).flatten() {
            match self.head(&mut pooled, request).await? {
                SendOutcome::Answered(response) => return Ok((response, pooled, slot)),
                SendOutcome::NotSent(unsent, _) => request = unsent,
                SendOutcome::Lost(_) if prepared.may_repeat() => {
                    request = prepared.request();
                    break;
                }
                SendOutcome::Lost(error) => return Err(OriginError::Exchange(error).into()),
            }
        }
        let mut new = self.connector.open(&slot.key.origin, prepared, &limits.breaker, deadline).await?;
        match self.head(&mut new, request).await? {
            SendOutcome::Answered(response) => Ok((response, new, slot)),
            SendOutcome::NotSent(_, error) | SendOutcome::Lost(error) => Err(OriginError::Exchange(error).into()),
        }
    }

    async fn head(
        &self,
        connection: &mut Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<SendOutcome, RenderFailure> {
        let sent = async { Ok(connection.send(request).await?) };
        match self.timeouts.head {
            Some(time) => within(time, sent).await,
            None => sent.await,
        }
    }
}

/// A decoding fetch over any stream, which is not reused.
pub async fn fetch_over<S>(
    stream: S,
    origin: &HttpOrigin,
    request: OriginRequest<'_>,
) -> Result<Rendered, RenderFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = async {
        let prepared = Prepared::fetch(origin, &request, PUBLIC_SCHEME, DECODER.accepted)?;
        let mut connection = Connection::over(stream).await?;
        match connection.send(prepared.request()).await? {
            SendOutcome::NotSent(_, error) | SendOutcome::Lost(error) => Err(OriginError::Exchange(error).into()),
            SendOutcome::Answered(response) => {
                let rendered = response::read(response, request.max_bytes).await?;
                connection.end_exchange().await?;
                DECODER.decode(rendered, request.max_bytes).await
            }
        }
    };
    within(request.time, exchange).await
}

fn deadline(time: Duration) -> Instant {
    Instant::now() + time.min(UNLIMITED)
}

async fn before<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, RenderFailure>>,
) -> Result<T, RenderFailure> {
    timeout_at(deadline, work).await.unwrap_or(Err(RenderFailure::TimedOut))
}

async fn within<T>(time: Duration, work: impl Future<Output = Result<T, RenderFailure>>) -> Result<T, RenderFailure> {
    timeout(time, work).await.unwrap_or(Err(RenderFailure::TimedOut))
}

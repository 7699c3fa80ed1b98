//! The exchange, on a pooled connection or a new one.

use std::time::Duration;

use bytes::Bytes;
use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::connection::{Connection, SendOutcome};
use crate::connector::Connector;
use crate::error::OriginError;
use crate::pool::{Pool, PoolKey};
use crate::request::{OriginRequest, Prepared};
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

/// Requests pages from HTTP origins. Create it once and share it: it pools connections.
#[derive(Debug)]
pub struct Origins {
    connector: Connector,
    pool: Pool,
    timeouts: OriginTimeouts,
}

impl Origins {
    /// Opens no connection and reads no root certificates: those are read for the first `https`
    /// origin. Reads `AWS_LAMBDA_RUNTIME_API`, an address that is never used as an origin.
    pub fn new(timeouts: OriginTimeouts) -> Self {
        Self { connector: Connector::new(timeouts.connect), pool: Pool::new(timeouts.min_idle), timeouts }
    }

    /// Allows origins on loopback, for `everfresh dev` and tests. Never in a Lambda function, where
    /// loopback serves other tenants' events.
    pub fn with_loopback(self) -> Self {
        Self { connector: self.connector.with_loopback(), ..self }
    }

    /// GETs a page from `origin` with one request. Any complete response is `Ok`, whatever its
    /// status.
    ///
    /// Dropping the future or a timeout closes the connection.
    pub async fn fetch(&self, origin: &HttpOrigin, request: OriginRequest<'_>) -> Result<Rendered, RenderFailure> {
        within(request.time, self.exchange(origin, request)).await
    }

    async fn exchange(&self, origin: &HttpOrigin, request: OriginRequest<'_>) -> Result<Rendered, RenderFailure> {
        let prepared = Prepared::new(origin, &request)?;
        let key = PoolKey { tenant: request.tenant.clone(), origin: origin.clone() };
        let (response, mut connection) = self.send(&key, &prepared).await?;
        let rendered = response::read(response, request.max_bytes).await?;
        if connection.end_exchange().await? && origin.keep_alive {
            self.pool.put(key, connection);
        }
        Ok(rendered)
    }

    /// Sends the request once. If a pooled connection turns out to be closed before anything was
    /// written, another connection is used.
    async fn send(
        &self,
        key: &PoolKey,
        prepared: &Prepared,
    ) -> Result<(Response<Incoming>, Connection), RenderFailure> {
        let mut request = prepared.request();
        while let Some(mut pooled) = self.pool.take(key) {
            match self.head(&mut pooled, request).await? {
                SendOutcome::Answered(response) => return Ok((response, pooled)),
                SendOutcome::NotSent(unsent, _) => request = unsent,
            }
        }
        let mut new = self.connector.open(&key.origin, prepared.origin()).await?;
        match self.head(&mut new, request).await? {
            SendOutcome::Answered(response) => Ok((response, new)),
            SendOutcome::NotSent(_, error) => Err(OriginError::Exchange(error).into()),
        }
    }

    async fn head(
        &self,
        connection: &mut Connection,
        request: Request<Empty<Bytes>>,
    ) -> Result<SendOutcome, RenderFailure> {
        let sent = async { Ok(connection.send(request).await?) };
        match self.timeouts.head {
            Some(time) => within(time, sent).await,
            None => sent.await,
        }
    }
}

/// The same exchange over any stream, which is not reused.
pub async fn fetch_over<S>(
    stream: S,
    origin: &HttpOrigin,
    request: OriginRequest<'_>,
) -> Result<Rendered, RenderFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = async {
        let prepared = Prepared::new(origin, &request)?;
        let mut connection = Connection::over(stream).await?;
        match connection.send(prepared.request()).await? {
            SendOutcome::NotSent(_, error) => Err(OriginError::Exchange(error).into()),
            SendOutcome::Answered(response) => {
                let rendered = response::read(response, request.max_bytes).await?;
                connection.end_exchange().await?;
                Ok(rendered)
            }
        }
    };
    within(request.time, exchange).await
}

async fn within<T>(time: Duration, work: impl Future<Output = Result<T, RenderFailure>>) -> Result<T, RenderFailure> {
    timeout(time, work).await.unwrap_or(Err(RenderFailure::TimedOut))
}

//! The exchange, on a kept connection or a new one.

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

use crate::answer;
use crate::connection::{Connection, Sent};
use crate::connector::Connector;
use crate::error::OriginError;
use crate::pool::{Pool, PoolKey};
use crate::request::{OriginRequest, Prepared};

/// How long an origin may take for parts of its answer. The whole is bounded by each request's own time.
#[derive(Clone, Copy, Debug)]
pub struct OriginTimeouts {
    /// Until a connection stands: name resolution, TCP and TLS together.
    pub connect: Duration,
    /// From the request to the end of the answer's head. None waits as long as the render may take: many origins send
    /// nothing before the page is done.
    pub head: Option<Duration>,
    /// A kept connection is not used again before so much time has passed since its last answer, in which surplus bytes would arrive.
    pub quiet: Duration,
}

impl Default for OriginTimeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), head: None, quiet: Duration::from_millis(50) }
    }
}

/// Requests pages from HTTP origins. Made once and shared: connections are kept and used again.
#[derive(Debug)]
pub struct Origins {
    connector: Connector,
    pool: Pool,
    timeouts: OriginTimeouts,
}

impl Origins {
    /// No connections yet, and no certificates: those are read when the first `https` origin is asked. Reads where the Lambda Runtime API
    /// is, which is never asked.
    pub fn new(timeouts: OriginTimeouts) -> Self {
        Self { connector: Connector::new(timeouts.connect), pool: Pool::new(timeouts.quiet), timeouts }
    }

    /// Origins may be on this machine too. For a developer's machine and for tests: in a function, this machine is where other tenants'
    /// events are.
    pub fn with_loopback(self) -> Self {
        Self { connector: self.connector.with_loopback(), ..self }
    }

    /// GETs a page from `origin`, with one request. Any complete answer is `Ok`, whatever its status.
    ///
    /// Dropping the future, or running out of time, closes the connection.
    pub async fn fetch(&self, origin: &HttpOrigin, request: OriginRequest<'_>) -> Result<Rendered, RenderFailure> {
        within(request.time, self.exchange(origin, request)).await
    }

    async fn exchange(&self, origin: &HttpOrigin, request: OriginRequest<'_>) -> Result<Rendered, RenderFailure> {
        let prepared = Prepared::new(origin, &request)?;
        let key = PoolKey { tenant: request.tenant.clone(), origin: origin.clone() };
        let (response, mut connection) = self.send(&key, &prepared).await?;
        let rendered = answer::read(response, request.max_bytes).await?;
        if connection.end_exchange().await? && origin.keep_alive {
            self.pool.put(key, connection);
        }
        Ok(rendered)
    }

    /// Sends the request once. A kept connection may turn out to be closed before any of it was written; then there is another one.
    async fn send(
        &self,
        key: &PoolKey,
        prepared: &Prepared,
    ) -> Result<(Response<Incoming>, Connection), RenderFailure> {
        let mut request = prepared.request();
        while let Some(mut kept) = self.pool.take(key) {
            match self.head(&mut kept, request).await? {
                Sent::Answered(response) => return Ok((response, kept)),
                Sent::NeverLeft(unsent, _) => request = unsent,
            }
        }
        let mut new = self.connector.open(&key.origin, prepared.origin()).await?;
        match self.head(&mut new, request).await? {
            Sent::Answered(response) => Ok((response, new)),
            Sent::NeverLeft(_, error) => Err(OriginError::Exchange(error).into()),
        }
    }

    async fn head(&self, connection: &mut Connection, request: Request<Empty<Bytes>>) -> Result<Sent, RenderFailure> {
        let sent = async { Ok(connection.send(request).await?) };
        match self.timeouts.head {
            Some(time) => within(time, sent).await,
            None => sent.await,
        }
    }
}

/// The same exchange over a stream that is there already, which is not used again: the answer of anything that can be read from and
/// written to.
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
            Sent::NeverLeft(_, error) => Err(OriginError::Exchange(error).into()),
            Sent::Answered(response) => {
                let rendered = answer::read(response, request.max_bytes).await?;
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

//! The exchange: a kept connection or a new one, and one more try where that is harmless.

use std::time::Duration;

use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use http::Response;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::answer::{declared_bytes, read, texts};
use crate::ask::{Ask, Page};
use crate::connections::{self, Connection, Connections, OriginError};

/// How long an origin may take for parts of its answer. The whole is bounded by each request's own time.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until a connection stands: name resolution, TCP and TLS together.
    pub connect: Duration,
    /// From the request to the end of the answer's head. None waits as long as the render may take: many origins send
    /// nothing before the page is done.
    pub head: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), head: None }
    }
}

/// Asks HTTP origins. Made once and shared: connections are kept and used again.
#[derive(Debug)]
pub struct Origins {
    connections: Connections,
    patience: Patience,
}

impl Origins {
    /// No connections yet, and no certificates: those are read when the first `https` origin is asked.
    pub fn new(patience: Patience) -> Self {
        Self { connections: Connections::new(patience.connect), patience }
    }

    /// GETs a page from `origin`, written like `https://origin.acme.example`. Any complete answer is `Ok`, whatever its status.
    ///
    /// Dropping the future, or running out of time, closes the connection.
    pub async fn fetch(&self, origin: &str, ask: Ask<'_>) -> Result<Rendered, RenderFailure> {
        match timeout(ask.time, self.exchange(origin, ask)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(RenderFailure::TimedOut),
        }
    }

    async fn exchange(&self, origin: &str, ask: Ask<'_>) -> Result<Rendered, RenderFailure> {
        let page = Page::new(origin, &ask)?;
        let (response, connection) = self.send(&page).await?;
        let (head, body) = response.into_parts();
        let declared_bytes = declared_bytes(&head.headers);
        let body = read(body, declared_bytes, ask.max_bytes).await?;
        self.connections.give_back(&page.origin, connection).await?;
        Ok(Rendered { status: head.status.as_u16(), headers: texts(&head.headers), body, declared_bytes })
    }

    /// Sends the request, on a kept connection if there is one.
    ///
    /// An origin may close a kept connection at any moment, also while the request is under way. That says nothing about
    /// the page, so the request is sent once more, on a new connection; a GET may be.
    async fn send(&self, page: &Page) -> Result<(Response<Incoming>, Connection), RenderFailure> {
        if let Some(kept) = self.connections.take_idle(&page.origin) {
            match self.head(kept, page).await? {
                Err(error) if connections::closed_by_peer(&error) => {}
                answer => return answer.map_err(|error| OriginError::Exchange(error).into()),
            }
        }
        let new = self.connections.open(&page.origin).await?;
        self.head(new, page).await?.map_err(|error| OriginError::Exchange(error).into())
    }

    async fn head(&self, mut connection: Connection, page: &Page) -> Result<Answer, RenderFailure> {
        let sent = connection.send(page.request());
        let response = match self.patience.head {
            Some(time) => timeout(time, sent).await.map_err(|_elapsed| RenderFailure::TimedOut)?,
            None => sent.await,
        };
        Ok(response.map(|response| (response, connection)))
    }
}

type Answer = Result<(Response<Incoming>, Connection), hyper::Error>;

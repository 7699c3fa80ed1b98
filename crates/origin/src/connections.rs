//! Connections to origins: opening them, keeping them, and finding out how an exchange ended.
//!
//! HTTP/1.1 on purpose: a connection carries one request at a time, so that its end belongs to one page.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use everfresh_core::render::RenderFailure;
use http::uri::Scheme;
use http::{Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower_service::Service;

/// An answer's head may be so long. What is stored of it is far less.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most origins close an idle connection after five seconds to a minute. Older ones are not worth a failed try.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// As many as the pages of one batch.
const MAX_IDLE_PER_ORIGIN: usize = 10;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Cause = Box<dyn Error + Send + Sync>;

/// Why an origin gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OriginError {
    #[error("no connection to {origin} within {} ms", time.as_millis())]
    ConnectTimedOut { origin: Uri, time: Duration },
    #[error("cannot connect to {origin}")]
    Connect { origin: Uri, source: Cause },
    #[error("this machine's root certificates cannot be read: install ca-certificates, or set SSL_CERT_FILE")]
    Roots(#[source] io::Error),
    #[error("the exchange broke off")]
    Exchange(#[source] hyper::Error),
    #[error("the origin sent more bytes than its Content-Length announced")]
    Excess,
}

impl From<OriginError> for RenderFailure {
    fn from(error: OriginError) -> Self {
        Self::Unreachable(Box::new(error))
    }
}

/// One connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    /// Drives the connection. Its result is the number of bytes that came after the last answer.
    driver: JoinHandle<hyper::Result<usize>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub(crate) async fn send(&mut self, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.send_request(request).await
    }

    /// Whether it can be used again, once a body has been read to its end.
    async fn end_exchange(&mut self) -> Result<bool, OriginError> {
        if self.sender.ready().await.is_ok() {
            return Ok(true);
        }
        match (&mut self.driver).await {
            Ok(Ok(0)) => Ok(false),
            Ok(Ok(_excess)) => Err(OriginError::Excess),
            // The answer was complete, so a reset after it is a rude way to close, no more.
            Ok(Err(error)) if io_kind(&error).is_some() => Ok(false),
            // On a connection at rest there is one more error: bytes that nobody asked for.
            Ok(Err(_unexpected)) => Err(OriginError::Excess),
            // Aborted or panicked; either way there is nothing to keep.
            Err(_join) => Ok(false),
        }
    }
}

/// Opens connections and keeps those that can be used again.
#[derive(Debug)]
pub(crate) struct Connections {
    connect_time: Duration,
    tcp: HttpConnector,
    tls: OnceLock<HttpsConnector<HttpConnector>>,
    idle: Mutex<HashMap<Uri, Vec<(Connection, Instant)>>>,
}

impl Connections {
    pub(crate) fn new(connect_time: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Divided among the addresses of a name, so that the first one cannot use up the others' time.
        tcp.set_connect_timeout(Some(connect_time));
        Self { connect_time, tcp, tls: OnceLock::new(), idle: Mutex::default() }
    }

    /// The kept connection that was used last: it is the likeliest to be alive.
    pub(crate) fn take_idle(&self, origin: &Uri) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(origin)?;
        kept.retain(usable);
        kept.pop().map(|(connection, _)| connection)
    }

    /// Ends the exchange and keeps the connection if it can be used again.
    ///
    /// Fails if the origin sent more than it announced: then the body is not the page, but the beginning of one.
    pub(crate) async fn give_back(&self, origin: &Uri, mut connection: Connection) -> Result<(), OriginError> {
        if !connection.end_exchange().await? {
            return Ok(());
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|_, kept| {
            kept.retain(usable);
            !kept.is_empty()
        });
        let kept = idle.entry(origin.clone()).or_default();
        if kept.len() < MAX_IDLE_PER_ORIGIN {
            kept.push((connection, Instant::now()));
        }
        Ok(())
    }

    /// A new connection.
    pub(crate) async fn open(&self, origin: &Uri) -> Result<Connection, OriginError> {
        let time = self.connect_time;
        let stream = match timeout(time, self.connect(origin)).await {
            Ok(stream) => stream?,
            Err(_elapsed) => return Err(OriginError::ConnectTimedOut { origin: origin.clone(), time }),
        };
        let (sender, connection) = http1::Builder::new()
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(2 * MAX_HEAD_BYTES)
            .handshake(stream)
            .await
            .map_err(OriginError::Exchange)?;
        let driver = tokio::spawn(async move { Ok(connection.without_shutdown().await?.read_buf.len()) });
        Ok(Connection { sender, driver })
    }

    async fn connect(&self, origin: &Uri) -> Result<Stream, OriginError> {
        let failed = |source: Cause| OriginError::Connect { origin: origin.clone(), source };
        if origin.scheme() == Some(&Scheme::HTTPS) {
            let mut connector = self.tls_connector()?;
            return connector.call(origin.clone()).await.map_err(failed);
        }
        let stream = self.tcp.clone().call(origin.clone()).await;
        stream.map(MaybeHttpsStream::Http).map_err(|error| failed(error.into()))
    }

    /// Reads the machine's certificates at the first use: a function with plain origins only never pays for it.
    fn tls_connector(&self) -> Result<HttpsConnector<HttpConnector>, OriginError> {
        if let Some(connector) = self.tls.get() {
            return Ok(connector.clone());
        }
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(ring::default_provider())
            .map_err(OriginError::Roots)?
            .https_only()
            .enable_http1()
            .wrap_connector(self.tcp.clone());
        Ok(self.tls.get_or_init(|| connector).clone())
    }
}

fn usable((connection, since): &(Connection, Instant)) -> bool {
    since.elapsed() < MAX_IDLE && connection.sender.is_ready()
}

/// Whether the other side closed the connection in place of answering.
pub(crate) fn closed_by_peer(error: &hyper::Error) -> bool {
    let closed = [
        ErrorKind::BrokenPipe,
        ErrorKind::ConnectionAborted,
        ErrorKind::ConnectionReset,
        ErrorKind::NotConnected,
        ErrorKind::UnexpectedEof,
    ];
    error.is_canceled()
        || error.is_closed()
        || error.is_incomplete_message()
        || io_kind(error).is_some_and(|kind| closed.contains(&kind))
}

fn io_kind(error: &hyper::Error) -> Option<ErrorKind> {
    error.source()?.downcast_ref::<io::Error>().map(io::Error::kind)
}

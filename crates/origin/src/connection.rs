//! One connection, and how an exchange on it ended.
//!
//! HTTP/1.1 on purpose: a connection carries one request at a time, so a broken connection affects
//! one page.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use crate::error::OriginError;

/// Limit for the head of a response. The stored headers are far smaller.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// One connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection. Returns the number of bytes that arrived after the last response.
    driver: JoinHandle<hyper::Result<usize>>,
    /// A second handle of the driver's socket, closed together with it.
    socket: Weak<net::TcpStream>,
    is_encrypted: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// One exchange after another.
    Exchanges,
    /// One exchange, in which the origin may change the protocol.
    UntilUpgrade,
}

pub(crate) enum SendOutcome {
    /// The head of the response has arrived.
    Answered(Response<Incoming>),
    /// The connection was closed before any byte of the request was written: the origin has not
    /// received it.
    NotSent(Request<Full<Bytes>>, hyper::Error),
    /// The connection was closed or broke before the head of a response was complete: the origin may
    /// have received the request.
    Lost(hyper::Error),
}

/// Data on a socket that has not been read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    Nothing,
    Bytes,
    /// The connection is closed.
    Closed,
}

impl Connection {
    pub(crate) async fn over_tcp(stream: TcpStream, lasts: Lasts) -> Result<Self, OriginError> {
        let socket = second_handle(&stream);
        Self::start(stream, socket, false, lasts).await
    }

    pub(crate) async fn over_tls(stream: TlsStream<TcpStream>, lasts: Lasts) -> Result<Self, OriginError> {
        let socket = second_handle(stream.get_ref().0);
        Self::start(stream, socket, true, lasts).await
    }

    /// Over a stream that is not a socket, for one exchange.
    pub(crate) async fn over<S>(stream: S) -> Result<Self, OriginError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::start(stream, None, false, Lasts::Exchanges).await
    }

    async fn start<S>(
        stream: S,
        socket: Option<Arc<net::TcpStream>>,
        is_encrypted: bool,
        lasts: Lasts,
    ) -> Result<Self, OriginError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(2 * MAX_HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(OriginError::Exchange)?;
        let weak = socket.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let driver = tokio::spawn(async move {
            let ended = match lasts {
                Lasts::Exchanges => connection.without_shutdown().await.map(|parts| parts.read_buf.len()),
                Lasts::UntilUpgrade => connection.with_upgrades().await.map(|()| 0),
            };
            // Dropped only now: otherwise the connection would stay open after its driver has
            // ended.
            drop(socket);
            ended
        });
        Ok(Self { sender, driver, socket: weak, is_encrypted })
    }

    /// Sends a request once. Fails if what comes back is no response.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<SendOutcome, OriginError> {
        match self.sender.try_send_request(request).await {
            Ok(response) => Ok(SendOutcome::Answered(response)),
            Err(mut error) => match error.take_message() {
                Some(request) => Ok(SendOutcome::NotSent(request, error.into_error())),
                None => match error.into_error() {
                    lost if lost.is_incomplete_message() || lost.is_closed() || is_io(&lost) => {
                        Ok(SendOutcome::Lost(lost))
                    }
                    invalid => Err(OriginError::Exchange(invalid)),
                },
            },
        }
    }

    /// Call after the body has been read to its end. Returns whether the connection can be reused.
    ///
    /// Fails if the origin sent more than its `Content-Length`: then the body is only the beginning
    /// of the page.
    pub(crate) async fn end_exchange(&mut self) -> Result<bool, OriginError> {
        if self.sender.ready().await.is_ok() {
            return match self.unread() {
                Unread::Nothing => Ok(true),
                // TLS records may hold other data than content.
                Unread::Bytes if self.is_encrypted => Ok(false),
                Unread::Bytes => Err(OriginError::Excess),
                Unread::Closed => Ok(false),
            };
        }
        match (&mut self.driver).await {
            Ok(Ok(0)) => Ok(false),
            Ok(Ok(_excess)) => Err(OriginError::Excess),
            // The response was complete, so a reset after it only closes the connection.
            Ok(Err(error)) if is_io(&error) => Ok(false),
            // The only other error on an idle connection: unsolicited bytes.
            Ok(Err(_unexpected)) => Err(OriginError::Excess),
            // Aborted or panicked; there is nothing to reuse.
            Err(_join) => Ok(false),
        }
    }

    /// Whether the connection is open and nothing has arrived since the last response.
    pub(crate) fn is_reusable(&self) -> bool {
        self.sender.is_ready() && self.unread() == Unread::Nothing
    }

    /// Reads the socket directly: in a Lambda sandbox that was frozen, the driver has not been
    /// woken yet.
    fn unread(&self) -> Unread {
        let Some(socket) = self.socket.upgrade() else { return Unread::Closed };
        match socket.peek(&mut [0]) {
            Ok(0) => Unread::Closed,
            Ok(_) => Unread::Bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Unread::Nothing,
            Err(_reset) => Unread::Closed,
        }
    }
}

/// Another, non-blocking handle of the same socket. Without one the connection is not reused.
fn second_handle(stream: &TcpStream) -> Option<Arc<net::TcpStream>> {
    let handle = stream.as_fd().try_clone_to_owned().ok()?;
    Some(Arc::new(net::TcpStream::from(handle)))
}

fn is_io(error: &hyper::Error) -> bool {
    error.source().is_some_and(|source| source.is::<io::Error>())
}

//! One connection, and finding out how an exchange on it ended.
//!
//! HTTP/1.1 on purpose: a connection carries one request at a time, so that its end belongs to one page.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use crate::error::OriginError;

/// An answer's head may be so long. What is stored of it is far less.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// One connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    /// Drives the connection. Its result is the number of bytes that came after the last answer.
    driver: JoinHandle<hyper::Result<usize>>,
    /// A second handle on the driver's socket. It is closed with the driver's own.
    socket: Weak<net::TcpStream>,
    is_encrypted: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What became of a request.
pub(crate) enum Sent {
    /// The head of an answer has arrived.
    Answered(Response<Incoming>),
    /// The connection was closed before any of the request was written: the origin has not seen it.
    NeverLeft(Request<Empty<Bytes>>, hyper::Error),
}

/// What has arrived on a socket and was not read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    Nothing,
    Bytes,
    /// The end of the connection.
    End,
}

impl Connection {
    pub(crate) async fn over_tcp(stream: TcpStream) -> Result<Self, OriginError> {
        let socket = second_handle(&stream);
        Self::start(stream, socket, false).await
    }

    pub(crate) async fn over_tls(stream: TlsStream<TcpStream>) -> Result<Self, OriginError> {
        let socket = second_handle(stream.get_ref().0);
        Self::start(stream, socket, true).await
    }

    /// On something that is no socket, for one exchange.
    pub(crate) async fn over<S>(stream: S) -> Result<Self, OriginError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::start(stream, None, false).await
    }

    async fn start<S>(stream: S, socket: Option<Arc<net::TcpStream>>, is_encrypted: bool) -> Result<Self, OriginError>
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
            let parts = connection.without_shutdown().await;
            // Held until here, or the connection would stay open after its driver has ended.
            drop(socket);
            Ok(parts?.read_buf.len())
        });
        Ok(Self { sender, driver, socket: weak, is_encrypted })
    }

    /// Sends a request once. Fails if the origin may have seen it, and there is no answer.
    pub(crate) async fn send(&mut self, request: Request<Empty<Bytes>>) -> Result<Sent, OriginError> {
        match self.sender.try_send_request(request).await {
            Ok(response) => Ok(Sent::Answered(response)),
            Err(mut error) => match error.take_message() {
                Some(request) => Ok(Sent::NeverLeft(request, error.into_error())),
                None => Err(OriginError::Exchange(error.into_error())),
            },
        }
    }

    /// Whether it can be used again, once a body has been read to its end.
    ///
    /// Fails if the origin sent more than it announced: then the body is not the page, but the beginning of one.
    pub(crate) async fn end_exchange(&mut self) -> Result<bool, OriginError> {
        if self.sender.ready().await.is_ok() {
            return match self.unread() {
                Unread::Nothing => Ok(true),
                // In TLS records there may be other things than content.
                Unread::Bytes if self.is_encrypted => Ok(false),
                Unread::Bytes => Err(OriginError::Excess),
                Unread::End => Ok(false),
            };
        }
        match (&mut self.driver).await {
            Ok(Ok(0)) => Ok(false),
            Ok(Ok(_excess)) => Err(OriginError::Excess),
            // The answer was complete, so a reset after it is a rude way to close, no more.
            Ok(Err(error)) if is_io(&error) => Ok(false),
            // On a connection at rest there is one more error: bytes that nobody asked for.
            Ok(Err(_unexpected)) => Err(OriginError::Excess),
            // Aborted or panicked; either way there is nothing to keep.
            Err(_join) => Ok(false),
        }
    }

    /// Whether it is open, and nothing has arrived since the last answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.sender.is_ready() && self.unread() == Unread::Nothing
    }

    /// Asks the system, for the driver sees only what it has been woken for: a sandbox that was frozen has not been.
    fn unread(&self) -> Unread {
        let Some(socket) = self.socket.upgrade() else { return Unread::End };
        match socket.peek(&mut [0]) {
            Ok(0) => Unread::End,
            Ok(_) => Unread::Bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Unread::Nothing,
            Err(_reset) => Unread::End,
        }
    }
}

/// Another handle on the same socket, which does not block either. Without one the connection is not used twice.
fn second_handle(stream: &TcpStream) -> Option<Arc<net::TcpStream>> {
    let handle = stream.as_fd().try_clone_to_owned().ok()?;
    Some(Arc::new(net::TcpStream::from(handle)))
}

fn is_io(error: &hyper::Error) -> bool {
    error.source().is_some_and(|source| source.is::<io::Error>())
}

//! An HTTP server on a loopback port: the engines for other processes (the CLI, scripts, the AWS
//! CLI with `--endpoint-url`), or any other handler. Callers of the engines must pass the checks in
//! `callers`.

mod callers;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

use self::callers::{Admission, Callers};
use crate::engines::Engines;

/// DynamoDB's limit, well above that of a page or a message.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// The body of a response. An error closes the connection, so that the client notices.
pub type ResponseBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// A body that is there already.
pub fn full(bytes: Bytes) -> ResponseBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Limits of a port's connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a connection may stay open without a complete request in progress: until headers
    /// and body have arrived, and between two requests. Then it is closed.
    pub idle: Duration,
    /// Maximum number of concurrent connections; more wait to be accepted.
    pub connections: usize,
}

impl Default for Limits {
    /// Idle time for a slow client, and few enough connections for two ports under the usual limit
    /// of 1,024 open files.
    fn default() -> Self {
        Self { idle: Duration::from_secs(10), connections: 256 }
    }
}

/// A bound port without a server yet. Two steps, because queue URLs contain the port before the
/// engines exist.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

/// A running server. It stops when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    // Dropping it stops the server.
    _running: oneshot::Sender<()>,
}

impl Port {
    /// Binds `port` on 127.0.0.1; 0 picks a free one.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, limits: Limits::default() })
    }

    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    pub fn number(&self) -> u16 {
        self.address.port()
    }

    /// Serves `engines` to callers that pass the checks in `callers`.
    pub fn serve(self, engines: Engines) -> io::Result<Gateway> {
        let callers = Callers::of(self.number());
        self.serve_with(move |request| {
            let (engines, admitted) = (engines.clone(), callers.admit(request));
            async move {
                match admitted {
                    Admission::Accepted(request) => engines.call(request).await,
                    Admission::Refused(response) => response,
                }
            }
        })
    }

    /// As [`Port::serve_streams`], for responses that are there as a whole.
    pub fn serve_with<Answer, Answering>(self, answer: Answer) -> io::Result<Gateway>
    where
        Answer: Fn(Request<Bytes>) -> Answering + Clone + Send + Sync + 'static,
        Answering: Future<Output = Response<Bytes>> + Send + 'static,
    {
        self.serve_streams(move |request| {
            let answering = answer(request);
            async move { answering.await.map(full) }
        })
    }

    /// Serves `answer` on its own thread and runtime: the engines block the calling thread, which
    /// must not delay the caller's other tasks. After a response with status 101, the request's
    /// extension `hyper::upgrade::OnUpgrade` yields the connection.
    pub fn serve_streams<Answer, Answering>(self, answer: Answer) -> io::Result<Gateway>
    where
        Answer: Fn(Request<Bytes>) -> Answering + Clone + Send + Sync + 'static,
        Answering: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("gateway")
            .enable_all()
            .build()?;
        let (running, stop) = oneshot::channel();
        let (listener, limits) = (self.listener, self.limits);
        thread::Builder::new().name("gateway".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = stop => {}
                    result = accept(listener, limits, answer) => if let Err(error) = result {
                        tracing::error!(%error, "gateway stopped: cannot accept connections");
                    },
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Gateway { address: self.address, _running: running })
    }
}

impl Gateway {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn accept<Answer, Answering>(listener: TcpListener, limits: Limits, answer: Answer) -> io::Result<()>
where
    Answer: Fn(Request<Bytes>) -> Answering + Clone + Send + Sync + 'static,
    Answering: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let permits = Arc::new(Semaphore::new(limits.connections));
    loop {
        let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = match listener.accept().await {
            Ok(connection) => connection,
            // Out of file descriptors, or the client has disconnected. The next accept may succeed.
            Err(error) => {
                tracing::warn!(%error, "gateway could not accept a connection; retried in 50 ms");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Without this, small responses wait for Nagle's algorithm: 49 ms instead of 7 for a GET.
        stream.set_nodelay(true)?;
        let answer = answer.clone();
        tokio::spawn(async move {
            serve_connection(stream, limits.idle, answer).await;
            drop(permit);
        });
    }
}

/// Serves one connection until it ends or has been idle for `max_idle`.
async fn serve_connection<Answer, Answering>(stream: TcpStream, max_idle: Duration, answer: Answer)
where
    Answer: Fn(Request<Bytes>) -> Answering + Clone + Send + Sync + 'static,
    Answering: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let (busy, mut requests) = watch::channel(0_usize);
    let busy = Arc::new(busy);
    let service = service_fn(move |request| {
        let (answer, busy) = (answer.clone(), busy.clone());
        async move {
            // Reading the body counts as idle time, as reading the headers does.
            let request = read(request).await;
            let in_progress = InProgress::new(busy);
            let response = match request {
                Ok(request) => answer(request).await,
                Err(response) => response.map(full),
            };
            // Until the body has been sent: a stream may pause for longer than a connection may.
            Ok::<_, Infallible>(response.map(|body| Sending { body, _in_progress: in_progress }))
        }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        served = server.serve_connection_with_upgrades(TokioIo::new(stream), service) => if let Err(error) = served {
            tracing::debug!(error, "connection ended early");
        },
        () = idle_for(max_idle, &mut requests) => tracing::debug!("idle connection closed"),
    }
}

/// A response's body, whose request is in progress until it has been sent.
struct Sending {
    body: ResponseBody,
    _in_progress: InProgress,
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts a request while it is being answered.
struct InProgress(Arc<watch::Sender<usize>>);

impl InProgress {
    fn new(busy: Arc<watch::Sender<usize>>) -> Self {
        busy.send_modify(|requests| *requests += 1);
        Self(busy)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.send_modify(|requests| *requests -= 1);
    }
}

/// Completes when no request has been in progress for `time`.
async fn idle_for(time: Duration, requests: &mut watch::Receiver<usize>) {
    while requests.wait_for(|requests| *requests == 0).await.is_ok() {
        match timeout(time, requests.changed()).await {
            Err(_) => return,
            Ok(Ok(())) => {}
            Ok(Err(_)) => break,
        }
    }
    // The connection has ended, which the caller's other branch handles.
    std::future::pending().await
}

/// The request with its whole body, or the error response if it cannot be read.
async fn read(request: Request<Incoming>) -> Result<Request<Bytes>, Response<Bytes>> {
    let (parts, body) = request.into_parts();
    let error = match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(body) => return Ok(Request::from_parts(parts, body.to_bytes())),
        Err(error) => error,
    };
    let mut response = Response::new(Bytes::from(format!("{error}\n")));
    *response.status_mut() = match error.is::<LengthLimitError>() {
        true => StatusCode::PAYLOAD_TOO_LARGE,
        false => StatusCode::BAD_REQUEST,
    };
    Err(response)
}

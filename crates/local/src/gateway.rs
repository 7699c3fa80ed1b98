//! An HTTP server on one loopback port: the engines for other processes (the CLI, `aws --endpoint-url`, a script in any language), or
//! whatever else answers a request. Of the engines' callers some things are demanded.

mod callers;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

use self::callers::{Admission, Callers};
use crate::engines::Engines;

/// The largest request that is read: DynamoDB's own limit, well above what a page or a message may weigh.
const MAX_REQUEST: usize = 16 << 20;

/// What a port gives to its connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a connection may be open without a request that is being answered: until its first request has arrived with all of its
    /// headers, until its body has, and between two. Then it is closed.
    pub idle: Duration,
    /// How many connections are served at once; more wait to be accepted.
    pub connections: usize,
}

impl Default for Limits {
    /// Idle long enough for a slow client, and few enough for two ports below the 1,024 files that a process usually may have open.
    fn default() -> Self {
        Self { idle: Duration::from_secs(10), connections: 256 }
    }
}

/// A bound port that does not answer yet. Two steps, because queue URLs name the port before the engines exist.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

/// The running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    // Its end is the signal to stop.
    _running: oneshot::Sender<()>,
}

impl Port {
    /// Binds `port` on loopback; 0 finds a free one.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, limits: Limits::default() })
    }

    /// With other limits.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.address.port()
    }

    /// Starts to answer with `engines` those who sign, as the module `callers` says.
    pub fn serve(self, engines: Engines) -> io::Result<Gateway> {
        let callers = Callers::of(self.number());
        self.serve_with(move |request| {
            let (engines, admitted) = (engines.clone(), callers.admit(request));
            async move {
                match admitted {
                    Admission::Granted(request) => engines.call(request).await,
                    Admission::Refused(refusal) => refusal,
                }
            }
        })
    }

    /// Starts to answer with `answer`, on a thread and runtime of its own: an engine works on the thread that calls it, and must
    /// not hold up the caller's other tasks.
    pub fn serve_with<Answer, Answering>(self, answer: Answer) -> io::Result<Gateway>
    where
        Answer: Fn(Request<Bytes>) -> Answering + Clone + Send + Sync + 'static,
        Answering: Future<Output = Response<Bytes>> + Send + 'static,
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
                        tracing::error!(%error, "the gateway cannot accept connections any more");
                    },
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Gateway { address: self.address, _running: running })
    }
}

impl Gateway {
    /// Where the engines answer.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn accept<Answer, Answering>(listener: TcpListener, limits: Limits, answer: Answer) -> io::Result<()>
where
    Answer: Fn(Request<Bytes>) -> Answering + Clone + Send + Sync + 'static,
    Answering: Future<Output = Response<Bytes>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = match listener.accept().await {
            Ok(connection) => connection,
            // Out of file descriptors, or the client has gone: the next one may fare better.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Without this, small answers wait for Nagle's algorithm: 49 ms instead of 7 for a GET.
        stream.set_nodelay(true)?;
        let answer = answer.clone();
        tokio::spawn(async move {
            converse(stream, limits.idle, answer).await;
            drop(place);
        });
    }
}

/// Serves one connection until it ends or is idle for too long.
async fn converse<Answer, Answering>(stream: TcpStream, longest_idle: Duration, answer: Answer)
where
    Answer: Fn(Request<Bytes>) -> Answering + Clone + Send + Sync + 'static,
    Answering: Future<Output = Response<Bytes>> + Send + 'static,
{
    let (busy, mut requests) = watch::channel(0_usize);
    let busy = Arc::new(busy);
    let service = service_fn(move |request| {
        let (answer, busy) = (answer.clone(), busy.clone());
        async move {
            // A body that does not come is as idle as headers that do not.
            let request = read(request).await;
            let _under_way = UnderWay::new(busy);
            let response = match request {
                Ok(request) => answer(request).await,
                Err(refusal) => refusal,
            };
            Ok::<_, Infallible>(response.map(Full::new))
        }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        served = server.serve_connection(TokioIo::new(stream), service) => if let Err(error) = served {
            tracing::debug!(error, "a connection ended early");
        },
        () = idle_for(longest_idle, &mut requests) => tracing::debug!("a connection was idle for too long and is closed"),
    }
}

/// Counts a request as long as it is being answered.
struct UnderWay(Arc<watch::Sender<usize>>);

impl UnderWay {
    fn new(busy: Arc<watch::Sender<usize>>) -> Self {
        busy.send_modify(|requests| *requests += 1);
        Self(busy)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|requests| *requests -= 1);
    }
}

/// Ends when no request has been under way for so long.
async fn idle_for(time: Duration, requests: &mut watch::Receiver<usize>) {
    while requests.wait_for(|requests| *requests == 0).await.is_ok() {
        match timeout(time, requests.changed()).await {
            Err(_) => return,
            Ok(Ok(())) => {}
            Ok(Err(_)) => break,
        }
    }
    // The connection has ended, and its end is waited for elsewhere.
    std::future::pending().await
}

/// The request with its whole body, or the answer to one that cannot be read.
async fn read(request: Request<Incoming>) -> Result<Request<Bytes>, Response<Bytes>> {
    let (parts, body) = request.into_parts();
    let error = match Limited::new(body, MAX_REQUEST).collect().await {
        Ok(body) => return Ok(Request::from_parts(parts, body.to_bytes())),
        Err(error) => error,
    };
    let mut refusal = Response::new(Bytes::from(format!("{error}\n")));
    // Anything else is a body that cannot be read, however short.
    *refusal.status_mut() = match error.is::<LengthLimitError>() {
        true => StatusCode::PAYLOAD_TOO_LARGE,
        false => StatusCode::BAD_REQUEST,
    };
    Err(refusal)
}

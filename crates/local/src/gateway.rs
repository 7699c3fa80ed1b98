//! An HTTP server on one loopback port: the engines for other processes (the CLI, `aws --endpoint-url`, a script in any language), or
//! whatever else answers a request.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::sync::oneshot;

use crate::engines::Engines;

/// The largest request that is read: DynamoDB's own limit, well above what a page or a message may weigh.
const MAX_REQUEST: usize = 16 << 20;

/// A bound port that does not answer yet. Two steps, because queue URLs name the port before the engines exist.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
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
        Ok(Self { listener, address })
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.address.port()
    }

    /// Starts to answer with `engines`.
    pub fn serve(self, engines: Engines) -> io::Result<Gateway> {
        self.serve_with(move |request| {
            let engines = engines.clone();
            async move { engines.call(request).await }
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
        let listener = self.listener;
        thread::Builder::new().name("gateway".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = stop => {}
                    result = accept(listener, answer) => if let Err(error) = result {
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

async fn accept<Answer, Answering>(listener: TcpListener, answer: Answer) -> io::Result<()>
where
    Answer: Fn(Request<Bytes>) -> Answering + Clone + Send + Sync + 'static,
    Answering: Future<Output = Response<Bytes>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(connection) => connection,
            // Out of file descriptors, or the client has gone: the next one may fare better.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        // Without this, small answers wait for Nagle's algorithm: 49 ms instead of 7 for a GET.
        stream.set_nodelay(true)?;
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| collected(answer.clone(), request));
            let served = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            if let Err(error) = served {
                tracing::debug!(error, "a connection ended early");
            }
        });
    }
}

async fn collected<Answer, Answering>(
    answer: Answer,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible>
where
    Answer: Fn(Request<Bytes>) -> Answering,
    Answering: Future<Output = Response<Bytes>>,
{
    let (parts, body) = request.into_parts();
    let response = match Limited::new(body, MAX_REQUEST).collect().await {
        Ok(body) => answer(Request::from_parts(parts, body.to_bytes())).await,
        Err(error) => {
            let mut refusal = Response::new(Bytes::from(format!("{error}\n")));
            // Anything else is a body that cannot be read, however short.
            *refusal.status_mut() = match error.is::<LengthLimitError>() {
                true => StatusCode::PAYLOAD_TOO_LARGE,
                false => StatusCode::BAD_REQUEST,
            };
            refusal
        }
    };
    Ok(response.map(Full::new))
}

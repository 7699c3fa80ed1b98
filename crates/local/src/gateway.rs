//! The engines on one loopback port, for other processes: the CLI, `aws --endpoint-url`, a script in any language.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
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

    /// Starts to answer with `engines`, on a thread and runtime of their own: an engine works on the thread that calls it, and must
    /// not hold up the caller's other tasks.
    pub fn serve(self, engines: Engines) -> io::Result<Gateway> {
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
                    result = accept(listener, engines) => if let Err(error) = result {
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

async fn accept(listener: TcpListener, engines: Engines) -> io::Result<()> {
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
        let engines = engines.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(engines.clone(), request));
            let served = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            if let Err(error) = served {
                tracing::debug!(error, "a connection ended early");
            }
        });
    }
}

async fn answer(engines: Engines, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let response = match Limited::new(body, MAX_REQUEST).collect().await {
        Ok(body) => engines.call(Request::from_parts(parts, body.to_bytes())).await,
        Err(error) => {
            let mut refusal = Response::new(Bytes::from(format!("{error}\n")));
            *refusal.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
            refusal
        }
    };
    Ok(response.map(Full::new))
}

//! The HTTP renderer: one GET to the tenant's origin.
//!
//! A request carries fixed headers only: nothing of a reader or a producer reaches the origin but the canonical path and
//! query. Redirects are not followed and proxies are not used; the answer goes to the publish gate as it came.
//!
//! # What counts as an answer
//!
//! A body that ends before its announced length, in the middle of a chunk, or with bytes to spare is no answer but a
//! failure, so it is never published. A body whose end is the end of the connection (neither length nor chunks) cannot be
//! told from a truncated one: routes with such origins want `gate = { must_contain = "</html>" }`.
//!
//! # What an origin can cost
//!
//! | | Bound |
//! |---|---|
//! | connecting, DNS and TLS included | [`Patience::connect`] |
//! | the answer's head | [`Patience::head`], 64 KiB, 100 headers |
//! | the body | the request's `max_bytes`, counted while it is read |
//! | everything together, however slowly it drips | the request's `time` |

mod connections;

use std::time::Duration;

use ::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, USER_AGENT};
use ::http::uri::Authority;
use ::http::{Request, Response, Uri};
use bytes::{Bytes, BytesMut};
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::{RenderFailure, RenderRequest};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use tokio::time::timeout;

use self::connections::{Connection, Connections, OriginError};

const AGENT: &str = concat!("everfresh/", env!("CARGO_PKG_VERSION"));

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

/// Asks HTTP origins. Connections are kept and used again.
#[derive(Debug)]
pub struct HttpRenderer {
    connections: Connections,
    patience: Patience,
}

impl HttpRenderer {
    /// A renderer without connections yet.
    pub fn new(patience: Patience) -> Self {
        Self { connections: Connections::new(patience.connect), patience }
    }

    /// GETs the page from `origin`, written like `https://origin.acme.example`.
    ///
    /// Dropping the future, or running out of time, closes the connection.
    pub async fn render(&self, origin: &str, request: RenderRequest<'_>) -> Result<Rendered, RenderFailure> {
        match timeout(request.time, self.exchange(origin, request)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(RenderFailure::TimedOut),
        }
    }

    async fn exchange(&self, origin: &str, request: RenderRequest<'_>) -> Result<Rendered, RenderFailure> {
        let page = Page::new(origin, &request)?;
        let (response, connection) = self.ask(&page).await?;
        let (head, body) = response.into_parts();
        let declared_bytes = declared_bytes(&head.headers);
        let body = read(body, declared_bytes, request.max_bytes).await?;
        self.connections.give_back(&page.origin, connection).await.map_err(unreachable)?;
        Ok(Rendered { status: head.status.as_u16(), headers: texts(&head.headers), body, declared_bytes })
    }

    /// Sends the request, on a kept connection if there is one.
    ///
    /// An origin may close a kept connection at any moment, also while the request is under way. That says nothing about
    /// the page, so the request is sent once more, on a new connection; a GET may be.
    async fn ask(&self, page: &Page) -> Result<(Response<Incoming>, Connection), RenderFailure> {
        if let Some(kept) = self.connections.take_idle(&page.origin) {
            match self.head(kept, page).await? {
                Err(error) if connections::closed_by_peer(&error) => {}
                answer => return answer.map_err(|error| unreachable(OriginError::Exchange(error))),
            }
        }
        let new = self.connections.open(&page.origin).await.map_err(unreachable)?;
        self.head(new, page).await?.map_err(|error| unreachable(OriginError::Exchange(error)))
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

/// What is asked, and of whom.
struct Page {
    origin: Uri,
    target: Uri,
    host: HeaderValue,
    forwarded_host: HeaderValue,
}

impl Page {
    fn new(origin: &str, request: &RenderRequest<'_>) -> Result<Self, RenderFailure> {
        let refused = |what: &str| RenderFailure::Forbidden(what.to_owned());
        let no_origin = || refused("render.http is no origin: write it like \"https://origin.acme.example\"");
        let origin = Uri::try_from(origin).map_err(|_| no_origin())?;
        let host = origin.authority().map(Authority::as_str).ok_or_else(no_origin)?;
        let host = HeaderValue::try_from(host).map_err(|_| no_origin())?;
        let target = Uri::try_from(request.page.path().as_str()).map_err(|_| refused("the path is no HTTP target"))?;
        let forwarded_host = HeaderValue::try_from(request.host)
            .map_err(|_| refused("the tenant's first host name cannot stand in a header: correct its hosts"))?;
        Ok(Self { origin, target, host, forwarded_host })
    }

    fn request(&self) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.target.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert("x-forwarded-host", self.forwarded_host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(ACCEPT, HeaderValue::from_static("text/html,*/*;q=0.8"));
        // A compressed body would be stored compressed, and not every reader can undo that.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        request
    }
}

/// Reads to the end, or to the cap: what lies beyond it is never held.
async fn read(mut body: Incoming, declared_bytes: Option<u64>, max_bytes: u64) -> Result<Bytes, RenderFailure> {
    if declared_bytes.is_some_and(|declared| declared > max_bytes) {
        return Err(RenderFailure::TooLarge { max_bytes });
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unreachable(OriginError::Exchange(error)))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if (bytes.len() + data.len()) as u64 > max_bytes {
            return Err(RenderFailure::TooLarge { max_bytes });
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// The announced length. Several that differ do not get this far: the parser refuses them.
fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// All headers as text. Bytes that are no UTF-8 become replacement characters, which the gate refuses in a header that is
/// stored and nobody sees in one that is not.
fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

fn unreachable(error: OriginError) -> RenderFailure {
    RenderFailure::Unreachable(Box::new(error))
}

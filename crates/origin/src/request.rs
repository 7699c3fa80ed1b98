//! [`OriginRequest`], and the HTTP request built from it.

use std::time::Duration;

use bytes::Bytes;
use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::page_key::Tenant;
use everfresh_core::render::RenderFailure;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::uri::Authority;
use http::{Request, Uri};
use http_body_util::Empty;

const AGENT: &str = concat!("everfresh/", env!("CARGO_PKG_VERSION"));

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Headers of a connection, or of a body, which a GET does not have. Passed on, they would allow
/// request smuggling.
const CONNECTION_HEADERS: [HeaderName; 9] = [
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// A GET request to an origin.
#[derive(Clone, Copy, Debug)]
pub struct OriginRequest<'a> {
    /// Connections are never shared between tenants.
    pub tenant: &'a Tenant,
    /// Path and query as in a request line, beginning with `/`.
    pub path: &'a str,
    /// Host of the page's site, sent as `x-forwarded-host`.
    pub host: &'a str,
    /// More request headers. They can replace `accept` and `user-agent`, but not `host`,
    /// `x-forwarded-host` and `accept-encoding`; connection headers are dropped.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// Limit for the size of the body.
    pub max_bytes: u64,
    /// Timeout of the whole fetch.
    pub time: Duration,
}

/// A validated [`OriginRequest`] with its origin.
pub(crate) struct Prepared {
    origin: Uri,
    target: Uri,
    headers: HeaderMap,
}

impl Prepared {
    pub(crate) fn new(origin: &HttpOrigin, request: &OriginRequest<'_>) -> Result<Self, RenderFailure> {
        let refused = |what: &str| RenderFailure::Forbidden(what.to_owned());
        let invalid_origin = || refused("render.http is not an origin: write it like \"https://origin.acme.example\"");
        let uri = Uri::try_from(origin.url()).map_err(|_| invalid_origin())?;
        let host = uri.authority().map(Authority::as_str).ok_or_else(invalid_origin)?;
        let host = HeaderValue::try_from(host).map_err(|_| invalid_origin())?;
        // A target with its own host would use the origin as a proxy.
        let target = Some(request.path).filter(|path| path.starts_with('/')).and_then(|path| Uri::try_from(path).ok());
        let target = target.ok_or_else(|| refused("the path is not a valid HTTP request target"))?;
        let forwarded_host = HeaderValue::try_from(request.host)
            .map_err(|_| refused("the tenant's first host is not a valid header value: correct its hosts"))?;
        let mut headers = headers(host, forwarded_host, request.headers);
        if !origin.keep_alive {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(Self { origin: uri, target, headers })
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> &Uri {
        &self.origin
    }

    pub(crate) fn request(&self) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

fn headers(host: HeaderValue, forwarded_host: HeaderValue, more: &[(HeaderName, HeaderValue)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in more.iter().filter(|(name, _)| !CONNECTION_HEADERS.contains(name)) {
        headers.append(name, value.clone());
    }
    headers.insert(HOST, host);
    headers.insert(FORWARDED_HOST, forwarded_host);
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("text/html,*/*;q=0.8"));
    // A compressed body would be stored compressed, and not every client can decompress it.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

//! The HTTP request that is sent, built from a validated [`OriginRequest`] or [`PassRequest`].

use bytes::Bytes;
use everfresh_core::config::{HttpOrigin, SentHost};
use everfresh_core::domain::validators::Condition;
use everfresh_core::render::RenderFailure;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    UPGRADE, USER_AGENT,
};
use http::uri::Authority;
use http::{Method, Request, Uri};
use http_body_util::Full;

use crate::connection_headers;
use crate::pass::PassRequest;
use crate::request::OriginRequest;

const AGENT: &str = concat!("everfresh/", env!("CARGO_PKG_VERSION"));

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// A validated request with its origin.
pub(crate) struct Prepared {
    origin: Uri,
    method: Method,
    target: Uri,
    headers: HeaderMap,
    body: Bytes,
    /// On behalf of a visitor. Any number of visitors may request one path at a time; of a page
    /// there is one fetch.
    is_pass: bool,
    /// The connection may change its protocol.
    pub(crate) upgrade: bool,
}

impl Prepared {
    /// `scheme` is the one of the site, `codings` those that can be decoded.
    pub(crate) fn fetch(
        origin: &HttpOrigin,
        request: &OriginRequest<'_>,
        scheme: &'static str,
        codings: &'static str,
    ) -> Result<Self, RenderFailure> {
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers {
            headers.append(name, value.clone());
        }
        add(&mut headers, request.added)?;
        if let Some((name, text)) = request.condition.map(Condition::header) {
            headers
                .insert(HeaderName::from_static(name), value(text, "a stored validator is not a valid header value")?);
        }
        remove_framing(&mut headers);
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("text/html,*/*;q=0.8"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
        let site = Site { host: request.host, scheme };
        Self::new(origin, request.path, site, headers)
    }

    pub(crate) fn pass(origin: &HttpOrigin, request: PassRequest<'_>) -> Result<Self, RenderFailure> {
        // TRACE would show the visitor what the headers of the request have been on the way.
        if [Method::CONNECT, Method::TRACE].contains(&request.method) {
            return Err(refused(&format!("a {} request is never passed on", request.method)));
        }
        let mut headers = request.headers;
        let protocol = headers.get(UPGRADE).cloned().filter(|_| request.upgrade);
        remove_framing(&mut headers);
        remove_forwarding(&mut headers, protocol.is_some());
        if let Some(client) = request.client {
            headers.insert(FORWARDED_FOR, value(client, "the visitor's address is not a valid header value")?);
        }
        add(&mut headers, request.added)?;
        let has_length = [Method::POST, Method::PUT, Method::PATCH].contains(&request.method);
        if has_length || !request.body.is_empty() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(request.body.len()));
        }
        let site = Site { host: request.host, scheme: request.scheme };
        let mut prepared = Self::new(origin, request.target, site, headers)?;
        if let Some(protocol) = protocol {
            prepared.headers.insert(UPGRADE, protocol);
            prepared.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            prepared.upgrade = true;
        }
        Ok(Self { method: request.method, body: request.body, is_pass: true, ..prepared })
    }

    fn new(origin: &HttpOrigin, target: &str, site: Site<'_>, mut headers: HeaderMap) -> Result<Self, RenderFailure> {
        let invalid_origin = || refused("render.http is not an origin: write it like \"https://origin.acme.example\"");
        let uri = Uri::try_from(origin.url()).map_err(|_| invalid_origin())?;
        let authority = uri.authority().map(Authority::as_str).ok_or_else(invalid_origin)?;
        let own_host = HeaderValue::try_from(authority).map_err(|_| invalid_origin())?;
        // A target with its own host would use the origin as a proxy.
        let target = Some(target).filter(|path| path.starts_with('/')).and_then(|path| Uri::try_from(path).ok());
        let target = target.ok_or_else(|| refused("the path is not a valid HTTP request target"))?;
        let public_host = value(site.host, "the tenant's first host is not a valid header value: correct its hosts")?;
        let host = match origin.host {
            SentHost::Origin => own_host,
            SentHost::Public => public_host.clone(),
        };
        headers.insert(HOST, host);
        headers.insert(FORWARDED_HOST, public_host);
        headers.insert(FORWARDED_PROTO, value(site.scheme, "the scheme of the site is not a valid header value")?);
        if !origin.keep_alive {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(Self {
            origin: uri,
            method: Method::GET,
            target,
            headers,
            body: Bytes::new(),
            is_pass: false,
            upgrade: false,
        })
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> &Uri {
        &self.origin
    }

    /// The path whose share of the origin's permits a pass uses.
    pub(crate) fn shared_path(&self) -> Option<&str> {
        self.is_pass.then(|| self.target.path())
    }

    /// Whether the request may go on a pooled connection. The origin may be closing that one: such
    /// a request fails, and an unsafe one cannot be repeated by the visitor without a doubt.
    pub(crate) fn may_reuse(&self) -> bool {
        self.method.is_safe() && !self.upgrade
    }

    /// Whether a request that was lost on a pooled connection is sent once more, on a new one. Many
    /// origins close idle connections after a few seconds, and a visitor would get an error when a
    /// request meets that moment. A lost render is repeated by the queue, which counts it.
    pub(crate) fn may_repeat(&self) -> bool {
        self.is_pass && self.may_reuse()
    }

    pub(crate) fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// How the site is reached by its visitors.
struct Site<'a> {
    host: &'a str,
    scheme: &'a str,
}

/// Removes the headers of the visitor's connection and those that describe a body: the request gets
/// its own.
fn remove_framing(headers: &mut HeaderMap) {
    connection_headers::remove(headers);
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
}

/// Removes what only a proxy may say, and without an upgrade what belongs to one.
fn remove_forwarding(headers: &mut HeaderMap, upgrade: bool) {
    // Some servers read an underscore as a dash.
    let dashed = |name: &str| name.replace('_', "-");
    let forwarding = |name: &str| name.starts_with("x-forwarded-") || name == "x-real-ip" || name == FORWARDED;
    let unused = |name: &str| !upgrade && name.starts_with("sec-websocket-");
    let removed = headers.keys().filter(|name| forwarding(&dashed(name.as_str())) || unused(name.as_str()));
    for name in removed.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// Adds the headers of the configuration, secrets among them, in place of those of the same name.
fn add(headers: &mut HeaderMap, added: &[(&str, &str)]) -> Result<(), RenderFailure> {
    for (name, text) in added {
        let name = HeaderName::try_from(*name).map_err(|_| refused("a configured header has no valid name"))?;
        let mut value = value(text, "a configured header has no valid value")?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(())
}

fn value(text: &str, otherwise: &str) -> Result<HeaderValue, RenderFailure> {
    HeaderValue::try_from(text).map_err(|_| refused(otherwise))
}

fn refused(what: &str) -> RenderFailure {
    RenderFailure::Forbidden(what.to_owned())
}

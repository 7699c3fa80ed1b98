//! Previews: an editor with a signed cookie gets what the tenant's origin renders now. Nothing of
//! them is read from DynamoDB or S3, or written there.

pub mod cookie;

use std::time::Duration;

use everfresh_core::aws_time::AwsTime;
use everfresh_core::config::{Render, TenantConfig};
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::headers;
use everfresh_core::domain::page_key::NormalPath;
use everfresh_core::domain::publish_gate::MAX_BODY_BYTES;
use everfresh_origin::{OriginRequest, OriginTimeouts, Origins};
use http::header::{ACCEPT_LANGUAGE, COOKIE, HeaderName, HeaderValue};

use crate::http::cache_status::CacheStatus;
use crate::http::{Method, Reply, Request};
use crate::page::error::PageError;
use crate::settings::Settings;
use cookie::PreviewKeys;

/// Marks the request to the origin as one for a draft.
const PREVIEW_HEADER: HeaderName = HeaderName::from_static("x-everfresh-preview");

#[derive(Debug)]
pub(crate) struct Previews {
    keys: PreviewKeys,
    origins: Origins,
    timeout: Duration,
    time: AwsTime,
}

impl Previews {
    pub(crate) fn new(settings: &Settings, time: AwsTime) -> Self {
        let timeout = Duration::from_millis(settings.response_deadline_ms);
        let origins = Origins::new(OriginTimeouts::default());
        Self { keys: settings.preview_keys.clone(), origins, timeout, time }
    }

    pub(crate) fn with_loopback_origins(self) -> Self {
        Self { origins: self.origins.with_loopback(), ..self }
    }

    /// Whether the request has a valid preview cookie of this tenant.
    pub(crate) fn is_preview(&self, request: &Request, tenant: &TenantConfig) -> bool {
        let cookie = request.cookie(cookie::COOKIE);
        cookie.is_some_and(|cookie| self.keys.admits(cookie, &tenant.tenant, self.time.now_ms()))
    }

    pub(crate) async fn fetch(
        &self,
        request: &Request,
        method: Method,
        tenant: &TenantConfig,
    ) -> Result<Reply, PageError> {
        let Render::Http(origin) = &tenant.render else { return Err(PageError::NoOrigin) };
        let target = target(request)?;
        let headers = forwarded(request);
        let host = tenant.hosts.first().map_or("", String::as_str);
        let added: Vec<_> = tenant.origin_headers.iter().collect();
        let draft = OriginRequest {
            tenant: &tenant.tenant,
            path: &target,
            host,
            headers: &headers,
            added: &added,
            condition: None,
            max_bytes: MAX_BODY_BYTES,
            time: self.timeout,
        };
        let tenant = &tenant.tenant;
        match self.origins.fetch(origin, draft).await {
            Ok(rendered) => Ok(reply(rendered, method)),
            Err(failure) => {
                tracing::warn!(%tenant, %failure, "preview failed, no answer from the origin of {tenant}: {failure}");
                Err(PageError::OriginDown)
            }
        }
    }
}

/// The path is normalised as for a page. A draft may depend on any parameter, so the query is
/// passed on as received.
fn target(request: &Request) -> Result<String, PageError> {
    let path = NormalPath::parse(&request.target).map_err(|_| PageError::BadPath)?;
    match request.target.split_once('?') {
        Some((_, query)) if query.bytes().all(in_query) => Ok(format!("{}?{query}", path.path())),
        Some(_) => Err(PageError::BadPath),
        None => Ok(path.path().to_owned()),
    }
}

/// The headers passed on to the origin: the cookies except our own, and the language.
fn forwarded(request: &Request) -> Vec<(HeaderName, HeaderValue)> {
    let ours = |cookie: &&str| cookie.split('=').next() != Some(cookie::COOKIE);
    let cookies: Vec<&str> = request.cookies.iter().map(|cookie| cookie.trim()).filter(ours).collect();
    let language = request.header("accept-language").unwrap_or_default();
    let values = [(COOKIE, cookies.join("; ")), (ACCEPT_LANGUAGE, language.to_owned())];
    let values = values.into_iter().filter(|(_, value)| !value.is_empty());
    // A value that is not valid in a header is left out.
    let mut headers: Vec<_> = values.filter_map(|(name, value)| Some((name, value.try_into().ok()?))).collect();
    headers.push((PREVIEW_HEADER, HeaderValue::from_static("1")));
    headers
}

/// The bytes that are valid in a request line. Browsers encode the others.
fn in_query(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>')
}

fn is_token(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn reply(rendered: Rendered, method: Method) -> Reply {
    // A page with an encoding is never stored; a draft is passed on with its encoding.
    let encoding = rendered.headers.iter().find(|(name, value)| name == "content-encoding" && is_token(value));
    let kept = headers::replayable(&rendered.headers).into_iter().chain(encoding.cloned());
    let reply = kept
        .fold(Reply::new(rendered.status), |reply, (name, value)| reply.with(&name, value))
        .with("cache-control", "private, no-store")
        .with("x-content-type-options", "nosniff")
        .with("x-robots-tag", "noindex")
        .with("cache-status", CacheStatus::Bypass { detail: "preview" }.to_string());
    match method {
        Method::Get => reply.body(rendered.body),
        Method::Head => reply,
    }
}

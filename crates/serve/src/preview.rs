//! Previews go to the tenant's origin and nowhere else: nothing of them is read from the store or written to it.

use std::time::Duration;

use everfresh_core::config::{Render, TenantConfig};
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::gate::MAX_BODY_BYTES;
use everfresh_core::domain::headers;
use everfresh_core::domain::page_key::NormalPath;
use everfresh_origin::OriginRequest;
use http::header::{ACCEPT_LANGUAGE, COOKIE, HeaderName, HeaderValue};

use crate::reply::Reply;
use crate::request::{Method, Request};
use crate::rules::cache_status::Did;
use crate::rules::page_error::PageError;
use crate::rules::preview;
use crate::serve::Server;

/// Tells the origin that a draft is asked for.
const PREVIEW_HEADER: HeaderName = HeaderName::from_static("x-everfresh-preview");

impl Server {
    /// Whether the reader carries a cookie that opens this tenant's previews.
    pub(crate) fn is_preview(&self, request: &Request, tenant: &TenantConfig) -> bool {
        let cookie = request.cookie(preview::COOKIE);
        cookie.is_some_and(|cookie| self.settings.preview_keys.admits(cookie, &tenant.tenant, self.now_ms()))
    }

    /// What the origin renders for this reader now.
    pub(crate) async fn preview(
        &self,
        request: &Request,
        method: Method,
        tenant: &TenantConfig,
    ) -> Result<Reply, PageError> {
        let Render::Http(origin) = &tenant.render else { return Err(PageError::NoOrigin) };
        // The same normaliser as for a page. Drafts may be asked for by any parameter, so the query goes as it came.
        let path = NormalPath::parse(&request.target).map_err(|_| PageError::BadPath)?;
        let target = match request.target.split_once('?') {
            Some((_, query)) if query.bytes().all(in_query) => format!("{}?{query}", path.path()),
            Some(_) => return Err(PageError::BadPath),
            None => path.path().to_owned(),
        };
        let headers = forwarded(request);
        let host = tenant.hosts.first().map_or("", String::as_str);
        let time = Duration::from_millis(self.settings.response_deadline_ms);
        let (tenant, max_bytes) = (&tenant.tenant, MAX_BODY_BYTES);
        let draft = OriginRequest { tenant, path: &target, host, headers: &headers, max_bytes, time };
        match self.origins.fetch(origin, draft).await {
            Ok(rendered) => Ok(reply(rendered, method)),
            Err(failure) => {
                tracing::warn!(%tenant, %failure, "the origin of {tenant} did not answer a preview: {failure}");
                Err(PageError::OriginDown)
            }
        }
    }
}

/// What an editor's browser may tell the tenant's own origin: its cookies, but for the one that is ours, and its language.
fn forwarded(request: &Request) -> Vec<(HeaderName, HeaderValue)> {
    let ours = |cookie: &&str| cookie.split('=').next() != Some(preview::COOKIE);
    let cookies: Vec<&str> = request.cookies.iter().map(|cookie| cookie.trim()).filter(ours).collect();
    let language = request.header("accept-language").unwrap_or_default();
    let values = [(COOKIE, cookies.join("; ")), (ACCEPT_LANGUAGE, language.to_owned())];
    let values = values.into_iter().filter(|(_, value)| !value.is_empty());
    // What cannot stand in a header is left out.
    let mut headers: Vec<_> = values.filter_map(|(name, value)| Some((name, value.try_into().ok()?))).collect();
    headers.push((PREVIEW_HEADER, HeaderValue::from_static("1")));
    headers
}

/// What a query may hold on a request line. Browsers encode the rest.
fn in_query(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>')
}

fn is_token(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn reply(rendered: Rendered, method: Method) -> Reply {
    // A page with an encoding is never stored; a draft is passed on as it came, and this tells how to read it.
    let encoding = rendered.headers.iter().find(|(name, value)| name == "content-encoding" && is_token(value));
    let kept = headers::replayable(&rendered.headers).into_iter().chain(encoding.cloned());
    let reply = kept
        .fold(Reply::new(rendered.status), |reply, (name, value)| reply.with(&name, value))
        .with("cache-control", "private, no-store")
        .with("x-content-type-options", "nosniff")
        .with("x-robots-tag", "noindex")
        .with("cache-status", Did::Bypass { detail: "preview" }.to_string());
    match method {
        Method::Get => reply.body(rendered.body),
        Method::Head => reply,
    }
}

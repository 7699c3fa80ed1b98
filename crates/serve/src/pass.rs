//! Passing a request to the tenant's origin: one visitor's answer, which is never stored and never
//! shared between visitors. A request is passed because its path is proxied by the configuration,
//! because the published version is a bypass, or because no stored page can answer it.
//!
//! | Where | What |
//! |---|---|
//! | this file | why a request is passed, and the exchange |
//! | `request` | what of a visitor's request reaches the origin |
//! | `response` | what of the origin's answer reaches the visitor |

mod request;
mod response;

use std::time::Duration;

use everfresh_core::config::{HttpOrigin, Proxied, Render, TenantConfig};
use everfresh_core::domain::bypass::BypassReason;
use everfresh_core::domain::fragment_headers::FRAGMENT_HEADERS;
use everfresh_core::render::RenderFailure;
use everfresh_origin::{OriginTimeouts, Origins, PassRequest, PassResponse};
use http::Method as HttpMethod;

use crate::http::Request;
use crate::http::cache_status::CacheStatus;
use crate::page::error::PageError;
use crate::server::{Served, Stream};
use crate::settings::Settings;
use response::CacheKey;

/// The header in which a trusted proxy says that a request is not for a stored page.
const PASS_HEADER: &str = "x-everfresh-pass";

/// Why a request is passed to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassReason {
    /// Its route is `pass`, or no route matches.
    Route,
    /// Its route is `asset`, or its path has the extension of a static file.
    Asset,
    /// Neither GET nor HEAD.
    Method,
    /// It has a header with which it is for something else than the stored page.
    Header,
    /// It has an `Authorization`: the answer is for this visitor.
    Authorization,
    /// The proxy in front said so.
    Proxy,
    /// The published version says that nothing is stored.
    Bypass(BypassReason),
    /// There is no page to serve, for the reason that a 503 would give.
    NotReady(&'static str),
}

impl PassReason {
    /// Why a request for a page is passed before the page is looked up.
    pub(crate) fn of_page_request(request: &Request, pass_when: &[String], trusts_proxy: bool) -> Option<Self> {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Some(PassReason::Method);
        }
        if trusts_proxy && is_marked(request) {
            return Some(PassReason::Proxy);
        }
        if request.header("authorization").is_some_and(|value| !is_signature(value)) {
            return Some(PassReason::Authorization);
        }
        let fragment = FRAGMENT_HEADERS.iter().any(|name| request.header(name).is_some());
        let own = || pass_when.iter().any(|name| request.header(name).is_some());
        (fragment || own() || is_websocket(request)).then_some(PassReason::Header)
    }

    /// Whether the request was for a page: then no cache may keep the answer, because no version
    /// stands behind it that could be invalidated.
    fn is_page(self) -> bool {
        match self {
            PassReason::Route | PassReason::Asset => false,
            PassReason::Method
            | PassReason::Header
            | PassReason::Authorization
            | PassReason::Proxy
            | PassReason::Bypass(_)
            | PassReason::NotReady(_) => true,
        }
    }

    fn cache_status(self) -> CacheStatus {
        match self {
            PassReason::Route => CacheStatus::Bypass { detail: "pass" },
            PassReason::Asset => CacheStatus::Bypass { detail: "asset" },
            PassReason::Method => CacheStatus::Method,
            PassReason::Header => CacheStatus::Request { detail: "header" },
            PassReason::Authorization => CacheStatus::Request { detail: "authorization" },
            PassReason::Proxy => CacheStatus::Request { detail: "proxy" },
            PassReason::Bypass(reason) => CacheStatus::Bypass { detail: reason.as_str() },
            PassReason::NotReady(detail) => CacheStatus::Miss { detail },
        }
    }
}

impl From<Proxied> for PassReason {
    fn from(how: Proxied) -> Self {
        match how {
            Proxied::Pass => PassReason::Route,
            Proxied::Asset => PassReason::Asset,
        }
    }
}

/// Whether the proxy in front has marked the request as one for no stored page. The mark is part of
/// the distribution's cache key, and different for each request.
fn is_marked(request: &Request) -> bool {
    request.header(PASS_HEADER).is_some_and(|value| !value.is_empty())
}

/// Whether it requests an upgrade to another protocol than HTTP, where the connection can be
/// handed over.
fn is_websocket(request: &Request) -> bool {
    request.is_upgrade && request.header("upgrade").is_some_and(|value| !value.eq_ignore_ascii_case("h2c"))
}

/// Whether an `Authorization` is the signature with which CloudFront calls the function URL. It
/// replaces the visitor's own, and is no visitor's.
fn is_signature(authorization: &str) -> bool {
    authorization.trim_start().starts_with("AWS4-HMAC-SHA256")
}

#[derive(Debug)]
pub(crate) struct Passes {
    origins: Origins,
    trusts_proxy: bool,
}

impl Passes {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { origins: Origins::new(OriginTimeouts::default()), trusts_proxy: settings.trust_host_header }
    }

    pub(crate) fn with_loopback_origins(self) -> Self {
        Self { origins: self.origins.with_loopback(), ..self }
    }

    pub(crate) fn trusts_proxy(&self) -> bool {
        self.trusts_proxy
    }

    /// The origin's answer to this request. An origin that does not answer is
    /// [`PageError::NotYet`].
    pub(crate) async fn pass(
        &self,
        request: &Request,
        tenant: &TenantConfig,
        host: &str,
        reason: PassReason,
        time: Duration,
    ) -> Result<Served, PageError> {
        let Render::Http(origin) = &tenant.render else { return Err(PageError::NoOrigin) };
        let method = HttpMethod::from_bytes(request.method.as_bytes()).map_err(|_| PageError::Method)?;
        let target = request::target(&request.target)?;
        let added: Vec<_> = tenant.origin_headers.iter().collect();
        let passed = PassRequest {
            tenant: &tenant.tenant,
            method,
            target: &target,
            host,
            scheme: if request.is_encrypted { "https" } else { "http" },
            client: request.client.as_deref(),
            headers: request::headers(request, reason, |name| tenant.adds_header(name)),
            added: &added,
            body: request.body.clone(),
            time,
            upgrade: request.is_upgrade,
        };
        match self.origins.pass(origin, passed).await {
            Ok(answer) => {
                let key = if self.trusts_proxy && !is_marked(request) { CacheKey::Address } else { CacheKey::Vary };
                Ok(served(answer, origin, reason, key))
            }
            Err(failure) => {
                let (tenant_name, reason) = (&tenant.tenant, reason.cache_status().to_string());
                tracing::warn!(
                    tenant = %tenant_name,
                    %failure,
                    reason,
                    "a request was passed to the origin of {tenant_name} and not answered: {}",
                    causes(&failure)
                );
                Err(unanswered(&failure, tenant))
            }
        }
    }
}

fn served(answer: PassResponse, origin: &HttpOrigin, reason: PassReason, key: CacheKey) -> Served {
    let reply = response::reply(answer.status, &answer.headers, origin, reason, key);
    Served { reply, enqueues: Vec::new(), stream: Some(Stream { body: answer.body, upgraded: answer.upgraded }) }
}

fn unanswered(failure: &RenderFailure, tenant: &TenantConfig) -> PageError {
    let detail = match failure {
        RenderFailure::TimedOut => "origin-timeout",
        RenderFailure::Forbidden(_) => "origin-forbidden",
        RenderFailure::Unreachable(_)
        | RenderFailure::Unreadable(_)
        | RenderFailure::TooLarge { .. }
        | RenderFailure::Function(_)
        | RenderFailure::Template(_) => "origin-unreachable",
    };
    PageError::NotYet { retry_after: crate::server::RETRY_AFTER, detail, placeholder: tenant.placeholder.clone() }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}

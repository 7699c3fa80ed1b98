//! Requests that are answered without a page.

use bytes::Bytes;
use everfresh_core::config::ResolveError;
use everfresh_core::domain::bypass::BypassReason;
use everfresh_core::metrics::{self, Metric};

use crate::http::cache_directives::REFUSED_SHARED;
use crate::http::cache_status::CacheStatus;
use crate::http::{Method, Reply, Request};

const PLAIN: &str = "text/plain; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageError {
    /// Neither GET nor HEAD.
    Method,
    /// No host, or one without a tenant.
    Host,
    /// The path has no canonical form.
    BadPath,
    /// No route of the tenant matches the path.
    NoRoute,
    /// A preview, but the tenant has no HTTP origin.
    NoOrigin,
    /// A preview, but the origin did not answer.
    OriginDown,
    /// The request panicked: a defect of Everfresh.
    Internal,
    /// The origin's answer to a passed request is too large to be returned, or broke off.
    Unreturnable,
    /// The page was purged.
    Gone,
    /// Nothing of the page is stored, and there is no HTTP origin that could answer.
    Bypassed {
        /// The status with which the renderer answered.
        status: Option<u16>,
        reason: BypassReason,
    },
    /// No version is published or can be read, and none was in time.
    NotYet {
        /// In seconds.
        retry_after: u64,
        detail: &'static str,
        /// The tenant's HTML to show meanwhile.
        placeholder: Option<String>,
    },
}

impl From<ResolveError> for PageError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Path(_) | ResolveError::Tag(_) => PageError::BadPath,
            ResolveError::NoRoute => PageError::NoRoute,
        }
    }
}

impl PageError {
    pub(super) fn metric(&self) -> Metric {
        match self {
            PageError::NotYet { .. } | PageError::OriginDown | PageError::Internal | PageError::Unreturnable => {
                metrics::UNAVAILABLE
            }
            PageError::Gone => metrics::GONE,
            PageError::Bypassed { .. } => metrics::REFUSED,
            PageError::Method | PageError::Host | PageError::BadPath | PageError::NoRoute | PageError::NoOrigin => {
                metrics::REFUSED
            }
        }
    }

    /// For HEAD without a body.
    pub(crate) fn reply_to(&self, request: &Request) -> Reply {
        let reply = self.reply();
        match Method::parse(&request.method) {
            Some(Method::Head) => reply.body(Bytes::new()),
            Some(Method::Get) | None => reply,
        }
    }

    /// Repeats nothing of the request.
    pub fn reply(&self) -> Reply {
        let shared = format!("public, max-age=0, s-maxage={REFUSED_SHARED}");
        let no_store = "no-store".to_owned();
        let (status, text, cache_control) = match self {
            PageError::Method => (405, "Only GET and HEAD are answered here.", no_store),
            PageError::Host => (421, "No site of this name is served here.", no_store),
            PageError::BadPath => (400, "This path cannot be a page.", no_store),
            PageError::NoRoute => (404, "There is no such page.", shared),
            PageError::NoOrigin => (404, "There is nothing to preview.", no_store),
            PageError::OriginDown => (502, "The origin did not answer the preview.", no_store),
            PageError::Unreturnable => (502, "The answer is too large for this address, or broke off.", no_store),
            PageError::Internal => (500, "Something went wrong here. Please try again in a moment.", no_store),
            PageError::Gone => (410, "This page is gone.", shared),
            // Any other recorded status promises a page, a redirect or nothing, which this text is not.
            PageError::Bypassed { status, .. } => (
                status.filter(|status| (400..500).contains(status)).unwrap_or(404),
                "This page is not public.",
                no_store,
            ),
            PageError::NotYet { .. } => (503, "This page is not ready yet. Please try again in a moment.", no_store),
        };
        let reply = Reply::new(status)
            .with("cache-control", cache_control)
            .with("x-content-type-options", "nosniff")
            .with("cache-status", self.cache_status().to_string());
        match self {
            PageError::Method => reply.with("allow", "GET, HEAD").with("content-type", PLAIN).body(text),
            PageError::NotYet { retry_after, placeholder, .. } => {
                let reply = reply.with("retry-after", retry_after.to_string());
                match placeholder {
                    Some(html) => reply.with("content-type", "text/html; charset=utf-8").body(html.clone()),
                    None => reply.with("content-type", PLAIN).body(text),
                }
            }
            PageError::Host
            | PageError::BadPath
            | PageError::NoRoute
            | PageError::NoOrigin
            | PageError::OriginDown
            | PageError::Internal
            | PageError::Unreturnable
            | PageError::Gone
            | PageError::Bypassed { .. } => reply.with("content-type", PLAIN).body(text),
        }
    }

    fn cache_status(&self) -> CacheStatus {
        match self {
            PageError::Method => CacheStatus::Bypass { detail: "method" },
            PageError::Host => CacheStatus::Bypass { detail: "host" },
            PageError::BadPath => CacheStatus::Bypass { detail: "path" },
            PageError::NoRoute => CacheStatus::Bypass { detail: "no-route" },
            PageError::NoOrigin | PageError::OriginDown => CacheStatus::Bypass { detail: "preview" },
            PageError::Internal => CacheStatus::Bypass { detail: "internal-error" },
            PageError::Unreturnable => CacheStatus::Bypass { detail: "unreturnable" },
            PageError::Gone => CacheStatus::Miss { detail: "gone" },
            PageError::Bypassed { reason, .. } => CacheStatus::Bypass { detail: reason.as_str() },
            PageError::NotYet { detail, .. } => CacheStatus::Miss { detail },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_status_and_cacheability() {
        let not_yet = PageError::NotYet { retry_after: 7, detail: "waiting", placeholder: None };
        for (error, status, cached) in [
            (PageError::Method, 405, false),
            (PageError::Host, 421, false),
            (PageError::BadPath, 400, false),
            (PageError::NoRoute, 404, true),
            (PageError::NoOrigin, 404, false),
            (PageError::OriginDown, 502, false),
            (PageError::Internal, 500, false),
            (PageError::Gone, 410, true),
            (not_yet, 503, false),
        ] {
            let reply = error.reply();
            assert_eq!(reply.status, status, "{error:?}");
            assert_eq!(reply.header("cache-control") != Some("no-store"), cached, "{error:?}");
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
            assert!(reply.header("cache-status").unwrap().starts_with("everfresh; fwd="));
            assert!(!reply.body.is_empty());
        }
    }

    #[test]
    fn method_error_names_the_allowed_methods() {
        assert_eq!(PageError::Method.reply().header("allow"), Some("GET, HEAD"));
    }

    #[test]
    fn not_ready_page_has_retry_after_and_placeholder() {
        let placeholder = Some("<p>One moment".to_owned());
        let reply = PageError::NotYet { retry_after: 7, detail: "cooldown", placeholder }.reply();
        assert_eq!(reply.header("retry-after"), Some("7"));
        assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(reply.header("cache-status"), Some("everfresh; fwd=uri-miss; detail=cooldown"));
        assert_eq!(reply.body, "<p>One moment");
    }
}

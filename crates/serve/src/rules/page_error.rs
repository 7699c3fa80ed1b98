//! Requests that are answered without a page, and what they are told.

use everfresh_core::config::ResolveError;

use super::cache_status::Did;
use super::caching::REFUSED_SHARED;
use crate::reply::Reply;

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageError {
    /// Neither GET nor HEAD.
    Method,
    /// No host was named, or one that belongs to nobody here.
    Host,
    /// A path that has no canonical form.
    BadPath,
    /// A path that is no page of the tenant.
    NoRoute,
    /// A preview without an origin to preview.
    NoOrigin,
    /// A preview whose origin did not answer.
    OriginDown,
    /// The request panicked: a defect of Everfresh.
    Internal,
    /// The page was purged.
    Gone,
    /// There is none yet, and it did not come in time.
    NotYet {
        /// Worth trying again after so many seconds.
        retry_after: u64,
        /// Why.
        detail: &'static str,
        /// What to show meanwhile: HTML.
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
    /// The answer. It repeats nothing of the request.
    pub fn reply(&self) -> Reply {
        let shared = format!("public, max-age=0, s-maxage={REFUSED_SHARED}");
        let no_store = "no-store".to_owned();
        let (status, words, keeping) = match self {
            PageError::Method => (405, "Only GET and HEAD are answered here.", no_store),
            PageError::Host => (421, "No site of this name is served here.", no_store),
            PageError::BadPath => (400, "This path cannot be a page.", no_store),
            PageError::NoRoute => (404, "There is no such page.", shared),
            PageError::NoOrigin => (404, "There is nothing to preview.", no_store),
            PageError::OriginDown => (502, "The origin did not answer the preview.", no_store),
            PageError::Internal => (500, "Something went wrong here. Please try again in a moment.", no_store),
            PageError::Gone => (410, "This page is gone.", shared),
            PageError::NotYet { .. } => (503, "This page is not ready yet. Please try again in a moment.", no_store),
        };
        let reply = Reply::new(status)
            .with("cache-control", keeping)
            .with("x-content-type-options", "nosniff")
            .with("cache-status", self.did().to_string());
        match self {
            PageError::Method => reply.with("allow", "GET, HEAD").with("content-type", PLAIN).body(words),
            PageError::NotYet { retry_after, placeholder, .. } => {
                let reply = reply.with("retry-after", retry_after.to_string());
                match placeholder {
                    Some(html) => reply.with("content-type", "text/html; charset=utf-8").body(html.clone()),
                    None => reply.with("content-type", PLAIN).body(words),
                }
            }
            PageError::Host
            | PageError::BadPath
            | PageError::NoRoute
            | PageError::NoOrigin
            | PageError::OriginDown
            | PageError::Internal
            | PageError::Gone => reply.with("content-type", PLAIN).body(words),
        }
    }

    fn did(&self) -> Did {
        match self {
            PageError::Method => Did::Bypass { detail: "method" },
            PageError::Host => Did::Bypass { detail: "host" },
            PageError::BadPath => Did::Bypass { detail: "path" },
            PageError::NoRoute => Did::Bypass { detail: "no-route" },
            PageError::NoOrigin | PageError::OriginDown => Did::Bypass { detail: "preview" },
            PageError::Internal => Did::Bypass { detail: "internal-error" },
            PageError::Gone => Did::Miss { detail: "gone" },
            PageError::NotYet { detail, .. } => Did::Miss { detail },
        }
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_status_and_may_be_kept_or_not() {
        let not_yet = PageError::NotYet { retry_after: 7, detail: "waiting", placeholder: None };
        for (refusal, status, kept) in [
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
            let reply = refusal.reply();
            assert_eq!(reply.status, status, "{refusal:?}");
            assert_eq!(reply.header("cache-control") != Some("no-store"), kept, "{refusal:?}");
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
            assert!(reply.header("cache-status").unwrap().starts_with("everfresh; fwd="));
            assert!(!reply.body.is_empty());
        }
    }

    #[test]
    fn another_method_is_told_which_are_allowed() {
        assert_eq!(PageError::Method.reply().header("allow"), Some("GET, HEAD"));
    }

    #[test]
    fn a_page_that_is_not_ready_says_when_to_come_again() {
        let placeholder = Some("<p>One moment".to_owned());
        let reply = PageError::NotYet { retry_after: 7, detail: "cooldown", placeholder }.reply();
        assert_eq!(reply.header("retry-after"), Some("7"));
        assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(reply.header("cache-status"), Some("everfresh; fwd=uri-miss; detail=cooldown"));
        assert_eq!(reply.body, "<p>One moment");
    }
}

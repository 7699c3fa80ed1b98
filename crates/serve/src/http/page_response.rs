//! A published version as an HTTP response.

use everfresh_core::artifacts::StoredBody;
use everfresh_core::domain::artifact::etag;
use everfresh_core::domain::digest::Digest;
use everfresh_core::domain::freshness::{Freshness, Policy, max_stale_seconds};
use everfresh_core::domain::headers;
use everfresh_core::domain::page::Meta;

use super::cache_directives::{STALE_SHARED, cache_directives};
use super::cache_status::CacheStatus;
use super::conditional::{Validators, http_date, not_modified};
use super::{Method, Reply, Request};

/// The default `Content-Type`.
const HTML: &str = "text/html; charset=utf-8";

#[derive(Clone, Copy, Debug)]
pub struct PageResponse<'a> {
    pub meta: &'a Meta,
    pub body: &'a StoredBody,
    pub freshness: Freshness,
    pub stale_ms: u64,
    pub policy: Policy,
    pub cache_status: CacheStatus,
    /// Memory answers in the table's place: the page may have been taken down meanwhile.
    pub stands_in: bool,
    /// Name and value of the CDN's tag header.
    pub tags: Option<(&'a str, &'a str)>,
}

impl PageResponse<'_> {
    /// 304 if the client has the version already; without a body for HEAD.
    pub fn reply(&self, request: &Request, method: Method, now_ms: u64) -> Reply {
        let status = status(self.meta, self.body);
        let validators = validators(self.meta, self.body, status);
        let unmodified = validators.as_ref().is_some_and(|(etag, modified_at)| {
            let page = Validators { etag, modified_at: *modified_at };
            not_modified(request.header("if-none-match"), request.header("if-modified-since"), page)
        });
        let mut reply = Reply::new(if unmodified { 304 } else { status });
        // Also on 304: a cache updates its headers from it. Otherwise it would keep, for instance,
        // an outdated content security policy for as long as the body stays the same.
        for (name, value) in stored_headers(self.meta, self.body) {
            reply = reply.with(&name, value);
        }
        let max_stale_seconds = max_stale_seconds(self.meta, &self.policy);
        let mut directives = cache_directives(&self.freshness, max_stale_seconds, self.stale_ms, now_ms);
        // Whatever serves it without the origin, this side or a cache in front, for as long as the
        // origin says.
        if let Some(if_error_s) = self.meta.stale_if_error_seconds {
            directives.if_error = if_error_s.max(max_stale_seconds.unwrap_or(0));
        }
        if self.stands_in {
            directives.shared = directives.shared.min(STALE_SHARED);
        }
        reply = reply
            .with("x-content-type-options", "nosniff")
            .with("cache-control", directives.cache_control())
            .with("cdn-cache-control", directives.cdn_cache_control())
            .with("cache-status", self.cache_status.to_string());
        if let Some((etag, modified_at)) = validators {
            reply = reply.with("etag", etag).with("last-modified", http_date(modified_at));
        }
        if let Some((name, value)) = self.tags.filter(|(_, value)| !value.is_empty()) {
            reply = reply.with(name, value);
        }
        match (unmodified, method) {
            (true, _) => reply,
            (false, Method::Get) => reply.body(self.body.bytes.clone()),
            (false, Method::Head) if status == 204 => reply,
            (false, Method::Head) => reply.with("content-length", self.body.bytes.len().to_string()),
        }
    }
}

/// ETag and `Last-Modified` of a 2xx. A 404 or a redirect has neither: a client must not get 304
/// when the same body is published with another status.
fn validators(meta: &Meta, body: &StoredBody, status: u16) -> Option<(String, u64)> {
    let is_success = (200..300).contains(&status);
    is_success.then(|| (stored_etag(meta, body), meta.modified_at.unwrap_or(meta.generated_at)))
}

/// META's status, else the object's, else 200. A status that allows no body is replaced by 200 if
/// there is one.
fn status(meta: &Meta, body: &StoredBody) -> u16 {
    let status = meta.status.or(body.status).unwrap_or(200);
    let fits = match status {
        204 => body.bytes.is_empty(),
        205 | 304 => false,
        status => (200..600).contains(&status),
    };
    if fits { status } else { 200 }
}

/// The headers to replay: META's own, or the object's metadata if a foreign writer wrote the row.
fn stored_headers(meta: &Meta, body: &StoredBody) -> Vec<(String, String)> {
    // Filtered again: a foreign writer may have stored any header.
    let mut stored = headers::replayable(&match meta.headers.as_slice() {
        [] => {
            let pair = |name: &str, value: &Option<String>| Some((name.to_owned(), value.clone()?));
            let known = [
                pair("content-type", &body.content_type),
                pair("content-security-policy", &body.content_security_policy),
            ];
            known.into_iter().flatten().collect()
        }
        own => own.to_vec(),
    });
    if !stored.iter().any(|(name, _)| name == "content-type") {
        stored.push(("content-type".to_owned(), HTML.to_owned()));
    }
    stored
}

/// META's ETag as HTTP requires it; the body's digest if there is no valid one. Ours are strong; a
/// foreign writer's may be weak.
fn stored_etag(meta: &Meta, body: &StoredBody) -> String {
    let characters = |text: &str| text.bytes().all(|byte| byte == b'!' || (0x23..=0x7e).contains(&byte));
    let digest = || etag(Digest::of(&body.bytes));
    let Some(known) = meta.etag.as_deref().filter(|known| !known.is_empty()) else { return digest() };
    let opaque = known.strip_prefix("W/").unwrap_or(known);
    match opaque.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) if characters(quoted) => known.to_owned(),
        None if characters(known) => format!("\"{known}\""),
        Some(_) | None => digest(),
    }
}

#[cfg(test)]
#[path = "page_response_tests.rs"]
mod tests;

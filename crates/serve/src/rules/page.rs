//! A published page as an HTTP answer.

use everfresh_core::artifacts::StoredBody;
use everfresh_core::domain::artifact::etag;
use everfresh_core::domain::digest::Digest;
use everfresh_core::domain::freshness::{Freshness, Policy};
use everfresh_core::domain::headers;
use everfresh_core::domain::page::Meta;

use super::cache_status::Did;
use super::caching::keeping;
use super::conditional::{Validators, http_date, not_modified};
use crate::reply::Reply;
use crate::request::{Method, Request};

/// What a page is that nobody described.
const HTML: &str = "text/html; charset=utf-8";

/// A page that can be answered with.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// What is published.
    pub meta: &'a Meta,
    /// Its body.
    pub body: &'a StoredBody,
    /// What it is to readers.
    pub freshness: Freshness,
    /// For how long it has been stale.
    pub stale_ms: u64,
    /// What its route allows.
    pub policy: Policy,
    /// What was done to come by it.
    pub did: Did,
    /// The CDN's tag header, and what it says.
    pub tags: Option<(&'a str, &'a str)>,
}

/// The answer. A reader who has the page already gets 304; one who asks for the head gets no body.
pub fn reply(request: &Request, method: Method, page: &Page<'_>, now_ms: u64) -> Reply {
    let status = status(page.meta, page.body);
    let recognised = recognised_by(page.meta, page.body, status);
    let unmodified = recognised.as_ref().is_some_and(|(etag, modified_at)| {
        let validators = Validators { etag, modified_at: *modified_at };
        not_modified(request.header("if-none-match"), request.header("if-modified-since"), validators)
    });
    let mut reply = Reply::new(if unmodified { 304 } else { status });
    // Also on 304: a cache takes over what it says. Else it would keep the headers that came with the body for as long as the body
    // stays the same, an outdated content security policy among them.
    for (name, value) in described(page.meta, page.body) {
        reply = reply.with(&name, value);
    }
    let keeping = keeping(&page.freshness, &page.policy, page.stale_ms, now_ms);
    reply = reply
        .with("x-content-type-options", "nosniff")
        .with("cache-control", keeping.cache_control())
        .with("cdn-cache-control", keeping.cdn_cache_control())
        .with("cache-status", page.did.to_string());
    if let Some((etag, modified_at)) = recognised {
        reply = reply.with("etag", etag).with("last-modified", http_date(modified_at));
    }
    if let Some((name, value)) = page.tags.filter(|(_, value)| !value.is_empty()) {
        reply = reply.with(name, value);
    }
    match (unmodified, method) {
        (true, _) => reply,
        (false, Method::Get) => reply.body(page.body.bytes.clone()),
        (false, Method::Head) => reply.with("content-length", page.body.bytes.len().to_string()),
    }
}

/// ETag and time of the last change, of a page that is there. A 404 or a redirect has neither: whoever kept it must not be told that it
/// has not changed when the same body comes back with another status.
fn recognised_by(meta: &Meta, body: &StoredBody, status: u16) -> Option<(String, u64)> {
    let is_there = (200..300).contains(&status);
    is_there.then(|| (known_etag(meta, body), meta.modified_at.unwrap_or(meta.generated_at)))
}

/// META's word, else the object's, else 200. What has no body cannot be a page, whoever says so.
fn status(meta: &Meta, body: &StoredBody) -> u16 {
    let status = meta.status.or(body.status).unwrap_or(200);
    if (200..600).contains(&status) && !matches!(status, 204 | 205 | 304) { status } else { 200 }
}

/// The headers to replay: META's own, or what the object's metadata says if another language wrote the row.
fn described(meta: &Meta, body: &StoredBody) -> Vec<(String, String)> {
    // Rows are written by others too.
    let mut described = headers::replayable(&match meta.headers.as_slice() {
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
    if !described.iter().any(|(name, _)| name == "content-type") {
        described.push(("content-type".to_owned(), HTML.to_owned()));
    }
    described
}

/// META's ETag as HTTP wants it; the body's digest if there is none that could be one. Ours are strong; another language's may be weak.
fn known_etag(meta: &Meta, body: &StoredBody) -> String {
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
#[path = "page_tests.rs"]
mod tests;

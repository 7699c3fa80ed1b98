//! The serving function: one subject per combination of its caches, over the same pages.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

use super::backend::{Backend, ETAG};
use super::{Request, SERVE, Subject, event};
use crate::measure::Effort;

/// A page that stays fresh.
const FRESH: &str = "/products/figs";

/// Age of the stale pages: past `revalidate`, well before `max_stale`.
const STALE_AGE: Duration = Duration::from_secs(48 * 60 * 60);

const CACHE_PAGES: (&str, &str) = ("EVERFRESH_CACHE_TTL_MS", "3600000");
const NO_PAGE_CACHE: (&str, &str) = ("EVERFRESH_CACHE_TTL_MS", "0");
const NO_BODY_CACHE: (&str, &str) = ("EVERFRESH_BODY_CACHE_BYTES", "0");
const NO_ENQUEUE_LIMIT: (&str, &str) = ("EVERFRESH_ENQUEUES_PER_MINUTE", "1000000");

pub(super) async fn subjects(binary: &Path, backend: &Arc<Backend>, effort: Effort) -> anyhow::Result<Vec<Subject>> {
    // Repeated enqueues of a page are suppressed: one page per request.
    let stale: Vec<String> = (0..effort.requests_of_a_kind()).map(|n| format!("/products/{n}")).collect();
    backend.publish(&[FRESH.to_owned()], Duration::ZERO).await?;
    backend.publish(&stale, STALE_AGE).await?;
    let fresh = || vec![event(FRESH, &[])];
    let conditional = vec![event(FRESH, &[("if-none-match", ETAG)])];
    let stale = stale.iter().map(|path| event(path, &[])).collect();
    let subject = |variables: &[(&str, &str)], requests: Vec<Request>| {
        let mut environment = backend.environment();
        environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Subject { name: SERVE, binary: binary.to_owned(), environment, requests, backend: Some(backend.clone()) }
    };
    Ok(vec![
        subject(
            &[CACHE_PAGES],
            vec![kind("memory hit", fresh(), is_fresh, 0), kind("304", conditional, is_unmodified, 0)],
        ),
        subject(&[NO_PAGE_CACHE], vec![kind("table read", fresh(), is_fresh, 1)]),
        subject(&[NO_PAGE_CACHE, NO_BODY_CACHE], vec![kind("S3 hit", fresh(), is_fresh, 2)]),
        // Each page's row is read for the first time; the shared body is in memory.
        subject(&[NO_ENQUEUE_LIMIT], vec![Request { enqueues: true, ..kind("stale + enqueue", stale, is_stale, 2) }]),
    ])
}

fn kind(label: &'static str, events: Vec<Bytes>, is_expected: fn(&[u8]) -> bool, calls: u64) -> Request {
    Request { label, events, is_expected, calls, enqueues: false }
}

/// The parts of a response that identify its kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status_code: u16,
    headers: Headers,
    body: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Headers {
    cache_status: String,
}

fn is_fresh(response: &[u8]) -> bool {
    is(response, 200, |status| !status.contains("detail="))
}

fn is_unmodified(response: &[u8]) -> bool {
    is(response, 304, |status| !status.contains("detail="))
}

fn is_stale(response: &[u8]) -> bool {
    is(response, 200, |status| status.ends_with("; detail=stale-age"))
}

fn is(response: &[u8], status: u16, cache_status: impl Fn(&str) -> bool) -> bool {
    serde_json::from_slice::<Response>(response).is_ok_and(|response| {
        let found = &response.headers.cache_status;
        let whole = response.body.ends_with("</html>\n") == (status == 200);
        response.status_code == status && found.starts_with("everfresh; hit; ") && cache_status(found) && whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, cache_status: &str, body: &str) -> Vec<u8> {
        let response =
            serde_json::json!({"statusCode": status, "headers": {"cache-status": cache_status}, "body": body});
        response.to_string().into_bytes()
    }

    #[test]
    fn response_of_another_kind_is_rejected() {
        let page = "<p>\n</html>\n";
        assert!(is_fresh(&response(200, "everfresh; hit; ttl=5", page)));
        assert!(is_stale(&response(200, "everfresh; hit; ttl=-5; detail=stale-age", page)));
        assert!(is_unmodified(&response(304, "everfresh; hit; ttl=5", "")));
        for (status, cache_status, body) in [
            (200, "everfresh; hit; ttl=5; detail=s3-down", page),
            (200, "everfresh; fwd=miss; stored; ttl=60; detail=waited", page),
            (200, "everfresh; hit; ttl=5", "<p>"),
            (503, "everfresh; fwd=uri-miss; detail=waiting", ""),
        ] {
            let response = response(status, cache_status, body);
            assert!(!is_fresh(&response) && !is_stale(&response) && !is_unmodified(&response), "{cache_status}");
        }
        assert!(!is_fresh(b"{}"));
    }
}

//! The serving function: one subject per combination of its memories, over the same pages.

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

/// How old the stale pages are: past their life, and far from the end of what their route allows.
const STALE_AGE: Duration = Duration::from_secs(48 * 60 * 60);

/// Settings under which a page stays in memory, or does not.
const REMEMBER: (&str, &str) = ("EVERFRESH_CACHE_TTL_MS", "3600000");
const ASK_AGAIN: (&str, &str) = ("EVERFRESH_CACHE_TTL_MS", "0");
const NO_BODIES: (&str, &str) = ("EVERFRESH_BODY_CACHE_BYTES", "0");
const ASK_FREELY: (&str, &str) = ("EVERFRESH_ENQUEUES_PER_MINUTE", "1000000");

pub(super) async fn subjects(binary: &Path, backend: &Arc<Backend>, effort: Effort) -> anyhow::Result<Vec<Subject>> {
    // A page that was asked for is not asked for again so soon: one page per request.
    let stale: Vec<String> = (0..effort.requests_of_a_kind()).map(|n| format!("/products/{n}")).collect();
    backend.publish(&[FRESH.to_owned()], Duration::ZERO).await?;
    backend.publish(&stale, STALE_AGE).await?;
    let fresh = || vec![event(FRESH, &[])];
    let has_it = vec![event(FRESH, &[("if-none-match", ETAG)])];
    let stale = stale.iter().map(|path| event(path, &[])).collect();
    let subject = |variables: &[(&str, &str)], requests: Vec<Request>| {
        let mut environment = backend.environment();
        environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Subject { name: SERVE, binary: binary.to_owned(), environment, requests, backend: Some(backend.clone()) }
    };
    Ok(vec![
        subject(&[REMEMBER], vec![kind("memory hit", fresh(), is_fresh, 0), kind("304", has_it, is_unmodified, 0)]),
        subject(&[ASK_AGAIN], vec![kind("table read", fresh(), is_fresh, 1)]),
        subject(&[ASK_AGAIN, NO_BODIES], vec![kind("S3 hit", fresh(), is_fresh, 2)]),
        // Each page's row is read for the first time; their body, which they share, is in memory.
        subject(&[ASK_FREELY], vec![Request { enqueues: true, ..kind("stale + enqueue", stale, is_stale, 2) }]),
    ])
}

fn kind(label: &'static str, events: Vec<Bytes>, is_right: fn(&[u8]) -> bool, calls: u64) -> Request {
    Request { label, events, is_right, calls, enqueues: false }
}

/// The parts of an answer that tell what it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
    headers: Headers,
    body: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Headers {
    cache_status: String,
}

fn is_fresh(answer: &[u8]) -> bool {
    is(answer, 200, |status| !status.contains("detail="))
}

fn is_unmodified(answer: &[u8]) -> bool {
    is(answer, 304, |status| !status.contains("detail="))
}

fn is_stale(answer: &[u8]) -> bool {
    is(answer, 200, |status| status.ends_with("; detail=stale-age"))
}

fn is(answer: &[u8], status: u16, cache_status: impl Fn(&str) -> bool) -> bool {
    serde_json::from_slice::<Answer>(answer).is_ok_and(|answer| {
        let told = &answer.headers.cache_status;
        let whole = answer.body.ends_with("</html>\n") == (status == 200);
        answer.status_code == status && told.starts_with("everfresh; hit; ") && cache_status(told) && whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, cache_status: &str, body: &str) -> Vec<u8> {
        let answer = serde_json::json!({"statusCode": status, "headers": {"cache-status": cache_status}, "body": body});
        answer.to_string().into_bytes()
    }

    #[test]
    fn an_answer_of_another_kind_is_noticed() {
        let page = "<p>\n</html>\n";
        assert!(is_fresh(&answer(200, "everfresh; hit; ttl=5", page)));
        assert!(is_stale(&answer(200, "everfresh; hit; ttl=-5; detail=stale-age", page)));
        assert!(is_unmodified(&answer(304, "everfresh; hit; ttl=5", "")));
        for (status, cache_status, body) in [
            (200, "everfresh; hit; ttl=5; detail=s3-down", page),
            (200, "everfresh; fwd=miss; stored; ttl=60; detail=waited", page),
            (200, "everfresh; hit; ttl=5", "<p>"),
            (503, "everfresh; fwd=uri-miss; detail=waiting", ""),
        ] {
            let answer = answer(status, cache_status, body);
            assert!(!is_fresh(&answer) && !is_stale(&answer) && !is_unmodified(&answer), "{cache_status}");
        }
        assert!(!is_fresh(b"{}"));
    }
}

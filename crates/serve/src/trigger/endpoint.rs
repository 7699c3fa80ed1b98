//! The endpoints below `/_everfresh/`, and parsing what they take.

use everfresh_core::config::is_reserved;
use everfresh_core::domain::page_key::NormalPath;
use serde::{Deserialize, Deserializer};

use super::error::TriggerError;
use crate::http::canonical_hex;

/// The largest body that is read.
pub const MOST_BODY_BYTES: usize = 64 * 1024;

const REVALIDATE: &str = "/_everfresh/revalidate";
pub(super) const REQUESTS: &str = "/_everfresh/requests/";

/// Whether a path and query are below `/_everfresh/`, in any spelling. No page is ever there.
pub fn reserved(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    is_reserved(path) || NormalPath::parse(path).is_ok_and(|normal| is_reserved(normal.path()))
}

/// An endpoint with its parameters, which are neither verified nor parsed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// `POST /_everfresh/revalidate`: enqueues a regeneration.
    Revalidate { query: Option<&'a str> },
    /// `GET /_everfresh/requests/{handle}?after=SEQ`: reads the state of one.
    Request { handle: &'a str, query: Option<&'a str> },
}

impl<'a> Endpoint<'a> {
    /// Each endpoint has one method and one spelling.
    pub fn find(method: &str, target: &'a str) -> Result<Self, TriggerError> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let (endpoint, allowed) = match path.strip_prefix(REQUESTS) {
            Some(handle) if !handle.is_empty() => (Endpoint::Request { handle, query }, "GET"),
            Some(_) | None if path == REVALIDATE => (Endpoint::Revalidate { query }, "POST"),
            Some(_) | None => return Err(TriggerError::NotFound),
        };
        if method == allowed { Ok(endpoint) } else { Err(TriggerError::Method { allowed }) }
    }
}

/// What to regenerate, as the caller wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevalidateTarget {
    Path(String),
    /// Every page with the tag.
    Tag(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, deserialize_with = "text")]
    path: Option<String>,
    #[serde(default, deserialize_with = "text")]
    tag: Option<String>,
}

/// `null` is an error: it does not count as a missing field.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

impl RevalidateTarget {
    pub fn parse(query: Option<&str>, body: &[u8]) -> Result<Self, TriggerError> {
        let bad = |why: &str| TriggerError::bad(why, r#"Send {"path": "/a/page"} or {"tag": "a-tag"}."#);
        if query.is_some() {
            return Err(bad("no query is taken here"));
        }
        // serde also reads a JSON array as a struct.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(bad("the body is not a JSON object"));
        }
        let body: Body = serde_json::from_slice(body).map_err(|error| bad(&error.to_string()))?;
        match (body.path, body.tag) {
            (Some(path), None) => Ok(RevalidateTarget::Path(path)),
            (None, Some(tag)) => Ok(RevalidateTarget::Tag(tag)),
            (None, None) => Err(bad("one of the fields `path` and `tag` is needed")),
            (Some(_), Some(_)) => Err(bad("the fields `path` and `tag` exclude each other")),
        }
    }
}

/// The sequence number after which events are returned; zero for all.
pub fn parse_after(query: Option<&str>) -> Result<u64, TriggerError> {
    match query {
        None | Some("") => Ok(0),
        Some(query) => query.strip_prefix("after=").and_then(canonical_hex::parse_number).ok_or_else(|| {
            TriggerError::bad(
                "the query is not after=SEQ",
                "Take SEQ from `after` in the last answer, or leave it out.",
            )
        }),
    }
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;

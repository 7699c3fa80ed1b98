//! What can be asked below `/_everfresh/`, and what is answered.

use everfresh_core::config::is_reserved;
use everfresh_core::domain::events::{self, Event};
use everfresh_core::domain::page::{ReqRow, ReqStatus};
use everfresh_core::domain::page_key::NormalPath;
use everfresh_core::domain::request::{Handle, IdempotencyKey};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::cache_status::Did;
use super::plain;
use super::trigger_error::TriggerError;
use crate::reply::Reply;

/// The largest body that is looked at.
pub const MOST_BODY_BYTES: usize = 64 * 1024;

const REVALIDATE: &str = "/_everfresh/revalidate";
const REQUESTS: &str = "/_everfresh/requests/";

/// Whether a path and query lead to what is Everfresh's own, however they are spelt. No page is ever there.
pub fn reserved(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    is_reserved(path) || NormalPath::parse(path).is_ok_and(|normal| is_reserved(normal.path()))
}

/// What can be asked. The words in it have not been looked at: nobody has signed them yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// `POST /_everfresh/revalidate`: asks for a regeneration.
    Revalidate {
        /// What follows the question mark.
        query: Option<&'a str>,
    },
    /// `GET /_everfresh/requests/{handle}?after=SEQ`: asks what became of one.
    Request {
        /// Its handle.
        handle: &'a str,
        /// What follows the question mark.
        query: Option<&'a str>,
    },
}

impl<'a> Endpoint<'a> {
    /// What is asked with this method at this path and query, spelt in the one way there is.
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

/// What a regeneration is asked for, in the caller's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One page.
    Path(String),
    /// Every page that carries the tag.
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

/// A text. `null` is not one: whoever sends it may have meant something.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

impl Wanted {
    /// Reads the body of a request for regeneration.
    pub fn parse(query: Option<&str>, body: &[u8]) -> Result<Self, TriggerError> {
        let bad = |why: &str| TriggerError::bad(why, r#"Send {"path": "/a/page"} or {"tag": "a-tag"}."#);
        if query.is_some() {
            return Err(bad("no query is taken here"));
        }
        // Lists can be read as objects whose fields have no names.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(bad("the body is not a JSON object"));
        }
        let body: Body = serde_json::from_slice(body).map_err(|error| bad(&error.to_string()))?;
        match (body.path, body.tag) {
            (Some(path), None) => Ok(Wanted::Path(path)),
            (None, Some(tag)) => Ok(Wanted::Tag(tag)),
            (None, None) => Err(bad("one of the fields `path` and `tag` is needed")),
            (Some(_), Some(_)) => Err(bad("the fields `path` and `tag` exclude each other")),
        }
    }
}

/// After which event a request's events are asked for; zero asks for all.
pub fn parse_after(query: Option<&str>) -> Result<u64, TriggerError> {
    match query {
        None | Some("") => Ok(0),
        Some(query) => query.strip_prefix("after=").and_then(plain::number).ok_or_else(|| {
            TriggerError::bad(
                "the query is not after=SEQ",
                "Take SEQ from `after` in the last answer, or leave it out.",
            )
        }),
    }
}

/// The request of that handle is on its way.
pub fn accepted(handle: &Handle, key: &IdempotencyKey) -> Reply {
    let said = json!({"handle": handle.to_string(), "key": key.as_str(), "status_url": format!("{REQUESTS}{handle}")});
    reply(202, &said)
}

/// What became of a request, and what happened to it after the event `after`.
pub fn told(handle: &Handle, row: Option<&ReqRow>, after: u64) -> Reply {
    let state = match row {
        // It waits in the queue; or another request's render has granted it, which leaves no record.
        None => "queued",
        Some(row) => match (row.status, row.rejected_at_ms) {
            (ReqStatus::Completed, _) => "completed",
            (ReqStatus::Started | ReqStatus::Failed, Some(_)) => "rejected",
            (ReqStatus::Started, None) => "started",
            (ReqStatus::Failed, None) => "failed",
        },
    };
    let events = row.map_or(&[][..], |row| events::after(&row.events, after));
    let one = |event: &Event| {
        // One that a newer version knows is told by its number.
        let stage = event.stage().map_or_else(|| json!(event.seq % 100), |stage| json!(stage.as_str()));
        json!({"seq": event.seq, "at_ms": event.at_ms, "stage": stage})
    };
    let said = json!({
        "handle": handle.to_string(),
        "state": state,
        "attempts": row.map_or(0, |row| row.attempts),
        "error_class": row.and_then(|row| row.error_class).map(|class| class.as_str()),
        "events": events.iter().map(one).collect::<Vec<_>>(),
        "after": events.last().map_or(after, |event| event.seq),
    });
    reply(200, &said)
}

/// JSON that nobody keeps.
pub(super) fn reply(status: u16, said: &Value) -> Reply {
    Reply::new(status)
        .with("content-type", "application/json")
        .with("cache-control", "no-store")
        .with("x-content-type-options", "nosniff")
        .with("cache-status", Did::Bypass { detail: "everfresh" }.to_string())
        .body(said.to_string())
}

#[cfg(test)]
#[path = "trigger_tests.rs"]
mod tests;

//! The JSON replies of the trigger.

use everfresh_core::domain::page::ReqRow;
use everfresh_core::domain::request::{IdempotencyKey, SentHandle};
use everfresh_core::domain::request_events::{self, Event};
use everfresh_core::domain::request_state::RequestState;
use serde_json::{Value, json};

use super::endpoint::REQUESTS;
use crate::http::Reply;
use crate::http::cache_status::CacheStatus;

/// 202: SQS has the request. The handle has the time of sending, without which the state of a
/// request that another version covers is not known.
pub(super) fn accepted(sent: &SentHandle, key: &IdempotencyKey) -> Reply {
    let (handle, status_url) = (sent.to_string(), format!("{REQUESTS}{sent}"));
    json_reply(202, &json!({"handle": handle, "key": key.as_str(), "status_url": status_url}))
}

/// The state of a request that has no record, as the rows of its page say.
pub(super) fn computed(sent: &SentHandle, computed: RequestState, after: u64) -> Reply {
    let mut body = computed.details();
    for (name, value) in [
        ("handle", json!(sent.to_string())),
        ("state", json!(computed.as_str())),
        ("attempts", json!(0)),
        ("error_class", Value::Null),
        ("events", json!([])),
        ("after", json!(after)),
    ] {
        body[name] = value;
    }
    json_reply(200, &body)
}

/// The request's state by its record, and its events after the sequence number `after`.
pub(super) fn recorded(sent: &SentHandle, row: &ReqRow, after: u64) -> Reply {
    let events = request_events::after(&row.events, after);
    let event = |event: &Event| {
        // A stage of a newer version is given by its number.
        let stage = event.stage().map_or_else(|| json!(event.seq % 100), |stage| json!(stage.as_str()));
        json!({"seq": event.seq, "at_ms": event.at_ms, "stage": stage})
    };
    let mut body = row.result();
    for (name, value) in [
        ("handle", json!(sent.to_string())),
        ("state", json!(row.state())),
        ("attempts", json!(row.attempts)),
        ("error_class", json!(row.error_class.map(|class| class.as_str()))),
        ("events", json!(events.iter().map(event).collect::<Vec<_>>())),
        ("after", json!(events.last().map_or(after, |event| event.seq))),
    ] {
        body[name] = value;
    }
    json_reply(200, &body)
}

/// JSON that no cache stores.
pub(super) fn json_reply(status: u16, body: &Value) -> Reply {
    Reply::new(status)
        .with("content-type", "application/json")
        .with("cache-control", "no-store")
        .with("x-content-type-options", "nosniff")
        .with("cache-status", CacheStatus::Bypass { detail: "everfresh" }.to_string())
        .body(body.to_string())
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;

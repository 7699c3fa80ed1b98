//! The JSON replies of the trigger.

use everfresh_core::domain::page::{NO_RECORD, ReqRow};
use everfresh_core::domain::request::{Handle, IdempotencyKey, SentHandle};
use everfresh_core::domain::request_events::{self, Event};
use everfresh_core::domain::request_state::RequestState;
use serde_json::{Value, json};

use super::endpoint::REQUESTS;
use crate::http::Reply;
use crate::http::cache_status::CacheStatus;

/// 202: SQS has the request.
pub(super) fn accepted(sent: &SentHandle, key: &IdempotencyKey) -> Reply {
    let (handle, status_url) = (sent.handle.to_string(), format!("{REQUESTS}{sent}"));
    json_reply(202, &json!({"handle": handle, "key": key.as_str(), "status_url": status_url}))
}

/// The state of a request that has no record, as the rows of its page say.
pub(super) fn computed(handle: &Handle, computed: RequestState, after: u64) -> Reply {
    let mut body = computed.details();
    let state = if computed == RequestState::Unknown { NO_RECORD } else { computed.as_str() };
    for (name, value) in [
        ("handle", json!(handle.to_string())),
        ("state", json!(state)),
        ("attempts", json!(0)),
        ("error_class", Value::Null),
        ("events", json!([])),
        ("after", json!(after)),
    ] {
        body[name] = value;
    }
    json_reply(200, &body)
}

/// The request's state, and its events after the sequence number `after`.
pub(super) fn state(handle: &Handle, row: Option<&ReqRow>, after: u64) -> Reply {
    // Without a row it is in the queue, or another request's render covered it.
    let state = row.map_or(NO_RECORD, ReqRow::state);
    let events = row.map_or(&[][..], |row| request_events::after(&row.events, after));
    let event = |event: &Event| {
        // A stage of a newer version is given by its number.
        let stage = event.stage().map_or_else(|| json!(event.seq % 100), |stage| json!(stage.as_str()));
        json!({"seq": event.seq, "at_ms": event.at_ms, "stage": stage})
    };
    let body = json!({
        "handle": handle.to_string(),
        "state": state,
        "attempts": row.map_or(0, |row| row.attempts),
        "error_class": row.and_then(|row| row.error_class).map(|class| class.as_str()),
        "events": events.iter().map(event).collect::<Vec<_>>(),
        "after": events.last().map_or(after, |event| event.seq),
    });
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

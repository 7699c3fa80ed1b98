use super::super::error::TriggerError;
use everfresh_core::domain::page::ReqStatus;

use super::*;
use crate::page::error::PageError;
use everfresh_core::domain::request_events::Stage;

fn json_body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn handle() -> SentHandle {
    "inval.k".parse().unwrap()
}

fn row(status: ReqStatus, rejected_at_ms: Option<u64>) -> ReqRow {
    let stages = [Stage::Received, Stage::Claimed, Stage::Failed];
    ReqRow {
        request_hash: String::new(),
        status,
        result_s3_key: Some("acme/hash/version".to_owned()),
        result_version: "0001763270000500-000000aa".parse().ok(),
        result_etag: Some("\"e\"".to_owned()),
        result_bypass: false,
        ttl: None,
        owner: Some("owner".to_owned()),
        claim_expires_ms: None,
        attempts: 1,
        stale_answers: 0,
        error_class: None,
        rejected_at_ms,
        reject_reason: rejected_at_ms.map(|_| "attempts".to_owned()),
        events: stages.map(|stage| Event::new(1, stage, 5)).to_vec(),
    }
}

#[test]
fn accepted_reply_has_the_status_url() {
    let key = IdempotencyKey::parse("order-4711").unwrap();
    let sent: SentHandle = "inval.order-4711@5".parse().unwrap();
    let reply = accepted(&sent, &key);
    assert_eq!(reply.status, 202);
    let status_url = "/_everfresh/requests/inval.order-4711@5";
    let expected = json!({"handle": "inval.order-4711@5", "key": "order-4711", "status_url": status_url});
    assert_eq!(json_body(&reply), expected);
}

#[test]
fn state_follows_from_the_row() {
    for (status, rejected, expected) in [
        (ReqStatus::Started, None, "started"),
        (ReqStatus::Completed, None, "completed"),
        (ReqStatus::Completed, Some(1), "completed"),
        (ReqStatus::Failed, None, "failed"),
        (ReqStatus::Failed, Some(1), "rejected"),
        (ReqStatus::Started, Some(1), "rejected"),
    ] {
        assert_eq!(json_body(&recorded(&handle(), &row(status, rejected), 0))["state"], expected);
    }
    let queued = json_body(&computed(&handle(), RequestState::Unknown, 120));
    assert_eq!((&queued["state"], &queued["events"], &queued["after"]), (&json!("unknown"), &json!([]), &json!(120)));
}

#[test]
fn result_is_returned_where_the_state_has_one() {
    let of = |row: &ReqRow| {
        let body = json_body(&recorded(&handle(), row, 0));
        ["version", "etag", "s3_key", "reason"].map(|field| body[field].as_str().map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    let (version, etag, s3_key) = (some("0001763270000500-000000aa"), some("\"e\""), some("acme/hash/version"));
    let completed = row(ReqStatus::Completed, None);
    assert_eq!(of(&completed), [version.clone(), etag, s3_key, None]);
    let bypassed = ReqRow { result_bypass: true, result_etag: None, ..completed.clone() };
    assert_eq!(of(&bypassed), [version, None, None, None]);
    assert_eq!(json_body(&recorded(&handle(), &bypassed, 0))["state"], "bypassed");
    // Of a record from before the result was kept, the last event says it.
    let events = vec![Event::new(1, Stage::Bypassed, 5)];
    let older = ReqRow { events, result_version: None, result_etag: None, ..completed };
    assert_eq!(json_body(&recorded(&handle(), &older, 0))["state"], "bypassed");
    let none = ReqRow { result_version: None, result_etag: None, ..row(ReqStatus::Failed, Some(1)) };
    assert_eq!(of(&none), [None, None, None, some("attempts")]);
}

#[test]
fn events_are_returned_once_when_after_is_repeated() {
    let row = row(ReqStatus::Failed, None);
    let (mut seen, mut after) = (Vec::new(), 0);
    for written in 0..=row.events.len() {
        let so_far = ReqRow { events: row.events[..written].to_vec(), ..row.clone() };
        let body = json_body(&recorded(&handle(), &so_far, after));
        seen.extend(body["events"].as_array().unwrap().iter().map(|event| event["stage"].clone()));
        after = body["after"].as_u64().unwrap();
    }
    assert_eq!(json!(seen), json!(["received", "claimed", "failed"]));
    let newer = ReqRow { events: vec![Event { seq: 199, at_ms: 0 }], ..row };
    assert_eq!(json_body(&recorded(&handle(), &newer, 0))["events"][0]["stage"], 99);
}

#[test]
fn each_error_names_the_next_step_and_is_not_stored() {
    let key = IdempotencyKey::parse("k").ok();
    for (error, status, header) in [
        (TriggerError::NotFound, 404, None),
        (TriggerError::Method { allowed: "POST" }, 405, Some(("allow", "POST"))),
        (TriggerError::TooLarge, 413, None),
        (TriggerError::Unsigned, 401, Some(("www-authenticate", "Everfresh"))),
        (TriggerError::bad("x", "y"), 400, None),
        (TriggerError::RawKeys, 404, None),
        (TriggerError::Limited { retry_after: 7 }, 429, Some(("retry-after", "7"))),
        (TriggerError::Unavailable { retry_after: 5, key }, 503, Some(("retry-after", "5"))),
        (TriggerError::Unavailable { retry_after: 5, key: None }, 503, Some(("retry-after", "5"))),
    ] {
        let reply = error.reply();
        assert_eq!((reply.status, reply.header("cache-control")), (status, Some("no-store")), "{error:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let body = json_body(&reply);
        assert!(["error", "next"].iter().all(|field| !body[field].as_str().unwrap().is_empty()), "{body}");
        if let Some((name, value)) = header {
            assert_eq!(reply.header(name), Some(value));
        }
    }
    assert_eq!(TriggerError::Host.reply(), PageError::Host.reply());
}

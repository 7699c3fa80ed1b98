use super::super::error::TriggerError;
use everfresh_core::domain::page::ReqStatus;

use super::*;
use crate::page::error::PageError;
use everfresh_core::domain::request_events::Stage;

fn json_body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn row(status: ReqStatus, rejected_at_ms: Option<u64>) -> ReqRow {
    let stages = [Stage::Received, Stage::Claimed, Stage::Failed];
    ReqRow {
        request_hash: String::new(),
        status,
        result_s3_key: Some("acme/secret".to_owned()),
        ttl: None,
        owner: Some("owner".to_owned()),
        claim_expires_ms: None,
        attempts: 1,
        stale_answers: 0,
        error_class: None,
        rejected_at_ms,
        events: stages.map(|stage| Event::new(1, stage, 5)).to_vec(),
    }
}

#[test]
fn accepted_reply_has_the_status_url() {
    let key = IdempotencyKey::parse("order-4711").unwrap();
    let sent = SentHandle { handle: Handle::Inval { key: key.clone() }, sent_ms: Some(5) };
    let reply = accepted(&sent, &key);
    assert_eq!(reply.status, 202);
    let status_url = "/_everfresh/requests/inval.order-4711@5";
    let expected = json!({"handle": "inval.order-4711", "key": "order-4711", "status_url": status_url});
    assert_eq!(json_body(&reply), expected);
}

#[test]
fn state_follows_from_the_row() {
    let handle: Handle = "inval.k".parse().unwrap();
    for (status, rejected, expected) in [
        (ReqStatus::Started, None, "started"),
        (ReqStatus::Completed, None, "completed"),
        (ReqStatus::Completed, Some(1), "completed"),
        (ReqStatus::Failed, None, "failed"),
        (ReqStatus::Failed, Some(1), "rejected"),
        (ReqStatus::Started, Some(1), "rejected"),
    ] {
        assert_eq!(json_body(&state(&handle, Some(&row(status, rejected)), 0))["state"], expected);
    }
    let queued = json_body(&state(&handle, None, 120));
    assert_eq!((&queued["state"], &queued["events"], &queued["after"]), (&json!("no_record"), &json!([]), &json!(120)));
}

#[test]
fn events_are_returned_once_when_after_is_repeated() {
    let handle: Handle = "inval.k".parse().unwrap();
    let row = row(ReqStatus::Failed, None);
    let (mut seen, mut after) = (Vec::new(), 0);
    for written in 0..=row.events.len() {
        let so_far = ReqRow { events: row.events[..written].to_vec(), ..row.clone() };
        let body = json_body(&state(&handle, Some(&so_far), after));
        seen.extend(body["events"].as_array().unwrap().iter().map(|event| event["stage"].clone()));
        after = body["after"].as_u64().unwrap();
    }
    assert_eq!(json!(seen), json!(["received", "claimed", "failed"]));
    let newer = ReqRow { events: vec![Event { seq: 199, at_ms: 0 }], ..row };
    let reply = state(&handle, Some(&newer), 0);
    assert_eq!(json_body(&reply)["events"][0]["stage"], 99);
    assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "the body's key is private");
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

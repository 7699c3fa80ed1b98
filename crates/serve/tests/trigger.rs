//! The signed HTTP trigger: what accepted requests do, and the replies.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod signing;

use std::time::Duration;

use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::Settings;
use everfresh_serve::trigger::signature::RevalidateKeys;
use everfresh_testing::{OriginFault, World, body, cache_status, pause, text};
use serde_json::json;

use self::signing::{Draft, KEYS, PAGE, REVALIDATE, json_body, state_read, with_keys};

#[tokio::test(start_paused = true)]
async fn signed_request_regenerates_the_page_and_returns_its_events() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, with_keys(&world));
    let reply = REVALIDATE.sent(&world, &instance).await;
    assert_eq!((reply.status, reply.header("cache-control")), (202, Some("no-store")), "{}", body(&reply));
    let accepted = json_body(&reply);
    let handle = accepted["handle"].as_str().unwrap().to_owned();
    assert!(handle.starts_with(&format!("{}.order-4711@17632700", world.page(PAGE).hash())), "{handle}");
    assert_eq!(accepted["key"], "order-4711");
    let status_url = accepted["status_url"].as_str().unwrap().to_owned();
    assert_eq!(status_url, format!("/_everfresh/requests/{handle}"));
    assert_eq!(instance.operations(), ["PutItem", "SendMessage"], "the nonce, then the message, and nothing else");

    let before = state_read(&status_url, "nonce-before-worker").sent(&world, &instance).await;
    assert_eq!((before.status, &json_body(&before)["state"]), (200, &json!("unknown")));
    assert_eq!(json_body(&before)["events"], json!([]));

    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
    assert_eq!(world.status(PAGE, "order-4711").await, "COMPLETED");
    let after = json_body(&state_read(&status_url, "nonce-after-worker").sent(&world, &instance).await);
    assert_eq!((&after["state"], &after["attempts"]), (&json!("completed"), &json!(1)));
    let meta = world.meta(PAGE).await.unwrap();
    for (field, attribute) in [("version", "version"), ("etag", "etag"), ("s3_key", "s3_key")] {
        assert_eq!(after[field], text(&meta, attribute), "{after}");
    }
    assert_eq!((&after["reason"], &after["handle"]), (&json!(null), &json!(handle)));
    let stages: Vec<_> = after["events"].as_array().unwrap().iter().map(|event| event["stage"].clone()).collect();
    assert_eq!(json!(stages), json!(["received", "claimed", "leased", "rendered", "uploaded", "committed"]));
    let last = after["after"].as_u64().unwrap();
    for (seen, left) in [(0, 6), (last - 1, 1), (last, 0), (u64::MAX, 0)] {
        let target = format!("{status_url}?after={seen}");
        let nonce = format!("nonce-after-{seen:020}");
        let rest = json_body(&state_read(&target, &nonce).sent(&world, &instance).await);
        assert_eq!(rest["events"].as_array().unwrap().len(), left, "after {seen}");
    }
    assert_eq!(instance.total(metrics::TRIGGERED), 1);
}

#[tokio::test(start_paused = true)]
async fn request_that_another_version_covers_is_completed() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, with_keys(&world));
    let accepted = json_body(&REVALIDATE.sent(&world, &instance).await);
    let status_url = accepted["status_url"].as_str().unwrap();
    // Also within epsilon of the render, which began after all had been received. This instance knows
    // the queue's time by half a second, so a later message has to show the order.
    let second = Draft { request_id: Some("order-4712"), nonce: "nonce-of-the-second", ..REVALIDATE };
    let second = json_body(&second.sent(&world, &instance).await);
    let second_url = second["status_url"].as_str().unwrap();
    pause(1).await;
    let third = Draft { request_id: Some("order-4713"), nonce: "nonce-of-the-third", ..REVALIDATE };
    third.sent(&world, &instance).await;
    sandbox.invoke().await;
    assert_eq!(world.queued_messages().await, 0, "all are acknowledged");
    let version = text(&world.meta(PAGE).await.unwrap(), "version");
    // One of them led the batch and has a record, the others never get one.
    let mut without_record = 0;
    for (index, url) in [status_url, second_url].into_iter().enumerate() {
        let state = json_body(&state_read(url, &format!("nonce-of-state-{index}")).sent(&world, &instance).await);
        assert_eq!((&state["state"], &state["version"]), (&json!("completed"), &json!(version)), "{state}");
        without_record += u32::from(state["attempts"] == 0);
    }
    assert_eq!(without_record, 1);
}

#[tokio::test(start_paused = true)]
async fn signed_request_by_tag_makes_its_pages_stale() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, with_keys(&world));
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(instance.get(PAGE).await.status, 200);
    pause(5).await;
    let draft = Draft { body: r#"{"tag":"products"}"#, request_id: None, ..REVALIDATE };
    let accepted = json_body(&draft.sent(&world, &instance).await);
    let (handle, key) = (accepted["handle"].as_str().unwrap(), accepted["key"].as_str().unwrap());
    assert!(key.starts_with("http-") && handle.starts_with(&format!("inval.{key}@")), "{accepted}");
    sandbox.invoke().await;
    let row = world.row("TENANT#acme#INVAL", &format!("REQ#{key}")).await.unwrap();
    assert_eq!(text(&row, "status"), "COMPLETED");
    pause(2).await;
    assert!(cache_status(&instance.get(PAGE).await).contains("stale"));
    let target = format!("/_everfresh/requests/{handle}");
    let state = json_body(&state_read(&target, "nonce-by-tag-0123").sent(&world, &instance).await);
    assert_eq!((&state["state"], &state["events"][1]["stage"]), (&json!("completed"), &json!("committed")));
    // The other tenant does not see the request.
    let elsewhere = Draft { host: "globex.example", ..state_read(&target, "nonce-elsewhere-01") };
    assert_eq!(json_body(&elsewhere.sent(&world, &instance).await)["state"], "unknown");
}

#[tokio::test(start_paused = true)]
async fn flood_is_limited_per_instance_and_costs_two_renders() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let limit = |settings: &mut Settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.revalidate_per_minute = 30;
    };
    let (instance, other) = (world.instance_with(limit), world.instance_with(limit));
    let ids: Vec<String> = (0..50).map(|number| format!("flood-0123456789-{number}")).collect();
    let (mut accepted, mut limited) = (0, 0);
    for id in &ids {
        let reply = Draft { nonce: id, request_id: Some(id), ..REVALIDATE }.sent(&world, &instance).await;
        match reply.status {
            202 => accepted += 1,
            429 => {
                assert_eq!((reply.header("retry-after"), reply.header("cache-control")), (Some("2"), Some("no-store")));
                limited += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!((accepted, limited, world.queued_messages().await), (30, 20, 30));
    assert_eq!(
        instance.operations().iter().filter(|operation| *operation == "PutItem").count(),
        30,
        "no write for the limited ones"
    );
    assert_eq!(instance.total(metrics::TRIGGERS_LIMITED), 20);
    // State reads and changes have separate limits, and so has each instance.
    assert_eq!(
        state_read("/_everfresh/requests/inval.k", "nonce-state-read-01").sent(&world, &instance).await.status,
        200
    );
    let elsewhere = Draft { nonce: "nonce-elsewhere-01", ..REVALIDATE };
    assert_eq!(elsewhere.sent(&world, &other).await.status, 202);
    // A limited request has not spent its nonce.
    pause(2).await;
    let last = ids.last().unwrap();
    assert_eq!(Draft { nonce: last, request_id: Some(last), ..REVALIDATE }.sent(&world, &instance).await.status, 202);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert!(
        world.origin.renders() <= 3,
        "one for the flood, at most two for the later requests: {}",
        world.origin.renders()
    );
    assert_eq!(world.dead_letters().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn change_right_after_another_is_sent() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, with_keys(&world));
    for (at, content) in ["first", "second"].into_iter().enumerate() {
        world.origin.content(content);
        let nonce = format!("nonce-0123456789-{at}");
        let draft = Draft { nonce: &nonce, request_id: None, ..REVALIDATE };
        assert_eq!(draft.sent(&world, &instance).await.status, 202);
        assert_eq!(world.queued_messages().await, 1, "sent at once");
        world.drain(&sandbox, Duration::from_secs(60)).await;
    }
    assert_eq!(world.published(PAGE).await.as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn same_request_id_is_one_request() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, with_keys(&world));
    for nonce in ["nonce-first-012345", "nonce-second-01234"] {
        let reply = Draft { nonce, ..REVALIDATE }.sent(&world, &instance).await;
        assert_eq!((reply.status, &json_body(&reply)["key"]), (202, &json!("order-4711")));
        world.drain(&sandbox, Duration::from_secs(60)).await;
        pause(10).await;
    }
    assert_eq!(world.origin.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn invalid_request_is_refused_with_a_reason_and_without_a_write() {
    let world = World::new().await;
    let instance = with_keys(&world);
    let huge = format!(r#"{{"path":"/products/{}"}}"#, "x".repeat(65_536));
    let long = "k".repeat(129);
    for (draft, status, expected) in [
        (Draft { body: &huge, ..REVALIDATE }, 413, "too large"),
        (Draft { body: "", ..REVALIDATE }, 400, "not a JSON object"),
        (Draft { body: r#"{"path":"/products/42","reason":"expired"}"#, ..REVALIDATE }, 400, "unknown field `reason`"),
        (Draft { body: r#"{"path":"/nowhere"}"#, ..REVALIDATE }, 400, "no route"),
        (Draft { body: r#"{"path":"/a/../b"}"#, ..REVALIDATE }, 400, "dot segment"),
        (Draft { body: r#"{"path":"https://evil.example/"}"#, ..REVALIDATE }, 400, "slash"),
        (Draft { body: r#"{"path":"/_everfresh/revalidate"}"#, ..REVALIDATE }, 400, "no route"),
        (Draft { body: r#"{"tag":"a b"}"#, ..REVALIDATE }, 400, "not allowed"),
        (Draft { body: r#"{"tag":""}"#, ..REVALIDATE }, 400, "empty"),
        (Draft { request_id: Some("a b"), ..REVALIDATE }, 400, "x-request-id"),
        (Draft { request_id: Some(""), ..REVALIDATE }, 400, "x-request-id"),
        (Draft { request_id: Some(&long), ..REVALIDATE }, 400, "x-request-id"),
        (Draft { target: "/_everfresh/revalidate?x=1", ..REVALIDATE }, 400, "query"),
        (state_read("/_everfresh/requests/nonsense", REVALIDATE.nonce), 400, "handle"),
        (state_read("/_everfresh/requests/inval.a%2fb", REVALIDATE.nonce), 400, "handle"),
        (state_read("/_everfresh/requests/inval.a#b", REVALIDATE.nonce), 400, "handle"),
        (state_read("/_everfresh/requests/inval.k?after=soon", REVALIDATE.nonce), 400, "after"),
    ] {
        let reply = draft.sent(&world, &instance).await;
        assert_eq!(
            (reply.status, reply.header("cache-control")),
            (status, Some("no-store")),
            "{expected}: {}",
            body(&reply)
        );
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let json_body = json_body(&reply);
        assert!(
            json_body["error"].as_str().unwrap().contains(expected) && json_body["next"].is_string(),
            "{expected}: {json_body}"
        );
    }
    assert_eq!((instance.operations(), world.queued_messages().await), (Vec::<String>::new(), 0));
    assert_eq!(REVALIDATE.sent(&world, &instance).await.status, 202, "the nonce was not used up");
}

#[tokio::test(start_paused = true)]
async fn failed_and_rejected_states_are_returned() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, with_keys(&world));
    world.origin.fail_with(OriginFault::Unreachable);
    let accepted = json_body(&REVALIDATE.sent(&world, &instance).await);
    let target = accepted["status_url"].as_str().unwrap();
    sandbox.invoke().await;
    let failed = json_body(&state_read(target, "nonce-when-failed-1").sent(&world, &instance).await);
    assert_eq!((&failed["state"], failed["error_class"].is_string()), (&json!("failed"), true), "{failed}");
    world.drain(&sandbox, Duration::from_secs(24 * 3600)).await;
    let rejected = json_body(&state_read(target, "nonce-when-rejected").sent(&world, &instance).await);
    assert_eq!((&rejected["state"], &rejected["reason"]), (&json!("rejected"), &json!("attempts")), "{rejected}");
    let seqs: Vec<u64> =
        rejected["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_dynamodb_response_is_no_replay() {
    let world = World::new().await;
    let instance = with_keys(&world);
    for fault in [Fault::LoseResponse, Fault::FailAfter, Fault::FailBefore, Fault::Throttle] {
        instance.inject(On::next("PutItem"), fault);
        let nonce = format!("nonce-of-{:-<16}", fault.kind());
        let reply = Draft { nonce: &nonce, ..REVALIDATE }.sent(&world, &instance).await;
        assert_eq!(reply.status, 202, "{fault:?}: {}", body(&reply));
    }
    assert_eq!(world.queued_messages().await, 4);
}

#[tokio::test(start_paused = true)]
async fn outage_gets_503_and_the_retry_counts_once() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, with_keys(&world));
    for (at, (operation, fault, sent)) in [
        ("PutItem", Fault::Hang, 0),
        ("PutItem", Fault::Throttle, 0),
        ("SendMessage", Fault::Cut, 0),
        ("SendMessage", Fault::Hang, 0),
        // The SDK tries twice, and SQS has the message each time.
        ("SendMessage", Fault::FailAfter, 2),
    ]
    .into_iter()
    .enumerate()
    {
        instance.inject(On::every(operation), fault);
        let before = world.queued_messages().await;
        let nonce = format!("nonce-down-0123456789-{at}");
        let reply = Draft { nonce: &nonce, ..REVALIDATE }.sent(&world, &instance).await;
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("5")), "{operation} {fault:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let json_body = json_body(&reply);
        assert_eq!(json_body["key"], "order-4711");
        assert!(json_body["next"].as_str().unwrap().contains("new nonce"), "{json_body}");
        assert_eq!(world.queued_messages().await, before + sent, "{operation} {fault:?}");
        instance.way.faults().clear();
    }
    // A request without an id gets the key to retry with.
    instance.inject(On::every("SendMessage"), Fault::FailBefore);
    let reply = Draft { nonce: "nonce-without-an-id", request_id: None, ..REVALIDATE }.sent(&world, &instance).await;
    assert!(json_body(&reply)["key"].as_str().unwrap().starts_with("http-"));
    instance.way.faults().clear();
    instance.inject(On::every("GetItem"), Fault::FailBefore);
    let state = state_read("/_everfresh/requests/inval.k", "nonce-state-read-01").sent(&world, &instance).await;
    assert_eq!((state.status, state.header("retry-after")), (503, Some("5")));
    instance.way.faults().clear();
    // The retry counts once, whatever was enqueued before.
    assert_eq!(Draft { nonce: "nonce-once-more-01", ..REVALIDATE }.sent(&world, &instance).await.status, 202);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!((world.origin.renders(), world.dead_letters().await.len()), (1, 0));
    let counted = instance.metrics();
    assert_eq!((counted.total(metrics::DYNAMODB_OUTAGE), counted.total(metrics::SQS_OUTAGE)), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn raw_key_table_has_no_state_of_page_requests() {
    let world = World::new().await;
    let instance = world.instance_with(|settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.layout = KeyLayout { raw_keys: true, ..settings.layout };
    });
    let target = format!("/_everfresh/requests/{}.k", world.page(PAGE).hash());
    assert_eq!(state_read(&target, "nonce-of-the-page-1").sent(&world, &instance).await.status, 404);
    let by_tag = state_read("/_everfresh/requests/inval.k", "nonce-of-the-tag-01").sent(&world, &instance).await;
    assert_eq!(json_body(&by_tag)["state"], "unknown");
}

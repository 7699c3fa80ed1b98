//! Regenerations asked for over HTTP: what is done for those who are believed, and what they are told.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod signing;

use std::time::Duration;

use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::Settings;
use everfresh_serve::rules::signature::RevalidateKeys;
use everfresh_testing::{Breaks, World, body, cache_status, pause, text};
use serde_json::json;

use self::signing::{Draft, KEYS, PAGE, WISHING, asking, believing, said};

#[tokio::test(start_paused = true)]
async fn a_signed_wish_for_a_path_regenerates_the_page_and_its_events_are_told() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    let reply = WISHING.sent(&world, &instance).await;
    assert_eq!((reply.status, reply.header("cache-control")), (202, Some("no-store")), "{}", body(&reply));
    let accepted = said(&reply);
    let handle = accepted["handle"].as_str().unwrap().to_owned();
    assert_eq!(handle, format!("{}.order-4711", world.page(PAGE).hash()));
    assert_eq!(accepted["key"], "order-4711");
    let status_url = accepted["status_url"].as_str().unwrap().to_owned();
    assert_eq!(status_url, format!("/_everfresh/requests/{handle}"));
    assert_eq!(instance.operations(), ["PutItem", "SendMessage"], "the nonce, then the message, and nothing else");

    let before = asking(&status_url, "nonce-before-worker").sent(&world, &instance).await;
    assert_eq!((before.status, &said(&before)["state"]), (200, &json!("queued")));
    assert_eq!(said(&before)["events"], json!([]));

    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
    assert_eq!(world.status(PAGE, "order-4711").await, "COMPLETED");
    let after = said(&asking(&status_url, "nonce-after-worker").sent(&world, &instance).await);
    assert_eq!((&after["state"], &after["attempts"]), (&json!("completed"), &json!(1)));
    let stages: Vec<_> = after["events"].as_array().unwrap().iter().map(|event| event["stage"].clone()).collect();
    assert_eq!(json!(stages), json!(["received", "claimed", "leased", "rendered", "uploaded", "committed"]));
    let last = after["after"].as_u64().unwrap();
    for (seen, left) in [(0, 6), (last - 1, 1), (last, 0), (u64::MAX, 0)] {
        let target = format!("{status_url}?after={seen}");
        let nonce = format!("nonce-after-{seen:020}");
        let rest = said(&asking(&target, &nonce).sent(&world, &instance).await);
        assert_eq!(rest["events"].as_array().unwrap().len(), left, "after {seen}");
    }
    assert_eq!(instance.total(metrics::TRIGGERED), 1);
}

#[tokio::test(start_paused = true)]
async fn a_signed_wish_by_tag_makes_every_page_with_it_stale() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(instance.get(PAGE).await.status, 200);
    pause(5).await;
    let draft = Draft { body: r#"{"tag":"products"}"#, request_id: None, ..WISHING };
    let accepted = said(&draft.sent(&world, &instance).await);
    let (handle, key) = (accepted["handle"].as_str().unwrap(), accepted["key"].as_str().unwrap());
    assert!(key.starts_with("http-") && handle == format!("inval.{key}"), "{accepted}");
    sandbox.turn().await;
    let row = world.row("TENANT#acme#INVAL", &format!("REQ#{key}")).await.unwrap();
    assert_eq!(text(&row, "status"), "COMPLETED");
    pause(2).await;
    assert!(cache_status(&instance.get(PAGE).await).contains("stale"));
    let target = format!("/_everfresh/requests/{handle}");
    let told = said(&asking(&target, "nonce-by-tag-0123").sent(&world, &instance).await);
    assert_eq!((&told["state"], &told["events"][1]["stage"]), (&json!("completed"), &json!("committed")));
    // A page of the other tenant that carries no such tag is not its concern, nor is the request.
    let elsewhere = Draft { host: "globex.example", ..asking(&target, "nonce-elsewhere-01") };
    assert_eq!(said(&elsewhere.sent(&world, &instance).await)["state"], "queued");
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_limited_per_instance_and_costs_two_renders_at_most() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let limited = |settings: &mut Settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.revalidate_per_minute = 30;
    };
    let (instance, other) = (world.instance_with(limited), world.instance_with(limited));
    let ids: Vec<String> = (0..50).map(|number| format!("flood-0123456789-{number}")).collect();
    let (mut taken, mut refused) = (0, 0);
    for id in &ids {
        let reply = Draft { nonce: id, request_id: Some(id), ..WISHING }.sent(&world, &instance).await;
        match reply.status {
            202 => taken += 1,
            429 => {
                assert_eq!((reply.header("retry-after"), reply.header("cache-control")), (Some("2"), Some("no-store")));
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!((taken, refused, world.waiting().await), (30, 20, 30));
    assert_eq!(
        instance.operations().iter().filter(|operation| *operation == "PutItem").count(),
        30,
        "no write for the rest"
    );
    assert_eq!(instance.total(metrics::TRIGGERS_LIMITED), 20);
    // Who asks what became of it is not in the way of changes, nor they of him; and each instance has its own limit.
    assert_eq!(asking("/_everfresh/requests/inval.k", "nonce-question-01").sent(&world, &instance).await.status, 200);
    let elsewhere = Draft { nonce: "nonce-elsewhere-01", ..WISHING };
    assert_eq!(elsewhere.sent(&world, &other).await.status, 202);
    // A request that was sent away has not used its nonce up.
    pause(2).await;
    let last = ids.last().unwrap();
    assert_eq!(Draft { nonce: last, request_id: Some(last), ..WISHING }.sent(&world, &instance).await.status, 202);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert!(
        world.origin.renders() <= 3,
        "one for the flood, at most two for what came later: {}",
        world.origin.renders()
    );
    assert_eq!(world.dead_letters().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_right_after_another_is_sent_too() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    for (at, content) in ["first", "second"].into_iter().enumerate() {
        world.origin.content(content);
        let nonce = format!("nonce-0123456789-{at}");
        let draft = Draft { nonce: &nonce, request_id: None, ..WISHING };
        assert_eq!(draft.sent(&world, &instance).await.status, 202);
        assert_eq!(world.waiting().await, 1, "sent, and not held back");
        world.drain(&sandbox, Duration::from_secs(60)).await;
    }
    assert_eq!(world.published(PAGE).await.as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn one_request_id_is_one_request_however_often_it_is_sent() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    for nonce in ["nonce-first-012345", "nonce-second-01234"] {
        let reply = Draft { nonce, ..WISHING }.sent(&world, &instance).await;
        assert_eq!((reply.status, &said(&reply)["key"]), (202, &json!("order-4711")));
        world.drain(&sandbox, Duration::from_secs(60)).await;
        pause(10).await;
    }
    assert_eq!(world.origin.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused_with_words_and_without_a_write() {
    let world = World::new().await;
    let instance = believing(&world);
    let huge = format!(r#"{{"path":"/products/{}"}}"#, "x".repeat(65_536));
    let long = "k".repeat(129);
    for (draft, status, word) in [
        (Draft { body: &huge, ..WISHING }, 413, "too large"),
        (Draft { body: "", ..WISHING }, 400, "not a JSON object"),
        (Draft { body: r#"{"path":"/products/42","reason":"expired"}"#, ..WISHING }, 400, "unknown field `reason`"),
        (Draft { body: r#"{"path":"/nowhere"}"#, ..WISHING }, 400, "no route"),
        (Draft { body: r#"{"path":"/a/../b"}"#, ..WISHING }, 400, "dot segment"),
        (Draft { body: r#"{"path":"https://evil.example/"}"#, ..WISHING }, 400, "slash"),
        (Draft { body: r#"{"path":"/_everfresh/revalidate"}"#, ..WISHING }, 400, "no route"),
        (Draft { body: r#"{"tag":"a b"}"#, ..WISHING }, 400, "not allowed"),
        (Draft { body: r#"{"tag":""}"#, ..WISHING }, 400, "empty"),
        (Draft { request_id: Some("a b"), ..WISHING }, 400, "x-request-id"),
        (Draft { request_id: Some(""), ..WISHING }, 400, "x-request-id"),
        (Draft { request_id: Some(&long), ..WISHING }, 400, "x-request-id"),
        (Draft { target: "/_everfresh/revalidate?x=1", ..WISHING }, 400, "query"),
        (asking("/_everfresh/requests/nonsense", WISHING.nonce), 400, "handle"),
        (asking("/_everfresh/requests/inval.a%2fb", WISHING.nonce), 400, "handle"),
        (asking("/_everfresh/requests/inval.a#b", WISHING.nonce), 400, "handle"),
        (asking("/_everfresh/requests/inval.k?after=soon", WISHING.nonce), 400, "after"),
    ] {
        let reply = draft.sent(&world, &instance).await;
        assert_eq!(
            (reply.status, reply.header("cache-control")),
            (status, Some("no-store")),
            "{word}: {}",
            body(&reply)
        );
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let said = said(&reply);
        assert!(said["error"].as_str().unwrap().contains(word) && said["next"].is_string(), "{word}: {said}");
    }
    assert_eq!((instance.operations(), world.waiting().await), (Vec::<String>::new(), 0));
    assert_eq!(WISHING.sent(&world, &instance).await.status, 202, "the nonce was not used up");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_and_is_given_up_is_told_as_that() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    world.origin.breaks(Breaks::Unreachable);
    let accepted = said(&WISHING.sent(&world, &instance).await);
    let target = accepted["status_url"].as_str().unwrap();
    sandbox.turn().await;
    let failed = said(&asking(target, "nonce-when-failed-1").sent(&world, &instance).await);
    assert_eq!((&failed["state"], failed["error_class"].is_string()), (&json!("failed"), true), "{failed}");
    world.drain(&sandbox, Duration::from_secs(24 * 3600)).await;
    let rejected = said(&asking(target, "nonce-when-rejected").sent(&world, &instance).await);
    assert_eq!(rejected["state"], "rejected", "{rejected}");
    let seqs: Vec<u64> =
        rejected["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_table_is_no_replay() {
    let world = World::new().await;
    let instance = believing(&world);
    for fault in [Fault::LoseResponse, Fault::FailAfter, Fault::FailBefore, Fault::Throttle] {
        instance.inject(On::next("PutItem"), fault);
        let nonce = format!("nonce-of-{:-<16}", fault.kind());
        let reply = Draft { nonce: &nonce, ..WISHING }.sent(&world, &instance).await;
        assert_eq!(reply.status, 202, "{fault:?}: {}", body(&reply));
    }
    assert_eq!(world.waiting().await, 4);
}

#[tokio::test(start_paused = true)]
async fn when_table_or_queue_are_down_the_caller_is_told_to_send_it_again() {
    let world = World::new().await;
    let (sandbox, instance) = (world.sandbox().await, believing(&world));
    for (at, (operation, fault, sent)) in [
        ("PutItem", Fault::Hang, 0),
        ("PutItem", Fault::Throttle, 0),
        ("SendMessage", Fault::Cut, 0),
        ("SendMessage", Fault::Hang, 0),
        // The SDK tries twice, and the queue takes it each time.
        ("SendMessage", Fault::FailAfter, 2),
    ]
    .into_iter()
    .enumerate()
    {
        instance.inject(On::every(operation), fault);
        let before = world.waiting().await;
        let nonce = format!("nonce-down-0123456789-{at}");
        let reply = Draft { nonce: &nonce, ..WISHING }.sent(&world, &instance).await;
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("5")), "{operation} {fault:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let said = said(&reply);
        assert_eq!(said["key"], "order-4711");
        assert!(said["next"].as_str().unwrap().contains("new nonce"), "{said}");
        assert_eq!(world.waiting().await, before + sent, "{operation} {fault:?}");
        instance.way.faults().clear();
    }
    // One without an id learns under which to try again.
    instance.inject(On::every("SendMessage"), Fault::FailBefore);
    let reply = Draft { nonce: "nonce-without-an-id", request_id: None, ..WISHING }.sent(&world, &instance).await;
    assert!(said(&reply)["key"].as_str().unwrap().starts_with("http-"));
    instance.way.faults().clear();
    instance.inject(On::every("GetItem"), Fault::FailBefore);
    let question = asking("/_everfresh/requests/inval.k", "nonce-question-01").sent(&world, &instance).await;
    assert_eq!((question.status, question.header("retry-after")), (503, Some("5")));
    instance.way.faults().clear();
    // Sent again as told, it counts once, whatever arrived before.
    assert_eq!(Draft { nonce: "nonce-once-more-01", ..WISHING }.sent(&world, &instance).await.status, 202);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!((world.origin.renders(), world.dead_letters().await.len()), (1, 0));
    let counted = instance.metrics();
    assert_eq!((counted.total(metrics::DYNAMODB_OUTAGE), counted.total(metrics::SQS_OUTAGE)), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn in_a_table_with_raw_keys_no_handle_pretends_to_be_queued_for_ever() {
    let world = World::new().await;
    let instance = world.instance_with(|settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.layout = KeyLayout { raw_keys: true, ..settings.layout };
    });
    let target = format!("/_everfresh/requests/{}.k", world.page(PAGE).hash());
    assert_eq!(asking(&target, "nonce-of-the-page-1").sent(&world, &instance).await.status, 404);
    let by_tag = asking("/_everfresh/requests/inval.k", "nonce-of-the-tag-01").sent(&world, &instance).await;
    assert_eq!(said(&by_tag)["state"], "queued");
}

//! Poison messages and failing requests: each is rejected or retried alone, without affecting its
//! batch.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_sqs::types::Message;
use everfresh_core::metrics;
use everfresh_enqueue::attributes;
use everfresh_testing::{Make, OriginFault, World, n, pause, s, text};
use everfresh_worker::handler::BatchError;

const PAGE: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

fn attribute<'m>(letter: &'m Message, name: &str) -> &'m str {
    letter.message_attributes().unwrap().get(name).and_then(|value| value.string_value()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn poison_body_alone_is_dead_lettered() {
    let deep = format!(r#"{{"v":1,"tenant":"acme","path":{}1{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
    let deep_object = r#"{"a":"#.repeat(20_000);
    let largest = format!(r#"{{"v":1,"tenant":"acme","path":"/{}"}}"#, "x".repeat(256 * 1024 - 34));
    let junk = "x".repeat(256 * 1024);
    assert_eq!(largest.len(), 256 * 1024);
    let cases = [
        ("not json", "bad_message"),
        (" ", "bad_message"),
        ("null", "bad_message"),
        ("[]", "bad_message"),
        ("{}{}", "bad_message"),
        (junk.as_str(), "bad_message"),
        (largest.as_str(), "bad_message"),
        (deep.as_str(), "bad_message"),
        (deep_object.as_str(), "bad_message"),
        (r#"{"v":"1","tenant":"acme","path":"/products/1"}"#, "bad_message"),
        (r#"{"v":1,"tenant":7,"path":"/products/1"}"#, "bad_message"),
        (r#"{"v":1,"tenant":"acme","path":null}"#, "bad_message"),
        (r#"{"v":1,"tenant":"acme","path":"/products/1","origin":"http://169.254.169.254/"}"#, "bad_message"),
        (r#"{"v":2,"tenant":"acme","path":"/products/1"}"#, "bad_message"),
        (r#"{"tenant":"acme","path":"/products/1"}"#, "bad_message"),
        (r#"{"v":1,"tenant":"","path":"/products/1"}"#, "bad_message"),
        (r#"{"v":1,"tenant":"acme"}"#, "bad_message"),
        (r#"{"v":1,"tenant":"acme","path":"/products/1","tag":"products"}"#, "bad_message"),
        (r#"{"v":1,"tenant":"acme","path":"/products/1","reason":"because"}"#, "bad_message"),
        (r#"{"v":1,"tenant":"acme","path":"/products/1","idempotency_key":"a#b"}"#, "bad_message"),
        (r#"{"v":1,"tenant":"initech","path":"/products/1"}"#, "unknown_tenant"),
        (r#"{"v":1,"tenant":"a#CACHE#b","path":"/products/1"}"#, "unknown_tenant"),
        (r#"{"v":1,"tenant":"acme","path":"/nowhere"}"#, "no_route"),
        (r#"{"v":1,"tenant":"acme","path":"products/1"}"#, "bad_path"),
        (r#"{"v":1,"tenant":"acme","path":"/products/%00"}"#, "bad_path"),
        (r#"{"v":1,"tenant":"acme","tag":"a b"}"#, "bad_tag"),
    ];
    for (body, reason) in cases {
        let shown: String = body.chars().take(60).collect();
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.enqueue("/products/before").await;
        let id = world.send(body).await;
        world.enqueue("/products/after").await;
        sandbox.invoke().await;
        assert_eq!(world.published("/products/before").await.as_deref(), Some("one"), "{shown}");
        assert_eq!(world.published("/products/after").await.as_deref(), Some("one"), "{shown}");
        assert_eq!(world.queued_messages().await, 0, "{shown}");
        let letters = world.dead_letters().await;
        let [letter] = letters.as_slice() else { panic!("{} dead letters for {shown}", letters.len()) };
        assert_eq!(letter.body().unwrap(), body, "unchanged");
        assert_eq!(attribute(letter, "reason"), reason, "{shown}");
        assert_eq!(attribute(letter, "everfresh-key"), id, "{shown}");
        assert_eq!(sandbox.total(metrics::REJECTED), 1, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_one_render_fails_only_that_record() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.fail_at("/products/5", OriginFault::Panics);
    let mut ids = Vec::new();
    for page in 0..10 {
        ids.push(world.enqueue(&format!("/products/{page}")).await);
    }
    let event = sandbox.receive().await;
    let again = sandbox.handle(event, Duration::from_secs(60)).await.unwrap();
    assert_eq!(again, [ids[5].clone()]);
    let record = world.req("/products/5", &ids[5]).await.unwrap();
    assert_eq!((text(&record, "status"), text(&record, "error_class")), ("FAILED".into(), "panic".into()));
    assert!(world.lock("/products/5").await.is_none());
    assert_eq!(sandbox.total(metrics::COMMITTED), 9);
}

#[tokio::test(start_paused = true)]
async fn only_the_failed_record_of_ten_is_redelivered() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.fail_at("/products/3", OriginFault::Unreachable);
    let mut ids = Vec::new();
    for page in 0..10 {
        ids.push(world.enqueue(&format!("/products/{page}")).await);
    }
    assert_eq!(sandbox.invoke().await, 10);
    assert_eq!(world.queued_messages().await, 1);
    for page in (0..10).filter(|page| *page != 3) {
        let path = format!("/products/{page}");
        assert_eq!(world.published(&path).await.as_deref(), Some("one"));
        assert_eq!(world.status(&path, &ids[page]).await, "COMPLETED");
    }
    world.origin.fail_at("/products/3", OriginFault::No);
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.status("/products/3", &ids[3]).await, "COMPLETED");
    assert_eq!(world.origin.renders(), 11, "the other nine are not rendered again");
}

#[tokio::test(start_paused = true)]
async fn batch_of_failures_is_reported_record_by_record() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.fail_with(OriginFault::Unreachable);
    let mut ids = Vec::new();
    for page in 0..10 {
        ids.push(world.enqueue(&format!("/products/{page}")).await);
    }
    let event = sandbox.receive().await;
    let mut again = sandbox.handle(event, Duration::from_secs(60)).await.expect("no exception");
    again.sort();
    let mut sorted = ids.clone();
    sorted.sort();
    assert_eq!(again, sorted);
    for (page, id) in ids.iter().enumerate() {
        assert_eq!(world.status(&format!("/products/{page}"), id).await, "FAILED");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_lease_uses_up_no_attempt() {
    let world = World::new().await;
    let sandbox = world.sandbox_with(Make { max_attempts: 2, ..Make::default() });
    let id = world.enqueue(PAGE).await;
    // Another worker holds the lease for a long time.
    let held = [("lease_token", s("other")), ("lease_expires_at", n(world.now_ms() / 1000 + 300))];
    world.put(&world.pk(PAGE), "LOCK", &held).await;
    world.drain(&sandbox, LONG).await;
    assert!(sandbox.total(metrics::BUSY) >= 1);
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn message_is_rejected_at_its_ninetieth_receive() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    let held = [("lease_token", s("other")), ("lease_expires_at", n(world.now_ms() / 1000 + 3_000))];
    world.put(&world.pk(PAGE), "LOCK", &held).await;
    let mut event = sandbox.receive().await;
    for (count, rejected) in [("89", false), ("90", true)] {
        event.records[0].attributes.insert("ApproximateReceiveCount".into(), count.into());
        let again = sandbox.handle(event.clone(), Duration::from_secs(60)).await.unwrap();
        assert_eq!(again.is_empty(), rejected, "at receive {count}");
    }
    let letters = world.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((attribute(&letters[0], "reason"), attribute(&letters[0], "everfresh-key")), ("waited", id.as_str()));
}

#[tokio::test(start_paused = true)]
async fn ninetieth_receive_is_handled_if_the_page_is_free() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    let mut event = sandbox.receive().await;
    event.records[0].attributes.insert("ApproximateReceiveCount".into(), "90".into());
    assert!(sandbox.handle(event, Duration::from_secs(60)).await.unwrap().is_empty());
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn fifo_queue_is_refused_by_name() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    let mut event = sandbox.receive().await;
    event.records[0].event_source_arn = Some("arn:aws:sqs:eu-west-1:1:everfresh.fifo".into());
    let refused = sandbox.handle(event, Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(refused, BatchError::Fifo(_)));
    assert!(refused.to_string().contains("everfresh.fifo"), "{refused}");
    assert!(world.meta(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn group_id_of_a_fair_queue_is_accepted() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    let mut event = sandbox.receive().await;
    event.records[0].attributes.insert("MessageGroupId".into(), "acme".into());
    assert!(sandbox.handle(event, Duration::from_secs(60)).await.unwrap().is_empty());
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn record_without_id_fails_the_batch_before_any_work() {
    for id in [None, Some(String::new())] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.enqueue("/products/1").await;
        world.enqueue("/products/2").await;
        let mut event = sandbox.receive().await;
        event.records[1].message_id = id;
        let refused = sandbox.handle(event, Duration::from_secs(60)).await.unwrap_err();
        assert!(matches!(refused, BatchError::MissingMessageId(_)));
        assert_eq!(world.origin.renders(), 0);
        assert_eq!(world.queued_messages().await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn key_conflict_is_rejected_and_writes_nothing() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let body =
        |reason| format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","reason":"{reason}","idempotency_key":"k"}}"#);
    world.send(&body("expired")).await;
    sandbox.invoke().await;
    pause(10).await;
    let before = world.rows(&world.pk(PAGE)).await;
    let renders = world.origin.renders();
    world.send(&body("changed")).await;
    sandbox.invoke().await;
    assert_eq!(world.rows(&world.pk(PAGE)).await, before, "nothing written");
    assert_eq!(world.origin.renders(), renders);
    assert_eq!(sandbox.total(metrics::KEY_CONFLICTS), 1);
    let letters = world.dead_letters().await;
    assert_eq!((attribute(&letters[0], "reason"), attribute(&letters[0], "everfresh-key")), ("key_conflict", "k"));
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn next_record_leads_after_a_rejected_leader() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","reason":"expired","idempotency_key":"k"}}"#)).await;
    sandbox.invoke().await;
    pause(10).await;
    world.origin.content("two");
    world.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#)).await;
    world.enqueue(PAGE).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert_eq!(world.origin.renders(), 2);
    assert_eq!(world.queued_messages().await, 0);
    assert_eq!(world.dead_letters().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unsupported_contract_version_is_dead_lettered_and_counted() {
    let body = |v| format!(r#"{{"v":{v},"tenant":"acme","path":"{PAGE}","idempotency_key":"mine"}}"#);
    let newer = format!(r#"{{"v":2,"tenant":"acme","path":"{PAGE}","priority":"high"}}"#);
    // Body, attribute, expected key; `None` for the message id.
    let cases = [
        (body(2), "2", None),
        (newer, "2", None),
        (body(2), "1", None),
        (body(1), "2", Some("mine")),
        (body(1), "one", Some("mine")),
    ];
    for (body, contract, key) in cases {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        let id = world.send_with(&body, &[(attributes::CONTRACT, contract)]).await;
        sandbox.invoke().await;
        assert_eq!(sandbox.total(metrics::UNKNOWN_VERSION), 1, "{body} {contract}");
        assert_eq!(sandbox.total(metrics::REJECTED), 1, "{body} {contract}");
        assert!(world.rows(&world.pk(PAGE)).await.is_empty(), "nothing is written: {body} {contract}");
        assert_eq!((world.origin.renders(), world.queued_messages().await), (0, 0));
        let letters = world.dead_letters().await;
        let [letter] = letters.as_slice() else { panic!("{} dead letters", letters.len()) };
        assert_eq!(letter.body(), Some(body.as_str()), "unchanged, for a worker that supports it");
        assert_eq!(attribute(letter, "reason"), "bad_message");
        assert_eq!(attribute(letter, "everfresh-key"), key.unwrap_or(&id));
        assert_eq!(attribute(letter, attributes::CONTRACT), contract);
    }
}

#[tokio::test(start_paused = true)]
async fn message_with_supported_or_no_contract_is_handled() {
    let named = [(attributes::CONTRACT, "1"), (attributes::PRODUCER, "shop"), (attributes::VERSION, "99.0")];
    for attributes in [&named[..], &[]] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        let id = world.send_with(&format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#), attributes).await;
        world.send("poison").await;
        sandbox.invoke().await;
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
        assert_eq!((sandbox.total(metrics::REJECTED), sandbox.total(metrics::UNKNOWN_VERSION)), (1, 0));
    }
}

//! Other deployments, configurations and tenants, and expired request records, in the same table.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::config::Config;
use everfresh_core::domain::page_key::{KeyLayout, Tenant};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{CONFIG, Make, OriginFault, World, n, number, pause, s, text};

const PAGE: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

#[tokio::test(start_paused = true)]
async fn older_deployment_never_replaces_a_newer_ones_page() {
    let world = World::new().await;
    let newer = world.sandbox_with(Make { deploy: 2, ..Make::default() });
    let older = world.sandbox().await;
    world.enqueue(PAGE).await;
    newer.invoke().await;
    let before = world.meta(PAGE).await.unwrap();
    pause(100).await;
    world.origin.content("two");
    for reason in ["changed", "expired", "prewarm"] {
        world.enqueue_as(PAGE, reason).await;
    }
    older.invoke().await;
    assert_eq!(world.meta(PAGE).await.unwrap(), before);
    assert_eq!(world.origin.renders(), 1);
    assert_eq!(world.queued_messages().await, 3);
    world.drain(&newer, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn newer_deployments_commit_survives_an_older_ones_render() {
    let world = World::new().await;
    let newer = world.sandbox_with(Make { deploy: 2, ..Make::default() });
    let older = world.sandbox().await;
    world.enqueue(PAGE).await;
    older.invoke().await;
    pause(5).await;
    older.inject(On::every("UpdateItem"), Fault::Cut);
    world.origin.content("older");
    world.origin.takes(Duration::from_secs(45));
    world.enqueue(PAGE).await;
    tokio::join!(older.invoke(), async {
        pause(40).await;
        world.origin.takes(Duration::ZERO);
        world.origin.content("newer");
        world.enqueue(PAGE).await;
        newer.invoke().await;
        older.way.faults().clear();
    });
    world.drain(&older, LONG).await;
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(number(&meta, "deploy"), 2);
    assert_eq!(world.published(PAGE).await.unwrap(), "newer");
}

#[tokio::test(start_paused = true)]
async fn new_deployment_makes_page_stale_for_prewarm_and_expired() {
    let world = World::new().await;
    world.enqueue(PAGE).await;
    world.sandbox().await.invoke().await;
    pause(5).await;
    let newer = world.sandbox_with(Make { deploy: 2, ..Make::default() });
    world.enqueue_as(PAGE, "prewarm").await;
    newer.invoke().await;
    assert_eq!(newer.total(metrics::UNCHANGED), 1);
    assert_eq!(number(&world.meta(PAGE).await.unwrap(), "deploy"), 2);
    world.enqueue_as(PAGE, "prewarm").await;
    newer.invoke().await;
    assert_eq!(newer.total(metrics::ALREADY_COVERED), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_request_continues_after_a_deployment() {
    let mut world = World::new().await;
    let before = world.sandbox().await;
    world.origin.fail_with(OriginFault::Unreachable);
    let id = world.enqueue(PAGE).await;
    before.invoke().await;
    let failed = world.req(PAGE, &id).await.unwrap();
    assert_eq!(text(&failed, "status"), "FAILED");
    // Another lifetime, other tags, a gate, more attempts.
    let config = CONFIG
        .replace(r#"revalidate = "60s""#, "revalidate = \"600s\"\ngate = { min_bytes = 2 }")
        .replace(r#"tags       = ["products", "product-{id}"]"#, r#"tags = ["things"]"#)
        .replace("gate       = { min_bytes = 20, max_shrink = 0.5, must_contain = \"</html>\" }", "");
    world.config = Config::parse(&config).unwrap();
    let after = world.sandbox_with(Make { deploy: 2, max_attempts: 9, ..Make::default() });
    world.origin.fail_with(OriginFault::No);
    world.drain(&after, LONG).await;
    let done = world.req(PAGE, &id).await.unwrap();
    assert_eq!(text(&done, "request_hash"), text(&failed, "request_hash"));
    assert_eq!((text(&done, "status"), number(&done, "attempts")), ("COMPLETED".into(), 2));
    assert!(number(&world.meta(PAGE).await.unwrap(), "revalidate_seconds") > 500);
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn message_for_another_page_hash_is_delayed_and_counted() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#);
    let other = "a".repeat(64);
    world.send_with(&body, &[("everfresh-page", &other)]).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::CONFIGURATION_SKEW), 1);
    assert_eq!(world.rows(&world.pk(PAGE)).await.len(), 0);
    assert_eq!(world.queued_messages().await, 1, "it waits for a worker with the same configuration");
    // A matching hash is handled.
    let hash = world.page(PAGE).hash().to_string();
    world.send_with(&body, &[("everfresh-page", &hash)]).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn message_for_another_page_hash_neither_leads_nor_follows() {
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#);
    let other = "a".repeat(64);
    // At any position in the batch: the other records are handled, and do not cover it.
    for place in 0..3 {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        let mut ids = Vec::new();
        for at in 0..3 {
            let attributes: &[(&str, &str)] = if at == place { &[("everfresh-page", &other)] } else { &[] };
            ids.push(world.send_with(&body, attributes).await);
        }
        let event = sandbox.receive().await;
        let again = sandbox.handle(event, Duration::from_secs(60)).await.unwrap();
        assert_eq!(again, [ids[place].clone()], "place {place}");
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "place {place}");
        assert_eq!(world.origin.renders(), 1);
        assert_eq!(sandbox.total(metrics::CONFIGURATION_SKEW), 1);
    }
}

/// The record of an earlier request with the same key, past its ttl.
fn past_its_ttl(world: &World, request_hash: &str) -> Vec<(&'static str, AttributeValue)> {
    vec![
        ("request_hash", s(request_hash)),
        ("status", s("COMPLETED")),
        ("owner", s("long-gone")),
        ("claim_expires_ms", n(1)),
        ("attempts", n(1)),
        ("ttl", n(world.now_ms() / 1000 - 10)),
    ]
}

#[tokio::test(start_paused = true)]
async fn record_past_its_ttl_counts_as_absent() {
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    let known = {
        let world = World::new().await;
        world.send(&body).await;
        world.sandbox().await.invoke().await;
        text(&world.req(PAGE, "k").await.unwrap(), "request_hash")
    };
    // A record of another request, of this one, and none.
    for hash in [Some("other"), Some(known.as_str()), None] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        if let Some(hash) = hash {
            world.put(&world.pk(PAGE), "REQ#k", &past_its_ttl(&world, hash)).await;
        }
        world.send(&body).await;
        sandbox.invoke().await;
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "{hash:?}");
        let record = world.req(PAGE, "k").await.unwrap();
        assert_eq!((text(&record, "request_hash"), text(&record, "status")), (known.clone(), "COMPLETED".into()));
        assert!(number(&record, "ttl") > world.now_ms() / 1000);
        assert!(world.dead_letters().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn record_past_its_ttl_does_not_replay_a_close_change() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    let known = text(
        &world.rows(&world.pk(PAGE)).await.into_values().find(|row| text(row, "sk").starts_with("REQ#")).unwrap(),
        "request_hash",
    );
    world.put(&world.pk(PAGE), "REQ#k", &past_its_ttl(&world, &known)).await;
    world.origin.content("two");
    world.send(&body).await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two", "the change is not lost");
}

#[tokio::test(start_paused = true)]
async fn tag_requests_record_past_its_ttl_counts_as_absent() {
    let body = r#"{"v":1,"tenant":"acme","tag":"products","idempotency_key":"daily"}"#;
    let inval = Tenant::parse("acme").unwrap().inval_pk();
    let known = {
        let world = World::new().await;
        world.send(body).await;
        world.sandbox().await.invoke().await;
        text(&world.row(&inval, "REQ#daily").await.unwrap(), "request_hash")
    };
    for hash in [known.as_str(), "other"] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.put(&inval, "REQ#daily", &past_its_ttl(&world, hash)).await;
        world.send(body).await;
        sandbox.invoke().await;
        assert!(world.row(&inval, "TAG#products").await.is_some(), "{hash}: acked, so its watermark is written (I1)");
        let record = world.row(&inval, "REQ#daily").await.unwrap();
        assert_eq!(text(&record, "request_hash"), known);
        assert!(number(&record, "ttl") > world.now_ms() / 1000);
        assert_eq!(world.queued_messages().await, 0);
        assert!(world.dead_letters().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn same_path_of_two_tenants_is_two_pages() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    world.origin.content("globex");
    world.send(&format!(r#"{{"v":1,"tenant":"globex","path":"{PAGE}","idempotency_key":"k"}}"#)).await;
    sandbox.invoke().await;
    let globex = world.config.tenant(&Tenant::parse("globex").unwrap()).unwrap();
    let globex_pk = globex.resolve(PAGE).unwrap().page.pk(KeyLayout::default());
    assert_ne!(globex_pk, world.pk(PAGE));
    let globex_rows = world.rows(&globex_pk).await;
    assert!(text(&globex_rows["META"], "s3_key").starts_with("globex/"));
    assert!(globex_rows.contains_key("REQ#k"));
    assert_eq!(world.status(PAGE, "k").await, "absent");
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert!(text(&world.meta(PAGE).await.unwrap(), "s3_key").starts_with("acme/"));
    // A tag of one tenant does not affect the other.
    pause(5).await;
    world.send(r#"{"v":1,"tenant":"globex","tag":"products"}"#).await;
    sandbox.invoke().await;
    assert_eq!(world.rows(&Tenant::parse("acme").unwrap().inval_pk()).await.len(), 0);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::ALREADY_COVERED), 1);
}

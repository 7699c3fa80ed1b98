//! The usual paths through the protocol, and the AWS calls that each makes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_testing::{OriginFault, START_MS, World, number, text};

const PAGE: &str = "/products/42";

#[tokio::test(start_paused = true)]
async fn message_publishes_page() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    assert_eq!(sandbox.invoke().await, 1);
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    let meta = world.meta(PAGE).await.unwrap();
    assert!(number(&meta, "source_ms") >= START_MS);
    assert!((54..=60).contains(&number(&meta, "revalidate_seconds")));
    assert_eq!(number(&meta, "status"), 200);
    assert_eq!(text(&meta, "path"), PAGE);
    assert!(text(&meta, "s3_key").starts_with("acme/"));
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert!(world.row(&world.pk(PAGE), "LOCK").await.is_none(), "the lease is released");
    assert_eq!(world.queued_messages().await, 0, "acked");
}

#[tokio::test(start_paused = true)]
async fn changed_page_costs_five_calls() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue("/products/1").await;
    sandbox.invoke().await;
    // Once in ten seconds per sandbox, and one more: the pauses.
    assert_eq!(sandbox.operations(), ["Query", "Query", "PutItem", "PutItem", "PutObject", "TransactWriteItems"]);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.operations()[6..], ["Query", "PutItem", "PutItem", "PutObject", "TransactWriteItems"]);
}

#[tokio::test(start_paused = true)]
async fn unchanged_page_costs_four_calls_and_stores_no_body() {
    let world = World::new().await;
    let first = world.sandbox().await;
    world.enqueue(PAGE).await;
    first.invoke().await;
    let before = world.meta(PAGE).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let second = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    second.invoke().await;
    assert_eq!(second.operations(), ["Query", "Query", "PutItem", "PutItem", "TransactWriteItems"], "pauses included");
    assert_eq!(second.total(metrics::UNCHANGED), 1);
    let after = world.meta(PAGE).await.unwrap();
    assert_eq!(text(&after, "s3_key"), text(&before, "s3_key"));
    assert!(text(&after, "version") > text(&before, "version"), "it is still a new version");
    assert_eq!(number(&after, "modified_at"), number(&before, "modified_at"));
    assert!(number(&after, "generated_at") > number(&before, "generated_at"), "it is fresh again");
    assert_eq!(world.objects().await.len(), 1);
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn covered_request_costs_one_read() {
    let world = World::new().await;
    let first = world.sandbox().await;
    let old = world.enqueue(PAGE).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.enqueue(PAGE).await;
    // Both in one batch: the render begins well after the first message was sent, and covers it.
    first.invoke().await;
    let redelivered =
        world.send_with(&format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","reason":"expired"}}"#), &[]).await;
    let second = world.sandbox().await;
    second.invoke().await;
    assert_eq!(second.operations(), ["Query", "GetItem"], "one read, and the tenant's epoch at most once a second");
    assert_eq!(second.total(metrics::ALREADY_COVERED), 1);
    assert_eq!(world.status(PAGE, &redelivered).await, "absent", "nothing was written");
    assert_ne!(old, redelivered);
}

/// The second read is of the record: the key may be that of another request.
#[tokio::test(start_paused = true)]
async fn covered_request_with_a_key_costs_two_reads() {
    let world = World::new().await;
    let first = world.sandbox().await;
    world.enqueue(PAGE).await;
    first.invoke().await;
    let expired = |key: &str| format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","reason":"expired"{key}}}"#);
    for (key, operations) in [
        ("", &["Query", "GetItem"][..]),
        // The tenant's epoch, then the record.
        (r#","idempotency_key":"k""#, &["Query", "GetItem", "GetItem"]),
    ] {
        world.send(&expired(key)).await;
        let sandbox = world.sandbox().await;
        sandbox.invoke().await;
        assert_eq!(sandbox.operations(), operations);
        assert_eq!(sandbox.total(metrics::ALREADY_COVERED), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn duplicate_within_epsilon_costs_two_reads() {
    let world = World::new().await;
    let first = world.sandbox().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    world.send(&body).await;
    first.invoke().await;
    // A duplicate, sent within epsilon of the published render: the clocks cannot order the two.
    world.send(&body).await;
    let close = world.sandbox().await;
    close.invoke().await;
    assert_eq!(close.operations(), ["Query", "GetItem"]);
    assert_eq!(close.total(metrics::REPLAYED), 1);
    assert_eq!(world.origin.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn busy_page_costs_one_read_and_one_visibility_change() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(20));
    let first = world.sandbox().await;
    let second = world.sandbox().await;
    world.enqueue(PAGE).await;
    let (_, ()) = tokio::join!(first.invoke(), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.enqueue(PAGE).await;
        second.invoke().await;
    });
    assert_eq!(second.operations(), ["Query", "ChangeMessageVisibilityBatch"]);
    assert_eq!(second.total(metrics::LOCK_CONTENTION), 1);
    world.drain(&second, Duration::from_secs(600)).await;
    assert_eq!(world.origin.renders(), 2, "the second was sent after the first render began");
}

#[tokio::test(start_paused = true)]
async fn failed_render_costs_five_calls() {
    let world = World::new().await;
    world.origin.fail_with(OriginFault::Unreachable);
    let sandbox = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    // The first of a sandbox, so the pauses are read too.
    let expected = ["Query", "Query", "PutItem", "PutItem", "TransactWriteItems", "ChangeMessageVisibilityBatch"];
    assert_eq!(sandbox.operations(), expected);
    assert_eq!(world.status(PAGE, &id).await, "FAILED");
    assert!(world.meta(PAGE).await.is_none());
    assert!(world.row(&world.pk(PAGE), "LOCK").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn page_with_history_keeps_its_versions() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    for content in ["one", "two", "two", "three"] {
        world.origin.content(content);
        world.enqueue("/kept/1").await;
        sandbox.invoke().await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let rows = world.rows(&world.pk("/kept/1")).await;
    let versions: Vec<&String> = rows.keys().filter(|sk| sk.starts_with("VER#")).collect();
    assert_eq!(versions.len(), 3, "unchanged content gets no version row");
    assert_eq!(text(&rows["META"], "current_sk"), *versions[2]);
    assert_eq!(text(&rows["META"], "s3_key"), text(&rows[versions[2]], "s3_key"));
}

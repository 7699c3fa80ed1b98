//! Regression tests for bugs found in review.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::metrics;
use everfresh_enqueue::attributes;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{World, number, s, text};

const PAGE: &str = "/products/42";

/// Writes META as a foreign writer that uses fractions and NULL.
async fn put_meta_with_null_and_fractions(world: &World) {
    let attributes = [
        ("s3_key", s("elsewhere/page.html")),
        ("generated_at", AttributeValue::N("1763269990.37".to_owned())),
        ("revalidate_seconds", AttributeValue::N("60.5".to_owned())),
        ("etag", AttributeValue::Null(true)),
    ];
    world.put(&world.pk(PAGE), "META", &attributes).await;
}

#[tokio::test(start_paused = true)]
async fn foreign_row_with_null_and_fractions_is_replaced() {
    let world = World::new().await;
    put_meta_with_null_and_fractions(&world).await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!((sandbox.total(metrics::COMMITTED), world.origin.renders()), (1, 1));
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn header_too_long_for_object_metadata_is_still_published() {
    let world = World::new().await;
    let policy = format!("default-src 'self' {}", "https://cdn.example ".repeat(300));
    world.origin.answers(200, &[("content-type", "text/html"), ("content-security-policy", &policy)], "one");
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn refused_commit_is_not_in_the_requests_events() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(5));
    let sandbox = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    let (_, ()) = tokio::join!(sandbox.invoke(), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        put_meta_with_null_and_fractions(&world).await;
    });
    assert_eq!(sandbox.total(metrics::SUPERSEDED), 1);
    let req = world.req(PAGE, &id).await.unwrap();
    assert_eq!(text(&req, "status"), "STARTED");
    let events = req["events"].as_l().unwrap();
    let stages: Vec<u64> = events.iter().map(|event| number(event.as_m().unwrap(), "seq") % 100).collect();
    assert_eq!(stages, [10, 20, 30, 40, 50, 80], "received, claimed, leased, rendered, uploaded, given back");
    let times: Vec<u64> = events.iter().map(|event| number(event.as_m().unwrap(), "at_ms")).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_message_keeps_its_own_key() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(r#"{"v":1,"tenant":"unknown","path":"/","idempotency_key":"mine"}"#).await;
    sandbox.invoke().await;
    let letters = world.dead_letters().await;
    let key = &letters[0].message_attributes().unwrap()[attributes::KEY];
    assert_eq!(key.string_value(), Some("mine"));
}

#[tokio::test(start_paused = true)]
async fn expired_but_untaken_lease_is_kept_after_lost_renewals() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(48));
    let sandbox = world.sandbox().await;
    // All SDK attempts of three renewals: at 10, 20 and 30 s of a 30 s lease.
    sandbox.inject(On::next("UpdateItem").times(12), Fault::Cut);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.way.faults().fired()["cut"], 12);
    assert_eq!((sandbox.total(metrics::COMMITTED), world.origin.renders(), world.queued_messages().await), (1, 1, 0));
}

//! Bugs that review found, so that they stay found.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::metrics;
use everfresh_enqueue::attributes;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{World, number, s, text};

const PAGE: &str = "/products/42";

/// Puts META as a helper does that knows floating point and NULL.
async fn put_sloppy_meta(world: &World) {
    let attributes = [
        ("s3_key", s("elsewhere/page.html")),
        ("generated_at", AttributeValue::N("1763269990.37".to_owned())),
        ("revalidate_seconds", AttributeValue::N("60.5".to_owned())),
        ("etag", AttributeValue::Null(true)),
    ];
    world.put(&world.pk(PAGE), "META", &attributes).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_row_with_null_and_fractions_is_replaced_like_any_other() {
    let world = World::new().await;
    put_sloppy_meta(&world).await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!((sandbox.total(metrics::COMMITTED), world.origin.renders()), (1, 1));
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn a_security_policy_too_long_for_object_metadata_does_not_keep_the_page_out() {
    let world = World::new().await;
    let policy = format!("default-src 'self' {}", "https://cdn.example ".repeat(300));
    world.origin.answers(200, &[("content-type", "text/html"), ("content-security-policy", &policy)], "one");
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_refused_is_not_in_the_requests_events() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(5));
    let sandbox = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    let (_, ()) = tokio::join!(sandbox.turn(), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        put_sloppy_meta(&world).await;
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
async fn a_rejected_message_keeps_the_key_that_it_carries_itself() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(r#"{"v":1,"tenant":"nobody","path":"/","idempotency_key":"mine"}"#).await;
    sandbox.turn().await;
    let letters = world.dead_letters().await;
    let key = &letters[0].message_attributes().unwrap()[attributes::KEY];
    assert_eq!(key.string_value(), Some("mine"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_took_survives_renewals_that_were_lost_for_longer_than_it_lasts() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(48));
    let sandbox = world.sandbox().await;
    // Three renewals, with every attempt of the SDK: at 10, 20 and 30 s of a lease of 30 s.
    sandbox.inject(On::next("UpdateItem").times(12), Fault::Cut);
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(sandbox.way.faults().fired()["cut"], 12);
    assert_eq!((sandbox.total(metrics::COMMITTED), world.origin.renders(), world.waiting().await), (1, 1, 0));
}

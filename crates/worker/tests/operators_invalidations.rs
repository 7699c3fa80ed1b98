//! Invalidation of a path, a tag or a prefix by operators and producers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::freshness::Freshness;
use everfresh_core::domain::invalidations::Prefix;
use everfresh_core::domain::page_key::{CanonicalPath, Tenant};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::operators::{EPSILON_MS, done};
use everfresh_testing::{World, number, pause, text};

const PAGE: &str = "/kept/1";
const TAGGED: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

fn inval() -> String {
    Tenant::parse("acme").unwrap().inval_pk()
}

async fn watermark(world: &World, sk: &str) -> u64 {
    number(&world.row(&inval(), sk).await.unwrap(), "watermark_ms")
}

#[tokio::test(start_paused = true)]
async fn invalidated_path_is_stale_for_us_and_for_foreign_readers() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    let before = world.meta(PAGE).await.unwrap();
    let at_ms = world.now_ms() + EPSILON_MS;
    world.ledger().invalidate_path(&world.page(PAGE), at_ms).await.unwrap();
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(number(&meta, "revalidate_seconds"), 0);
    assert_eq!(text(&meta, "version"), text(&before, "version"), "it publishes nothing");
    assert_eq!(number(&world.health(PAGE).await, "path_watermark_ms"), at_ms);
    // A delayed older invalidation: watermarks only rise.
    world.ledger().invalidate_path(&world.page(PAGE), at_ms - 5_000).await.unwrap();
    assert_eq!(number(&world.health(PAGE).await, "path_watermark_ms"), at_ms);
    pause(10).await;
    world.origin.content("two");
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two", "rendered before its lifetime ended");
    assert!(number(&world.meta(PAGE).await.unwrap(), "revalidate_seconds") > 0);
    assert!(matches!(world.freshness(PAGE).await, Freshness::Fresh { .. }));
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.origin.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn unpin_does_not_lower_the_path_watermark() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    let at_ms = world.now_ms() + EPSILON_MS;
    world.ledger().invalidate_path(&world.page(PAGE), at_ms).await.unwrap();
    // By an operator whose clock is behind.
    done(world.ledger().unpin(&world.page(PAGE), at_ms - 1_500).await.unwrap());
    assert_eq!(number(&world.health(PAGE).await, "path_watermark_ms"), at_ms);
}

#[tokio::test(start_paused = true)]
async fn invalidating_a_missing_page_does_not_create_it() {
    let world = World::new().await;
    world.ledger().invalidate_path(&world.page(PAGE), 7_000).await.unwrap();
    assert!(world.meta(PAGE).await.is_none());
    assert_eq!(number(&world.health(PAGE).await, "path_watermark_ms"), 7_000);
}

#[tokio::test(start_paused = true)]
async fn invalidation_during_a_render_leaves_the_page_stale() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    world.origin.takes(Duration::from_secs(10));
    world.origin.content("read before");
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.invoke(), async {
        pause(5).await;
        world.origin.content("read after");
        world.ledger().invalidate_path(&world.page(PAGE), world.now_ms() + EPSILON_MS).await.unwrap();
    });
    assert_eq!(world.published(PAGE).await.unwrap(), "read before");
    assert!(matches!(world.freshness(PAGE).await, Freshness::Stale { .. }));
    pause(5).await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "read after");
}

#[tokio::test(start_paused = true)]
async fn expired_request_renders_a_page_with_invalidated_tag() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(TAGGED).await;
    sandbox.invoke().await;
    pause(5).await;
    world.origin.content("two");
    world.send(r#"{"v":1,"tenant":"acme","tag":"product-42"}"#).await;
    let sent_ms = world.now_ms();
    sandbox.invoke().await;
    assert_eq!((watermark(&world, "TAG#product-42").await, watermark(&world, "EPOCH").await), (sent_ms, sent_ms));
    assert_eq!(world.origin.renders(), 1, "a tag costs no render");
    pause(3).await;
    world.enqueue_as(TAGGED, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(TAGGED).await.unwrap(), "two");
    pause(3).await;
    world.enqueue_as(TAGGED, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.origin.renders(), 2, "it is fresh again");
    // Another page's tag does not affect this one.
    world.send(r#"{"v":1,"tenant":"acme","tag":"product-43"}"#).await;
    sandbox.invoke().await;
    pause(3).await;
    world.enqueue_as(TAGGED, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.origin.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn invalidated_prefix_makes_only_pages_below_it_stale() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(TAGGED).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    pause(5).await;
    let acme = Tenant::parse("acme").unwrap();
    let prefix = Prefix::of(&CanonicalPath::stored("/products").unwrap()).unwrap();
    let at_ms = world.now_ms() + EPSILON_MS;
    world.ledger().invalidate_prefix(&acme, &prefix, at_ms).await.unwrap();
    world.ledger().invalidate_prefix(&acme, &prefix, at_ms - 1_000).await.unwrap();
    assert_eq!((watermark(&world, "PREFIX#/products").await, watermark(&world, "EPOCH").await), (at_ms, at_ms));
    pause(5).await;
    world.origin.content("two");
    world.enqueue_as(TAGGED, "expired").await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(TAGGED).await.unwrap(), "two");
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn watermarks_rise_to_the_time_of_sending_and_never_fall() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let tag = |tag: &str| format!(r#"{{"v":1,"tenant":"acme","tag":"{tag}"}}"#);
    let old_id = world.send(&tag("products")).await;
    let old_ms = world.now_ms();
    let old = sandbox.receive().await;
    pause(10).await;
    world.send(&tag("products")).await;
    let new_ms = world.now_ms();
    sandbox.invoke().await;
    assert_eq!(watermark(&world, "TAG#products").await, new_ms);
    // The older message is delivered late.
    assert!(sandbox.handle(old.clone(), Duration::from_secs(60)).await.unwrap().is_empty());
    assert_eq!((watermark(&world, "TAG#products").await, watermark(&world, "EPOCH").await), (new_ms, new_ms));
    assert_eq!(text(&world.row(&inval(), &format!("REQ#{old_id}")).await.unwrap(), "status"), "COMPLETED");
    // And delivered again.
    let before = world.rows(&inval()).await;
    assert!(sandbox.handle(old, Duration::from_secs(60)).await.unwrap().is_empty());
    assert_eq!(world.rows(&inval()).await, before);
    assert_eq!(sandbox.total(metrics::REPLAYED), 1);
    // An older message for another tag raises only that tag's watermark.
    assert!(old_ms < new_ms);
    pause(10).await;
    let late = world.send(&tag("late")).await;
    let late_ms = world.now_ms();
    let event = sandbox.receive().await;
    pause(10).await;
    world.send(&tag("products")).await;
    let newest_ms = world.now_ms();
    sandbox.invoke().await;
    assert!(sandbox.handle(event, Duration::from_secs(60)).await.unwrap().is_empty());
    assert_eq!((watermark(&world, "TAG#late").await, watermark(&world, "EPOCH").await), (late_ms, newest_ms));
    assert!(world.row(&inval(), &format!("REQ#{late}")).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn tag_request_with_lost_response_is_done_once() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::next("TransactWriteItems").times(4), Fault::LoseResponse);
    world.send(r#"{"v":1,"tenant":"acme","tag":"products"}"#).await;
    let sent_ms = world.now_ms();
    world.drain(&sandbox, LONG).await;
    assert_eq!(watermark(&world, "TAG#products").await, sent_ms);
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn key_conflict_between_two_tags_is_rejected() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(r#"{"v":1,"tenant":"acme","tag":"products","idempotency_key":"k"}"#).await;
    sandbox.invoke().await;
    let before = world.rows(&inval()).await;
    pause(5).await;
    world.send(r#"{"v":1,"tenant":"acme","tag":"others","idempotency_key":"k"}"#).await;
    sandbox.invoke().await;
    assert_eq!(world.rows(&inval()).await, before);
    assert_eq!(sandbox.total(metrics::KEY_CONFLICTS), 1);
    assert_eq!(world.dead_letters().await.len(), 1);
    assert_eq!(world.queued_messages().await, 0);
}

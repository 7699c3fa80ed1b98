//! An origin with a cache of its own, which answers with what it had before a change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::outcome::RejectReason;
use everfresh_core::metrics;
use everfresh_testing::{World, n, number, pause, s};

const PAGE: &str = "/products/42";

/// A world whose cache has kept the page for some seconds.
async fn cached(lifetime_s: u64, obeys_no_cache: bool) -> World {
    let world = World::new().await;
    world.origin.is_cached(Duration::from_secs(lifetime_s), obeys_no_cache);
    world.enqueue_as(PAGE, "expired").await;
    world.sandbox().await.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    pause(10).await;
    world
}

#[tokio::test(start_paused = true)]
async fn change_is_published_through_a_cache_that_obeys_no_cache() {
    let world = cached(3_600, true).await;
    let sandbox = world.sandbox().await;
    world.origin.content("two");
    let id = world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(world.origin.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn change_waits_for_a_cache_that_does_not_obey() {
    let world = cached(60, false).await;
    let sandbox = world.sandbox().await;
    world.origin.content("two");
    let id = world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert_ne!(world.status(PAGE, &id).await, "COMPLETED", "the answer was made before the change");
    assert!(world.lock(PAGE).await.is_none(), "others may try");
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(sandbox.total(metrics::FAILED), 0, "no attempt is counted");
}

#[tokio::test(start_paused = true)]
async fn change_behind_a_cache_that_never_lets_go_is_dead_lettered() {
    let world = cached(1_000_000, false).await;
    let sandbox = world.sandbox().await;
    world.origin.content("two");
    let id = world.enqueue(PAGE).await;
    let renders = world.origin.renders();
    world.drain(&sandbox, Duration::from_secs(50_000)).await;
    assert_eq!(world.origin.renders() - renders, 10);
    let letters = world.dead_letters().await;
    assert_eq!(letters.len(), 1);
    let attribute = |name: &str| letters[0].message_attributes().unwrap()[name].string_value().unwrap().to_owned();
    assert_eq!(attribute("reason"), RejectReason::OriginStale.as_str());
    assert_eq!(attribute("everfresh-key"), id);
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn cached_answer_dates_its_version_by_its_age() {
    let world = cached(600, false).await;
    let sandbox = world.sandbox().await;
    let before = number(&world.meta(PAGE).await.unwrap(), "source_ms");
    // Stale, so that `expired` renders; and the cache has an answer that is as old as the page.
    pause(70).await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(number(&meta, "source_ms"), before, "the same answer claims what it claimed before");
    assert!(number(&meta, "generated_at") + 5 > world.now_ms() / 1000, "and is fresh again");
    assert_eq!(world.waiting().await, 0);
    // A change that was sent since then is not covered by it.
    world.origin.content("two");
    world.enqueue(PAGE).await;
    world.drain(&sandbox, Duration::from_secs(20_000)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn older_answer_of_a_cache_does_not_replace_a_newer_page() {
    let world = cached(3_600, false).await;
    let sandbox = world.sandbox().await;
    // Published past the cache, as by a purge of it.
    world.origin.answers(200, &[("content-type", "text/html")], "two");
    world.origin.is_cached(Duration::ZERO, true);
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    pause(70).await;
    world.origin.answers(200, &[("content-type", "text/html"), ("age", "300")], "one");
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert_eq!(world.waiting().await, 0, "readers ask again");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn answer_older_than_a_foreign_row_does_not_replace_it() {
    let world = cached(3_600, false).await;
    pause(60).await;
    world.store("acme/html/theirs", "two by them", &[]).await;
    let row = [
        ("s3_key", s("acme/html/theirs")),
        ("generated_at", n(world.now_ms() / 1000)),
        ("revalidate_seconds", n(1)),
        ("etag", s("\"theirs\"")),
    ];
    world.put(&world.pk(PAGE), "META", &row).await;
    pause(10).await;
    let sandbox = world.sandbox().await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two by them", "the cache has the page from before");
}

//! An origin behind a cache that may return responses from before a change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::outcome::RejectReason;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{World, n, number, pause, s};

const PAGE: &str = "/products/42";

/// A world whose origin cache has held the page for ten seconds.
async fn cached(lifetime_s: u64, obeys_no_cache: bool) -> World {
    let world = World::new().await;
    world.origin.is_cached(Duration::from_secs(lifetime_s), obeys_no_cache);
    world.enqueue_as(PAGE, "expired").await;
    world.sandbox().await.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    pause(10).await;
    world
}

#[tokio::test(start_paused = true)]
async fn change_is_published_through_a_cache_obeying_no_cache() {
    let world = cached(3_600, true).await;
    let sandbox = world.sandbox().await;
    world.origin.content("two");
    let id = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(world.origin.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn change_waits_for_a_cache_ignoring_no_cache() {
    let world = cached(60, false).await;
    let sandbox = world.sandbox().await;
    world.origin.content("two");
    let id = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert_ne!(world.status(PAGE, &id).await, "COMPLETED", "the response predates the change");
    assert!(world.lock(PAGE).await.is_none(), "the lease is released");
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(sandbox.total(metrics::FAILED), 0, "no attempt is counted");
}

#[tokio::test(start_paused = true)]
async fn change_behind_a_cache_that_never_expires_is_dead_lettered() {
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

/// The cached response shows the change, but was made so soon after the published render that their
/// order is not certain.
#[tokio::test(start_paused = true)]
async fn change_cached_just_after_the_published_render_waits() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    let published_ms = number(&world.meta(PAGE).await.unwrap(), "source_ms");
    let id = world.enqueue(PAGE).await;
    // Within two epsilons of the published render, and more than one after the change.
    pause(4).await;
    world.origin.content("two");
    world.origin.is_cached(Duration::from_secs(120), false);
    let made_ms = world.now_ms();
    assert!(made_ms < published_ms + 2 * 2_000 + 1_000, "{made_ms} {published_ms}");
    world.drain(&sandbox, Duration::from_secs(5_000)).await;
    assert!(world.dead_letters().await.is_empty());
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert!(world.origin.renders() <= 4, "{} renders", world.origin.renders());
}

#[tokio::test(start_paused = true)]
async fn failed_dead_letter_grants_no_further_stale_responses() {
    let world = cached(1_000_000, false).await;
    let sandbox = world.sandbox().await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    let renders = world.origin.renders();
    sandbox.inject(On::next("SendMessage").times(3), Fault::FailBefore);
    world.drain(&sandbox, Duration::from_secs(50_000)).await;
    assert_eq!(world.dead_letters().await.len(), 1);
    let renders = world.origin.renders() - renders;
    assert!((10..=12).contains(&renders), "{renders} renders");
}

#[tokio::test(start_paused = true)]
async fn cached_response_dates_its_version_by_its_age() {
    let world = cached(600, false).await;
    let sandbox = world.sandbox().await;
    let before = number(&world.meta(PAGE).await.unwrap(), "source_ms");
    // The page is stale, so `expired` renders; the cached response is as old as the page.
    pause(70).await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(number(&meta, "source_ms"), before, "the same response has the same source time");
    assert!(number(&meta, "generated_at") + 5 > world.now_ms() / 1000, "it is fresh again");
    assert_eq!(world.queued_messages().await, 0);
    // It does not cover a later change.
    world.origin.content("two");
    world.enqueue(PAGE).await;
    world.drain(&sandbox, Duration::from_secs(20_000)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn older_cached_response_does_not_replace_a_newer_page() {
    let world = cached(3_600, false).await;
    let sandbox = world.sandbox().await;
    // Published past the cache, as after purging it.
    world.origin.answers(200, &[("content-type", "text/html")], "two");
    world.origin.is_cached(Duration::ZERO, true);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    pause(70).await;
    world.origin.answers(200, &[("content-type", "text/html"), ("age", "300")], "one");
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert_eq!(world.queued_messages().await, 0, "acked: later reads enqueue again");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn cached_response_older_than_a_foreign_row_does_not_replace_it() {
    let world = cached(3_600, false).await;
    pause(60).await;
    world.store("acme/html/foreign", "two by foreign writer", &[]).await;
    let row = [
        ("s3_key", s("acme/html/foreign")),
        ("generated_at", n(world.now_ms() / 1000)),
        ("revalidate_seconds", n(1)),
        ("etag", s("\"foreign\"")),
    ];
    world.put(&world.pk(PAGE), "META", &row).await;
    pause(10).await;
    let sandbox = world.sandbox().await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two by foreign writer", "the cached page is older");
}

/// An answer of Next.js, which keeps pages itself and sends no `Age`.
fn answers_as_next(world: &World, word: &str, lifetime: &str, content: &str) {
    let headers = [("content-type", "text/html"), ("x-nextjs-cache", word), ("cache-control", lifetime)];
    world.origin.answers(200, &headers, content);
}

#[tokio::test(start_paused = true)]
async fn change_waits_while_a_hit_of_next_may_be_older() {
    for lifetime in ["s-maxage=60", "s-maxage=7200", "s-maxage=31536000"] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        answers_as_next(&world, "MISS", lifetime, "one");
        world.enqueue(PAGE).await;
        sandbox.invoke().await;
        pause(30).await;
        answers_as_next(&world, "HIT", lifetime, "one");
        let id = world.enqueue(PAGE).await;
        sandbox.invoke().await;
        assert_ne!(world.status(PAGE, &id).await, "COMPLETED", "{lifetime}");
        answers_as_next(&world, "REVALIDATED", lifetime, "two");
        world.drain(&sandbox, Duration::from_secs(2_000)).await;
        assert_eq!(world.published(PAGE).await.unwrap(), "two", "{lifetime}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{lifetime}");
        assert!(world.dead_letters().await.is_empty(), "{lifetime}");
    }
}

#[tokio::test(start_paused = true)]
async fn change_behind_a_year_long_hit_of_next_is_dead_lettered() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    answers_as_next(&world, "HIT", "s-maxage=31536000", "one");
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one", "a first version may be of any age");
    pause(30).await;
    let id = world.enqueue(PAGE).await;
    world.drain(&sandbox, Duration::from_secs(20_000)).await;
    let letters = world.dead_letters().await;
    assert_eq!(letters.len(), 1);
    let reason = letters[0].message_attributes().unwrap()["reason"].string_value();
    assert_eq!(reason, Some(RejectReason::OriginStale.as_str()));
    assert_ne!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

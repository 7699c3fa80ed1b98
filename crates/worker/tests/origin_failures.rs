//! Origins with bad, late or no responses: the last good page stays, and the cooldown spares the
//! origin.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_testing::{Make, OriginFault, Sandbox, World, number, pause, text};

const PAGE: &str = "/products/42";
const STRICT: &str = "/strict";
const LONG: Duration = Duration::from_secs(7_200);
const HTML: (&str, &str) = ("content-type", "text/html");

/// A world in which `path` is published with this content and is stale.
async fn published_page(path: &str, content: &str) -> (World, Sandbox) {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.answers(200, &[HTML], content);
    world.enqueue(path).await;
    sandbox.invoke().await;
    pause(100).await;
    (world, sandbox)
}

type Misbehaviour = (&'static str, fn(&World), &'static str);

#[tokio::test(start_paused = true)]
async fn unpublishable_response_keeps_the_last_good_page() {
    let cases: [Misbehaviour; 8] = [
        ("500", |world| world.origin.answers(500, &[HTML], "broken"), "origin_status"),
        ("503", |world| world.origin.answers(503, &[HTML], "broken"), "origin_status"),
        ("429", |world| world.origin.answers(429, &[HTML], "slow down"), "origin_status"),
        ("400", |world| world.origin.answers(400, &[HTML], "bad request"), "origin_status"),
        ("empty", |world| world.origin.answers(200, &[HTML], ""), "gate"),
        ("truncated", |world| world.origin.declares(Some(9_999)), "origin_unreachable"),
        ("lying content-length", |world| world.origin.declares(Some(1)), "origin_unreachable"),
        ("unreachable", |world| world.origin.fail_with(OriginFault::Unreachable), "origin_unreachable"),
    ];
    for (case, misbehave, class) in cases {
        let (world, sandbox) = published_page(PAGE, "good").await;
        let before = world.meta(PAGE).await.unwrap();
        misbehave(&world);
        let id = world.enqueue(PAGE).await;
        sandbox.invoke().await;
        assert_eq!(world.meta(PAGE).await.unwrap(), before, "{case}");
        assert_eq!(world.published(PAGE).await.unwrap(), "good", "{case}");
        let record = world.req(PAGE, &id).await.unwrap();
        assert_eq!(
            (text(&record, "status").as_str(), text(&record, "error_class").as_str()),
            ("FAILED", class),
            "{case}"
        );
        let health = world.health(PAGE).await;
        assert_eq!(number(&health, "failures"), 1, "{case}");
        assert!(number(&health, "next_attempt_ms") > world.now_ms(), "{case}");
        assert!(world.lock(PAGE).await.is_none(), "{case}");
        assert_eq!(world.objects().await.len(), 1, "{case}: nothing was uploaded");
        assert_eq!(world.queued_messages().await, 1, "{case}");
        // Recovered.
        world.origin.fail_with(OriginFault::No);
        world.origin.declares(None);
        world.origin.answers(200, &[HTML], "better");
        world.drain(&sandbox, LONG).await;
        assert_eq!(world.published(PAGE).await.unwrap(), "better", "{case}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{case}");
        let health = world.health(PAGE).await;
        assert!(!health.contains_key("failures") && !health.contains_key("next_attempt_ms"), "{case}: {health:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn not_found_gone_and_moved_are_published_with_a_short_life() {
    let cases: [(u16, &[(&str, &str)]); 4] = [
        (404, &[HTML]),
        (410, &[HTML]),
        (301, &[("location", "/products/1")]),
        (308, &[("location", "https://www.acme.example/products/1")]),
    ];
    for (status, headers) in cases {
        let (world, sandbox) = published_page(PAGE, "good").await;
        world.origin.answers(status, headers, "not here");
        world.enqueue(PAGE).await;
        sandbox.invoke().await;
        let meta = world.meta(PAGE).await.unwrap();
        assert_eq!(number(&meta, "status"), u64::from(status));
        assert!((1..=30).contains(&number(&meta, "revalidate_seconds")), "{status}");
        assert_eq!(world.published(PAGE).await.unwrap(), "not here");
        assert!(world.health(PAGE).await.is_empty(), "{status} counts as no failure");
        pause(31).await;
        world.origin.answers(200, &[HTML], "here again");
        world.enqueue_as(PAGE, "expired").await;
        sandbox.invoke().await;
        assert_eq!(world.published(PAGE).await.unwrap(), "here again", "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_origin_times_out_before_the_function_does() {
    let (world, sandbox) = published_page(PAGE, "good").await;
    world.origin.fail_with(OriginFault::Hangs);
    let id = world.enqueue(PAGE).await;
    let before_ms = world.now_ms();
    sandbox.invoke().await;
    assert!(world.now_ms() - before_ms < 55_000, "the render deadline applies, not the function's timeout");
    let record = world.req(PAGE, &id).await.unwrap();
    assert_eq!((text(&record, "status"), text(&record, "error_class")), ("FAILED".into(), "origin_timeout".into()));
    assert_eq!(world.published(PAGE).await.unwrap(), "good");
    assert!(world.lock(PAGE).await.is_none());
    world.origin.fail_with(OriginFault::No);
    world.origin.content("better");
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "better");
}

#[tokio::test(start_paused = true)]
async fn route_gate_refuses_small_shrunk_and_incomplete_pages() {
    let good = format!("<html>{}</html>", "content ".repeat(20));
    for (case, body) in
        [("too small", "<b></html>"), ("shrunk", "<html>content content</html>"), ("cut off", &good[..good.len() - 7])]
    {
        let (world, sandbox) = published_page(STRICT, &good).await;
        world.origin.content(body);
        let id = world.enqueue(STRICT).await;
        sandbox.invoke().await;
        assert_eq!(world.published(STRICT).await.unwrap(), good, "{case}");
        assert_eq!(text(&world.req(STRICT, &id).await.unwrap(), "error_class"), "gate", "{case}");
        world.origin.content(&good.replace("content", "CONTENT"));
        world.drain(&sandbox, LONG).await;
        assert!(world.published(STRICT).await.unwrap().contains("CONTENT"), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn during_cooldown_expired_requests_are_acked_and_changed_ones_wait() {
    let (world, sandbox) = published_page(PAGE, "good").await;
    world.origin.fail_with(OriginFault::Unreachable);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let renders = world.origin.renders();
    let until_ms = number(&world.health(PAGE).await, "next_attempt_ms");
    let expired = world.enqueue_as(PAGE, "expired").await;
    let prewarm = world.enqueue_as(PAGE, "prewarm").await;
    let changed = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.origin.renders(), renders, "the origin gets no request");
    assert_eq!(world.queued_messages().await, 2, "the two changed requests");
    for id in [&expired, &prewarm, &changed] {
        assert_eq!(world.status(PAGE, id).await, "absent", "nothing is written");
    }
    world.origin.fail_with(OriginFault::No);
    world.origin.content("better");
    world.drain(&sandbox, LONG).await;
    assert!(world.now_ms() >= until_ms);
    assert_eq!(world.published(PAGE).await.unwrap(), "better");
    assert!(world.origin.renders() <= renders + 2);
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn cooldown_grows_while_the_origin_stays_down() {
    let (world, _) = published_page(PAGE, "good").await;
    let sandbox = world.sandbox_with(Make { max_attempts: 50, ..Make::default() });
    world.origin.fail_with(OriginFault::Unreachable);
    let before = world.origin.renders();
    // Ten minutes of expired and changed requests.
    for minute in 0..10 {
        for _ in 0..10 {
            world.enqueue(PAGE).await;
            world.enqueue_as(PAGE, "expired").await;
        }
        for _ in 0..30 {
            sandbox.invoke().await;
            pause(2).await;
        }
        let renders = world.origin.renders() - before;
        assert!(renders <= 4 + minute, "{renders} renders after minute {minute}");
    }
    assert!(number(&world.health(PAGE).await, "failures") >= 5);
    assert_eq!(world.published(PAGE).await.unwrap(), "good");
    world.origin.fail_with(OriginFault::No);
    world.origin.content("better");
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "better");
    assert!(world.health(PAGE).await.is_empty() || !world.health(PAGE).await.contains_key("failures"));
    assert!(world.dead_letters().await.is_empty(), "waiting counts as no attempt");
    assert!(sandbox.total(metrics::FAILED) > 0);
}

#[tokio::test(start_paused = true)]
async fn failed_first_render_publishes_nothing() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.answers(500, &[HTML], "broken");
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert!(world.meta(PAGE).await.is_none());
    assert!(world.objects().await.is_empty());
    // A reader's request is acked during the cooldown and rendered afterwards.
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.origin.renders(), 1);
    pause(10).await;
    world.origin.answers(200, &[HTML], "good");
    world.enqueue_as(PAGE, "expired").await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "good");
}

//! Pages whose origin does not let them be stored: a version without a body, which withdraws what
//! was published and heals by itself.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_core::domain::freshness::{Freshness, Why};
use everfresh_core::metrics;
use everfresh_testing::{CONFIG, Sandbox, World, done, number, pause, text};

const PAGE: &str = "/products/42";
const KEPT: &str = "/kept/1";
const HTML: (&str, &str) = ("content-type", "text/html");
const PRIVATE: (&str, &str) = ("cache-control", "private");

/// Status, headers, and the reason of the bypass.
type Answer = (u16, &'static [(&'static str, &'static str)], &'static str);

async fn published(path: &str) -> (World, Sandbox) {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.answers(200, &[HTML], "public");
    world.enqueue(path).await;
    sandbox.invoke().await;
    pause(100).await;
    (world, sandbox)
}

async fn regenerate(world: &World, sandbox: &Sandbox, path: &str) -> String {
    let id = world.enqueue(path).await;
    sandbox.invoke().await;
    id
}

#[tokio::test(start_paused = true)]
async fn answer_that_may_not_be_stored_withdraws_the_page() {
    let cases: [Answer; 12] = [
        (200, &[HTML, ("Set-Cookie", "session=1")], "set-cookie"),
        (200, &[HTML, PRIVATE], "private"),
        (200, &[HTML, ("cache-control", "no-store")], "no-store"),
        (200, &[HTML, ("cache-control", "no-cache")], "no-cache"),
        (200, &[HTML, ("vary", "Accept-Language")], "vary"),
        (204, &[], "no-content"),
        (302, &[("location", "/login")], "redirect"),
        (301, &[("location", "https://evil.example/")], "redirect"),
        (308, &[("location", PAGE)], "redirect"),
        (401, &[HTML], "unauthorized"),
        (403, &[HTML], "forbidden"),
        (451, &[HTML], "legal-reasons"),
    ];
    for (status, headers, reason) in cases {
        let (world, sandbox) = published(PAGE).await;
        let before = world.meta(PAGE).await.unwrap();
        world.origin.answers(status, headers, "mine");
        let id = regenerate(&world, &sandbox, PAGE).await;
        let meta = world.meta(PAGE).await.unwrap();
        assert_eq!(text(&meta, "bypass_reason"), reason);
        assert_eq!((number(&meta, "schema"), number(&meta, "revalidate_seconds")), (2, 0), "{reason}");
        assert!(text(&meta, "version") > text(&before, "version"), "{reason}");
        for gone in ["etag", "current_sk", "modified_at", "headers", "body_digest", "artifact_digest", "ttl"] {
            assert!(!meta.contains_key(gone), "{reason} {gone}");
        }
        // No reader of the row, in any language, finds a body.
        assert!(!world.objects().await.contains(&text(&meta, "s3_key")), "{reason}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{reason}");
        assert!(world.health(PAGE).await.is_empty() && world.lock(PAGE).await.is_none(), "{reason}");
        assert_eq!((world.queued_messages().await, world.dead_letters().await.len()), (0, 0), "{reason}");
        assert_eq!((sandbox.total(metrics::BYPASSED), sandbox.total(metrics::WITHDRAWN)), (1, 1), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn bypass_heals_when_the_answer_may_be_stored_again() {
    let (world, sandbox) = published(PAGE).await;
    world.origin.answers(200, &[HTML, ("set-cookie", "stray=1")], "mine");
    regenerate(&world, &sandbox, PAGE).await;
    assert_eq!(world.freshness(PAGE).await, Freshness::Bypass { due: None });
    pause(13).await;
    assert_eq!(world.freshness(PAGE).await, Freshness::Bypass { due: Some(Why::Age) });
    world.origin.answers(200, &[HTML], "public again");
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "public again");
    let meta = world.meta(PAGE).await.unwrap();
    for gone in ["bypass_reason", "check_at_ms", "check_after_seconds"] {
        assert!(!meta.contains_key(gone), "{gone}");
    }
    assert_eq!(number(&meta, "schema"), 1);
}

#[tokio::test(start_paused = true)]
async fn bypass_checks_grow_rarer_and_a_change_checks_at_once() {
    let (world, sandbox) = published(PAGE).await;
    world.origin.answers(200, &[HTML, PRIVATE], "mine");
    regenerate(&world, &sandbox, PAGE).await;
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let meta = world.meta(PAGE).await.unwrap();
        pauses.push(number(&meta, "check_after_seconds"));
        let renders = world.origin.renders();
        world.enqueue_as(PAGE, "expired").await;
        sandbox.invoke().await;
        assert_eq!(world.origin.renders(), renders, "no check is due, so the request is covered");
        pause(number(&meta, "check_at_ms").saturating_sub(world.now_ms()) / 1_000 + 3).await;
        world.enqueue_as(PAGE, "expired").await;
        sandbox.invoke().await;
        assert_eq!(world.origin.renders(), renders + 1);
    }
    assert_eq!(pauses, [10, 20, 40, 80]);
    let renders = world.origin.renders();
    pause(5).await;
    regenerate(&world, &sandbox, PAGE).await;
    assert_eq!(world.origin.renders(), renders + 1, "a changed request checks at once");
}

#[tokio::test(start_paused = true)]
async fn pinned_page_is_not_withdrawn_by_its_origin() {
    let (world, sandbox) = published(PAGE).await;
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    world.origin.answers(403, &[HTML], "firewall");
    regenerate(&world, &sandbox, PAGE).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "public");
}

#[tokio::test(start_paused = true)]
async fn rollback_over_a_bypass_restores_body_life_and_tags() {
    let (world, sandbox) = published(KEPT).await;
    let good = world.meta(KEPT).await.unwrap();
    world.origin.answers(200, &[HTML, PRIVATE], "mine");
    regenerate(&world, &sandbox, KEPT).await;
    let version = text(&good, "version").parse().unwrap();
    done(world.ledger().roll_back(&world.page(KEPT), &version).await.unwrap());
    assert_eq!(world.published(KEPT).await.unwrap(), "public");
    let meta = world.meta(KEPT).await.unwrap();
    assert_eq!(number(&meta, "revalidate_seconds"), number(&good, "revalidate_seconds"));
    assert!(!meta.contains_key("bypass_reason"));
}

#[tokio::test(start_paused = true)]
async fn rows_of_invented_addresses_expire() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    for (path, status) in [("/products/404", 404), ("/products/private", 403)] {
        world.origin.answers(status, &[HTML], "no");
        regenerate(&world, &sandbox, path).await;
        assert!(number(&world.meta(path).await.unwrap(), "ttl") > world.now_ms() / 1_000, "{path}");
    }
    world.origin.answers(500, &[HTML], "broken");
    world.enqueue_as("/products/500", "expired").await;
    sandbox.invoke().await;
    assert!(number(&world.health("/products/500").await, "ttl") > world.now_ms() / 1_000);
    assert_eq!(world.queued_messages().await, 0, "the next read enqueues another");
    // The first page with content stays for good.
    world.origin.answers(200, &[HTML], "found");
    pause(60).await;
    for path in ["/products/404", "/products/500"] {
        regenerate(&world, &sandbox, path).await;
        assert!(!world.meta(path).await.unwrap().contains_key("ttl"), "{path}");
        assert!(!world.health(path).await.contains_key("ttl"), "{path}");
    }
    // And so does one that was there once.
    world.origin.answers(404, &[HTML], "gone");
    pause(60).await;
    regenerate(&world, &sandbox, "/products/404").await;
    assert!(!world.meta("/products/404").await.unwrap().contains_key("ttl"));
}

#[tokio::test(start_paused = true)]
async fn origin_gives_a_page_its_life_and_its_tags() {
    let (world, sandbox) = published(PAGE).await;
    let headers = [
        HTML,
        ("cache-control", "s-maxage=600, stale-while-revalidate=30"),
        ("cache-tag", "season, products"),
        ("strict-transport-security", "max-age=31536000"),
        ("x-powered-by", "needle"),
    ];
    world.origin.answers(200, &headers, "public");
    regenerate(&world, &sandbox, PAGE).await;
    let meta = world.meta(PAGE).await.unwrap();
    let life = number(&meta, "revalidate_seconds");
    assert!((540..=600).contains(&life), "{life}");
    assert_eq!(number(&meta, "max_stale_seconds"), 30);
    let tags = format!("{:?}", meta["tags"]);
    for tag in ["products", "product-42", "season"] {
        assert_eq!(tags.matches(&format!("{tag:?}")).count(), 1, "{tags}");
    }
    let stored = format!("{:?}", meta["headers"]);
    assert!(stored.contains("strict-transport-security") && !stored.contains("needle"), "{stored}");
    pause(life).await;
    assert!(matches!(world.freshness(PAGE).await, Freshness::Stale { .. }));
    pause(31).await;
    assert!(matches!(world.freshness(PAGE).await, Freshness::Expired { .. }));
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_the_origin_sets_the_cooldown() {
    let (world, sandbox) = published(PAGE).await;
    world.origin.answers(429, &[HTML, ("retry-after", "120")], "slow down");
    regenerate(&world, &sandbox, PAGE).await;
    let until_ms = number(&world.health(PAGE).await, "next_attempt_ms");
    assert!(until_ms >= world.now_ms() + 120_000, "{until_ms}");
    assert_eq!(world.published(PAGE).await.unwrap(), "public");
}

#[tokio::test(start_paused = true)]
async fn oversize_error_or_aged_answer_keeps_the_page() {
    let large = "x".repeat(5 << 20);
    for (status, headers) in [
        (503, &[HTML][..]),
        (429, &[HTML]),
        (400, &[HTML]),
        (200, &[HTML, ("age", "300")]),
        (200, &[HTML, ("x-nextjs-cache", "HIT"), ("cache-control", "s-maxage=300")]),
    ] {
        let (world, sandbox) = published(PAGE).await;
        world.origin.answers(status, headers, &large);
        let id = regenerate(&world, &sandbox, PAGE).await;
        assert_eq!(world.published(PAGE).await.unwrap(), "public", "{status} {headers:?}");
        assert_ne!(world.status(PAGE, &id).await, "COMPLETED", "{status} {headers:?}");
    }
    for status in [200, 404] {
        let (world, sandbox) = published(PAGE).await;
        world.origin.answers(status, &[HTML], &large);
        regenerate(&world, &sandbox, PAGE).await;
        assert_eq!(text(&world.meta(PAGE).await.unwrap(), "bypass_reason"), "too-large", "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn page_that_becomes_a_login_page_is_withdrawn_despite_its_gate() {
    const STRICT: &str = "/strict";
    for body in ["", "log in", "<html>Please log in to read this.</html>"] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.origin.answers(200, &[HTML], &format!("<html>{}</html>", "public ".repeat(100)));
        world.enqueue(STRICT).await;
        sandbox.invoke().await;
        pause(100).await;
        world.origin.answers(200, &[HTML, PRIVATE], body);
        let id = regenerate(&world, &sandbox, STRICT).await;
        assert_eq!(text(&world.meta(STRICT).await.unwrap(), "bypass_reason"), "private", "{body:?}");
        assert_eq!(world.status(STRICT, &id).await, "COMPLETED", "{body:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_by_the_origins_tag_checks_a_bypassed_page() {
    let (world, sandbox) = published(PAGE).await;
    world.origin.answers(200, &[HTML, ("cache-tag", "season")], "public");
    regenerate(&world, &sandbox, PAGE).await;
    pause(10).await;
    world.origin.answers(200, &[HTML, ("cache-tag", "season"), ("set-cookie", "stray=1")], "mine");
    regenerate(&world, &sandbox, PAGE).await;
    let tags = format!("{:?}", world.meta(PAGE).await.unwrap()["tags"]);
    assert!(["products", "product-42", "season"].iter().all(|tag| tags.contains(&format!("{tag:?}"))), "{tags}");
    // Sooner than any check of a bypass.
    pause(3).await;
    world.origin.answers(200, &[HTML, ("cache-tag", "season")], "public again");
    world.send(r#"{"v":1,"tenant":"acme","tag":"season"}"#).await;
    sandbox.invoke().await;
    pause(2).await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "public again");
}

#[tokio::test(start_paused = true)]
async fn route_bounds_the_life_that_the_origin_gives() {
    let bounded = CONFIG.replace("max_stale  = \"1d\"", "max_stale  = \"1d\"\nmax_revalidate = \"5m\"");
    let world = World::with_config(&bounded).await;
    let sandbox = world.sandbox().await;
    for (lifetime, life) in [("s-maxage=31536000", 270..=300), ("s-maxage=100", 90..=100), ("public", 54..=60)] {
        world.origin.answers(200, &[HTML, ("cache-control", lifetime)], "public");
        regenerate(&world, &sandbox, PAGE).await;
        let seconds = number(&world.meta(PAGE).await.unwrap(), "revalidate_seconds");
        assert!(life.contains(&seconds), "{lifetime}: {seconds}");
        pause(10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn origin_says_how_long_a_page_may_outlive_its_outage() {
    let (world, sandbox) = published(KEPT).await;
    for (control, stale_s, if_error_s) in [
        ("s-maxage=60, stale-while-revalidate=30, stale-if-error=3600", Some(30), Some(3_600)),
        ("max-age=60, stale-if-error=600", Some(600), Some(600)),
        ("s-maxage=60, stale-while-revalidate=30, stale-if-error=3600, must-revalidate", Some(30), None),
        ("s-maxage=60", None, None),
    ] {
        world.origin.answers(200, &[HTML, ("cache-control", control)], control);
        regenerate(&world, &sandbox, KEPT).await;
        let meta = world.meta(KEPT).await.unwrap();
        let kept = world.row(&world.pk(KEPT), &text(&meta, "current_sk")).await.unwrap();
        for row in [meta, kept] {
            let seconds = |name: &str| row.contains_key(name).then(|| number(&row, name));
            assert_eq!(seconds("max_stale_seconds"), stale_s, "{control}");
            assert_eq!(seconds("stale_if_error_seconds"), if_error_s, "{control}");
        }
        pause(10).await;
    }
}

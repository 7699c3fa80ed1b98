//! Renders with a conditional request, and origins that answer 304.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::metrics;
use everfresh_enqueue::attributes;
use everfresh_testing::{Make, Sandbox, World, done, number, pause, s, text};

const PAGE: &str = "/products/42";
const KEPT: &str = "/kept/1";
const HTML: (&str, &str) = ("content-type", "text/html");
const ONE: (&str, &str) = ("etag", "\"one\"");
const TWO: (&str, &str) = ("etag", "\"two\"");
const WEAK: (&str, &str) = ("etag", "W/\"one\"");
const DATE: (&str, &str) = ("last-modified", "Wed, 18 Nov 2026 10:00:00 GMT");

async fn published(path: &str, headers: &[(&str, &str)]) -> (World, Sandbox) {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.answers(200, headers, "one");
    world.enqueue(path).await;
    sandbox.invoke().await;
    pause(100).await;
    (world, sandbox)
}

/// Regenerates the page, and returns the condition of its last render.
async fn regenerate(world: &World, sandbox: &Sandbox, path: &str, reason: &str) -> Option<String> {
    let id = world.enqueue_as(path, reason).await;
    sandbox.invoke().await;
    assert_eq!(world.status(path, &id).await, "COMPLETED");
    world.origin.conditions().pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn not_modified_renews_the_published_version() {
    for (headers, reason) in
        [([HTML, ONE], "changed"), ([HTML, ONE], "expired"), ([HTML, WEAK], "expired"), ([HTML, DATE], "expired")]
    {
        let (world, sandbox) = published(PAGE, &headers).await;
        let before = world.meta(PAGE).await.unwrap();
        let condition = regenerate(&world, &sandbox, PAGE, reason).await;
        assert_eq!(condition.as_deref(), Some(headers[1].1));
        let meta = world.meta(PAGE).await.unwrap();
        assert!(text(&meta, "version") > text(&before, "version"));
        assert!(number(&meta, "source_ms") > number(&before, "source_ms"));
        for same in ["s3_key", "etag", "modified_at", "body_digest", "artifact_digest", "headers", "status"] {
            assert_eq!(meta.get(same), before.get(same), "{same}");
        }
        assert_eq!((world.origin.renders(), sandbox.total(metrics::UNCHANGED)), (2, 1));
        assert_eq!(world.objects().await.len(), 1);
        assert_eq!(world.published(PAGE).await.unwrap(), "one");
    }
}

#[tokio::test(start_paused = true)]
async fn weak_etag_or_date_does_not_keep_a_changed_page() {
    for validator in [WEAK, DATE] {
        let (world, sandbox) = published(PAGE, &[HTML, validator]).await;
        world.origin.answers(200, &[HTML, validator], "two");
        assert_eq!(regenerate(&world, &sandbox, PAGE, "changed").await, None);
        assert_eq!(world.published(PAGE).await.unwrap(), "two");
    }
}

#[tokio::test(start_paused = true)]
async fn rolled_back_page_is_not_kept_by_the_newer_versions_etag() {
    let (world, sandbox) = published(KEPT, &[HTML, ONE]).await;
    let first = text(&world.meta(KEPT).await.unwrap(), "version").parse().unwrap();
    world.origin.answers(200, &[HTML, TWO], "two");
    regenerate(&world, &sandbox, KEPT, "changed").await;
    pause(10).await;
    done(world.ledger().roll_back(&world.page(KEPT), &first).await.unwrap());
    assert_eq!(world.published(KEPT).await.unwrap(), "one");
    pause(10).await;
    done(world.ledger().unpin(&world.page(KEPT), world.now_ms()).await.unwrap());
    pause(10).await;
    // Its own validator, which the origin no longer has.
    assert_eq!(regenerate(&world, &sandbox, KEPT, "changed").await.as_deref(), Some(ONE.1));
    assert_eq!(world.published(KEPT).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn validators_are_not_sent_for_another_or_a_missing_body() {
    let (world, sandbox) = published(PAGE, &[HTML, ONE]).await;
    let meta = world.meta(PAGE).await.unwrap();
    // As an older version publishes: over the row, validators left as they are.
    let other_key = text(&meta, "s3_key").replace("acme/", "acme/other-");
    let by_older: Vec<(&str, AttributeValue)> = meta
        .iter()
        .filter(|(name, _)| !["pk", "sk", "s3_key"].contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value.clone()))
        .chain([("s3_key", s(&other_key))])
        .collect();
    world.put(&world.pk(PAGE), "META", &by_older).await;
    assert_eq!(regenerate(&world, &sandbox, PAGE, "changed").await, None);

    let (world, sandbox) = published(PAGE, &[HTML, ONE]).await;
    let lost = text(&world.meta(PAGE).await.unwrap(), "s3_key");
    world.delete_object(&lost).await;
    let message = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","reason":"changed"}}"#);
    world.send_with(&message, &[(attributes::LOST, &lost)]).await;
    sandbox.invoke().await;
    assert_eq!(world.origin.conditions(), [None, None]);
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn not_modified_is_judged_by_its_headers() {
    let (world, sandbox) = published(PAGE, &[HTML, ONE]).await;
    world.origin.answers(200, &[HTML, ONE, ("cache-control", "private")], "one");
    regenerate(&world, &sandbox, PAGE, "changed").await;
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "bypass_reason"), "private");

    let (world, sandbox) = published(PAGE, &[HTML, ONE]).await;
    world.origin.answers(200, &[HTML, ONE, ("x-shop", "new"), ("cache-control", "s-maxage=7")], "one");
    regenerate(&world, &sandbox, PAGE, "changed").await;
    let meta = world.meta(PAGE).await.unwrap();
    let header = meta["headers"].as_l().unwrap().iter().any(|header| header.as_s().unwrap() == "x-shop: new");
    assert!(header && number(&meta, "revalidate_seconds") == 7);
    // One without cache headers does not lengthen that life.
    pause(100).await;
    world.origin.answers(200, &[ONE], "one");
    regenerate(&world, &sandbox, PAGE, "changed").await;
    assert_eq!(number(&world.meta(PAGE).await.unwrap(), "revalidate_seconds"), 7);
}

#[tokio::test(start_paused = true)]
async fn not_modified_with_other_headers_publishes_the_same_object() {
    let (world, sandbox) = published(PAGE, &[HTML, ONE]).await;
    let before = world.meta(PAGE).await.unwrap();
    world.origin.answers(200, &[("content-type", "text/plain"), ONE], "one");
    assert_eq!(regenerate(&world, &sandbox, PAGE, "changed").await.as_deref(), Some(ONE.1));
    let meta = world.meta(PAGE).await.unwrap();
    assert!(meta["headers"].as_l().unwrap().iter().any(|header| header.as_s().unwrap() == "content-type: text/plain"));
    assert_eq!((meta["s3_key"] == before["s3_key"], world.objects().await.len()), (true, 1));
    assert!(number(&meta, "modified_at") > number(&before, "modified_at"));
    assert_eq!((sandbox.total(metrics::COMMITTED), sandbox.total(metrics::UNCHANGED)), (2, 0));
    // As a whole answer says the same.
    pause(10).await;
    world.origin.answers(200, &[("content-type", "text/plain"), TWO], "one");
    regenerate(&world, &sandbox, PAGE, "changed").await;
    assert_eq!((world.objects().await.len(), sandbox.total(metrics::UNCHANGED)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn another_deployment_sends_no_condition() {
    let (world, _) = published(PAGE, &[HTML, ONE]).await;
    let sandbox = world.sandbox_with(Make { deploy: 2, ..Make::default() });
    assert_eq!(regenerate(&world, &sandbox, PAGE, "changed").await, None);
}

#[tokio::test(start_paused = true)]
async fn aged_answer_does_not_complete_its_request() {
    let (world, sandbox) = published(PAGE, &[HTML, ONE]).await;
    // A cache in front of the origin confirms the old version, ten minutes after it was made.
    world.origin.answers(200, &[HTML, ONE, ("age", "600"), ("cache-control", "max-age=900")], "one");
    let id = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_ne!(world.status(PAGE, &id).await, "COMPLETED");
    world.origin.answers(200, &[HTML, TWO], "two");
    world.drain(&sandbox, std::time::Duration::from_secs(2_000)).await;
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

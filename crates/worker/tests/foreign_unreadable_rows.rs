//! Foreign rows that cannot be parsed do not prevent regeneration.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::domain::version::Version;
use everfresh_core::metrics;
use everfresh_testing::{World, decimal, list, n, pause, s, text};

const PAGE: &str = "/products/42";

type Row = Vec<(&'static str, AttributeValue)>;

fn foreign(replaced: &[(&'static str, AttributeValue)]) -> Row {
    let whole = [("s3_key", s("acme/foreign.html")), ("generated_at", n(1_700_000_000)), ("revalidate_seconds", n(60))];
    let kept = whole.into_iter().filter(|(name, _)| replaced.iter().all(|(other, _)| other != name));
    kept.chain(replaced.iter().cloned()).collect()
}

/// META rows without a version, each with a missing or invalid attribute.
fn unreadable() -> Vec<Row> {
    vec![
        foreign(&[("generated_at", decimal("-5"))]),
        foreign(&[("generated_at", s("yesterday"))]),
        foreign(&[("generated_at", decimal("99999999999999999999999999"))]),
        foreign(&[("etag", n(7))]),
        foreign(&[("ttl", s("soon"))]),
        foreign(&[("s3_key", list(vec![s("acme/x")]))]),
        foreign(&[("headers", s("none"))]),
        vec![("s3_key", s("acme/foreign.html")), ("generated_at", n(1_700_000_000))],
        vec![("current_sk", n(5))],
        vec![],
        foreign(&[("current_sk", s("VER#foreign")), ("revalidate_seconds", s("long"))]),
    ]
}

#[tokio::test(start_paused = true)]
async fn unreadable_foreign_row_is_replaced_by_the_next_render() {
    for (index, row) in unreadable().into_iter().enumerate() {
        for reason in ["changed", "expired"] {
            let world = World::new().await;
            let sandbox = world.sandbox().await;
            world.put(&world.pk(PAGE), "META", &row).await;
            let id = world.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","reason":"{reason}"}}"#)).await;
            sandbox.invoke().await;
            assert_eq!(sandbox.total(metrics::COMMITTED), 1, "{index} {reason}");
            assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "{index} {reason}");
            assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{index} {reason}");
            assert_eq!(world.queued_messages().await, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pointer_to_an_unreadable_version_row_is_replaced() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.put(&world.pk(PAGE), "META", &[("current_sk", s("VER#foreign"))]).await;
    world.put(&world.pk(PAGE), "VER#foreign", &foreign(&[("generated_at", s("yesterday"))])).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn unreadable_row_changed_during_the_render_is_not_overwritten() {
    for attribute in ["s3_key", "generated_at", "etag"] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.origin.takes(Duration::from_secs(5));
        world.put(&world.pk(PAGE), "META", &foreign(&[("ttl", s("soon"))])).await;
        world.enqueue(PAGE).await;
        let changed = foreign(&[("ttl", s("soon")), (attribute, s("newer"))]);
        tokio::join!(sandbox.invoke(), async {
            pause(2).await;
            world.put(&world.pk(PAGE), "META", &changed).await;
        });
        assert_eq!(sandbox.total(metrics::COMMITTED), 0, "{attribute}");
        assert_eq!(text(&world.meta(PAGE).await.unwrap(), attribute), "newer");
        // The next delivery reads the new row.
        world.drain(&sandbox, Duration::from_secs(600)).await;
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "{attribute}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_own_row_is_not_overwritten() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let version = Version::next(world.now_ms(), None, None, 7).to_string();
    let row = foreign(&[("version", s(&version)), ("generated_at", s("yesterday"))]);
    world.put(&world.pk(PAGE), "META", &row).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::COMMITTED), 0);
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "version"), version);
    assert_eq!(world.queued_messages().await, 1, "the message is not lost");
}

#[tokio::test(start_paused = true)]
async fn version_near_the_maximum_is_followed_by_a_valid_one() {
    for last in ["9999999999999998-ffffffff", "9999999999999999-00000000"] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.put(&world.pk(PAGE), "META", &foreign(&[("version", s(last))])).await;
        for content in ["one", "two", "three"] {
            world.origin.content(content);
            world.enqueue(PAGE).await;
            world.drain(&sandbox, Duration::from_secs(600)).await;
            assert_eq!(world.published(PAGE).await.as_deref(), Some(content), "{last}");
            pause(5).await;
        }
        assert!(text(&world.meta(PAGE).await.unwrap(), "version").as_str() > last);
    }
}

#[tokio::test(start_paused = true)]
async fn maximum_version_is_reported_and_not_overwritten() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.put(&world.pk(PAGE), "META", &foreign(&[("version", s("9999999999999999-ffffffff"))])).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::COMMITTED), 0);
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "version"), "9999999999999999-ffffffff");
    let error = world.ledger().lookup(&world.page(PAGE)).await.unwrap_err().to_string();
    assert!(error.contains("none can follow it"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn large_foreign_rows_between_ours_do_not_hide_ours() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    for number in 0..5 {
        // Between HEALTH and LOCK, and between LOCK and META.
        for prefix in ["INDEX", "LOG"] {
            let row = [("filler", s("x".repeat(390_000)))];
            world.put(&world.pk(PAGE), &format!("{prefix}#{number}"), &row).await;
        }
    }
    pause(5).await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("two"));
    assert_eq!(world.queued_messages().await, 0);
}

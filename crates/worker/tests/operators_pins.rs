//! Operator commands: pin, unpin, roll back, purge.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::freshness::Freshness;
use everfresh_core::ledger::Operation;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::operators::{EPSILON_MS, done};
use everfresh_testing::{World, n, number, pause, s, text};

const PAGE: &str = "/kept/1";
const LONG: Duration = Duration::from_secs(7_200);

#[tokio::test(start_paused = true)]
async fn rollback_survives_expired_requests_and_is_fresh_to_readers() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let versions = world.publish(&sandbox, PAGE, &["one", "two", "three"]).await;
    let old = world.row(&world.pk(PAGE), &versions[0].sk()).await.unwrap();
    let version = done(world.ledger().roll_back(&world.page(PAGE), &versions[0]).await.unwrap());
    assert!(version > versions[2], "a new version (I2)");
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(number(&meta, "source_ms"), number(&old, "source_ms"), "the source time stays the old version's");
    assert!(number(&meta, "generated_at") > number(&old, "generated_at"));
    assert_eq!(text(&meta, "current_sk"), versions[0].sk());
    assert!(world.lock(PAGE).await.is_none());
    let renders = world.origin.renders();
    for _ in 0..3 {
        pause(200).await;
        world.enqueue_as(PAGE, "expired").await;
        world.enqueue_as(PAGE, "prewarm").await;
        sandbox.invoke().await;
        assert_eq!(world.queued_messages().await, 0, "acked");
        assert_eq!(world.published(PAGE).await.unwrap(), "one");
        assert!(matches!(world.freshness(PAGE).await, Freshness::Fresh { .. }), "readers enqueue no request");
    }
    assert_eq!(world.origin.renders(), renders);
    assert!(!world.health(PAGE).await.contains_key("wanted_at_ms"));
}

#[tokio::test(start_paused = true)]
async fn change_while_pinned_is_regenerated_after_unpin() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let versions = world.publish(&sandbox, PAGE, &["one", "two"]).await;
    done(world.ledger().roll_back(&world.page(PAGE), &versions[0]).await.unwrap());
    pause(5).await;
    world.origin.content("three");
    let id = world.enqueue(PAGE).await;
    let sent_ms = world.now_ms();
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::PINNED), 1);
    assert_eq!(world.queued_messages().await, 0, "acked");
    assert_eq!(world.status(PAGE, &id).await, "absent", "no claim");
    assert_eq!(number(&world.health(PAGE).await, "wanted_at_ms"), sent_ms);
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    pause(30).await;
    done(world.ledger().unpin(&world.page(PAGE), world.now_ms() + EPSILON_MS).await.unwrap());
    let health = world.health(PAGE).await;
    assert!(!health.contains_key("pinned_at_ms") && !health.contains_key("wanted_at_ms"));
    // Even if the CLI crashes before it enqueues: the page is stale, so the next read enqueues.
    assert!(matches!(world.freshness(PAGE).await, Freshness::Stale { .. }));
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "three");
}

#[tokio::test(start_paused = true)]
async fn missing_page_cannot_be_pinned_purged_or_rolled_back() {
    let world = World::new().await;
    let (ledger, page) = (world.ledger(), world.page(PAGE));
    assert_eq!(ledger.pin(&page).await.unwrap(), Operation::NotFound);
    assert_eq!(ledger.purge(&page).await.unwrap(), Operation::NotFound);
    let version = "0001763270000123-0000beef".parse().unwrap();
    assert_eq!(ledger.roll_back(&page, &version).await.unwrap(), Operation::NotFound);
    assert_eq!(world.rows(&world.pk(PAGE)).await.len(), 0, "no lease is left");
}

#[tokio::test(start_paused = true)]
async fn operator_command_during_live_lease_changes_nothing() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let versions = world.publish(&sandbox, PAGE, &["one", "two"]).await;
    world.origin.takes(Duration::from_secs(20));
    world.origin.content("three");
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.invoke(), async {
        pause(5).await;
        let (ledger, page) = (world.ledger(), world.page(PAGE));
        let before = world.rows(&world.pk(PAGE)).await;
        assert!(matches!(ledger.pin(&page).await.unwrap(), Operation::Busy { .. }));
        assert!(matches!(ledger.purge(&page).await.unwrap(), Operation::Busy { .. }));
        assert!(matches!(ledger.unpin(&page, world.now_ms()).await.unwrap(), Operation::Busy { .. }));
        assert!(matches!(ledger.roll_back(&page, &versions[0]).await.unwrap(), Operation::Busy { .. }));
        assert_eq!(world.rows(&world.pk(PAGE)).await, before);
    });
    assert_eq!(world.published(PAGE).await.unwrap(), "three");
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Pin,
    RollBack,
    Purge,
}

#[tokio::test(start_paused = true)]
async fn render_in_flight_is_superseded_by_pin_rollback_and_purge() {
    for command in [Command::Pin, Command::RollBack, Command::Purge] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        let versions = world.publish(&sandbox, PAGE, &["one", "two"]).await;
        // Delayed between lookup and claim, so its lookup is outdated.
        sandbox.inject(On::next("PutItem"), Fault::Delay(Duration::from_secs(2)));
        world.origin.content("late");
        world.enqueue(PAGE).await;
        tokio::join!(sandbox.invoke(), async {
            pause(1).await;
            let (ledger, page) = (world.ledger(), world.page(PAGE));
            done(match command {
                Command::Pin => ledger.pin(&page).await.unwrap(),
                Command::RollBack => ledger.roll_back(&page, &versions[0]).await.unwrap(),
                Command::Purge => ledger.purge(&page).await.unwrap(),
            });
        });
        let stays = match command {
            Command::Pin | Command::Purge => "two",
            Command::RollBack => "one",
        };
        let published = world.published(PAGE).await.unwrap();
        assert_eq!(published, stays, "{command:?}");
        assert_eq!(sandbox.total(metrics::COMMITTED), 2, "{command:?}: only the first two");
        world.drain(&sandbox, LONG).await;
        assert_eq!(world.published(PAGE).await.unwrap(), stays, "{command:?}");
        let health = world.health(PAGE).await;
        assert!(health.contains_key("pinned_at_ms"), "{command:?}");
        assert!(world.lock(PAGE).await.is_none(), "{command:?}");
        assert!(world.dead_letters().await.is_empty(), "{command:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn purged_page_stays_gone_after_a_late_render() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    let late = world.sandbox().await;
    late.inject(On::every("UpdateItem"), Fault::Cut);
    world.origin.content("late");
    world.origin.takes(Duration::from_secs(45));
    world.enqueue(PAGE).await;
    tokio::join!(late.invoke(), async {
        pause(40).await;
        done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    });
    late.way.faults().clear();
    world.origin.takes(Duration::ZERO);
    assert_eq!(late.total(metrics::COMMITTED), 0);
    // No later request brings it back, whatever its reason.
    for reason in ["expired", "prewarm", "changed"] {
        world.enqueue_as(PAGE, reason).await;
        pause(5).await;
    }
    let renders = world.origin.renders();
    world.drain(&sandbox, LONG).await;
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(meta["tombstone"].as_bool(), Ok(&true));
    assert_eq!(number(&meta, "status"), 410);
    assert_eq!(world.freshness(PAGE).await, Freshness::Gone);
    assert_eq!(world.origin.renders(), renders);
    assert!(world.health(PAGE).await.contains_key("wanted_at_ms"), "the change is recorded");
    // Unpinning does.
    done(world.ledger().unpin(&world.page(PAGE), world.now_ms() + EPSILON_MS).await.unwrap());
    world.origin.content("back");
    world.enqueue(PAGE).await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "back");
    assert!(!world.meta(PAGE).await.unwrap().contains_key("tombstone"));
}

#[tokio::test(start_paused = true)]
async fn change_is_recorded_only_while_the_page_is_pinned() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    assert!(!world.ledger().record_wanted(&world.page(PAGE), 5).await.unwrap());
    assert!(world.health(PAGE).await.is_empty(), "no row is created");
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    // The worker reads the pin, and the page is unpinned while the write of the change is in
    // flight.
    pause(5).await;
    world.origin.content("two");
    sandbox.inject(On::next("UpdateItem"), Fault::Delay(Duration::from_secs(2)));
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.invoke(), async {
        pause(1).await;
        done(world.ledger().unpin(&world.page(PAGE), world.now_ms() + EPSILON_MS).await.unwrap());
    });
    assert!(!world.health(PAGE).await.contains_key("wanted_at_ms"));
    assert_eq!(world.queued_messages().await, 1, "not acked: the recorded change would never be read");
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn pinned_foreign_row_loses_its_ttl() {
    let world = World::new().await;
    let object = world.clean.s3.put_object().bucket(&world.stack.bucket).key("acme/html/1");
    object.body(b"foreign".to_vec().into()).send().await.unwrap();
    let row = [
        ("s3_key", s("acme/html/1")),
        ("generated_at", n(world.now_ms() / 1000)),
        ("revalidate_seconds", n(60)),
        ("ttl", n(world.now_ms() / 1000 + 60)),
    ];
    world.put(&world.pk(PAGE), "META", &row).await;
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    let meta = world.meta(PAGE).await.unwrap();
    assert!(!meta.contains_key("ttl"), "it stays until unpinned");
    assert!(meta.contains_key("version"));
    assert_eq!(world.published(PAGE).await.unwrap(), "foreign");
}

/// By it the state of a request is computed: the version that is rolled back showed its change.
#[tokio::test(start_paused = true)]
async fn newest_sent_time_survives_a_pin_and_no_rollback() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let versions = world.publish(&sandbox, PAGE, &["one", "two", "two"]).await;
    let newest = async || world.meta(PAGE).await.unwrap().get("newest_sent_ms").cloned();
    let unchanged = newest().await;
    assert!(unchanged.is_some());
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    assert_eq!(newest().await, unchanged);
    done(world.ledger().roll_back(&world.page(PAGE), &versions[0]).await.unwrap());
    assert_eq!(newest().await, None);
}

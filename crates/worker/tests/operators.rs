//! What operators and producers do to pages beside regeneration: pin, unpin, roll back, purge, invalidate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::freshness::{Freshness, Policy, freshness};
use everfresh_core::domain::invalidations::{Invalidations, Prefix};
use everfresh_core::domain::page_key::{CanonicalPath, Tenant};
use everfresh_core::domain::version::Version;
use everfresh_core::ledger::Operation;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Sandbox, World, n, number, pause, s, text};

const PAGE: &str = "/kept/1";
const TAGGED: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);
const EPSILON_MS: u64 = 2_000;

/// A page with history, published in these versions, ten seconds apart.
async fn published(world: &World, sandbox: &Sandbox, contents: &[&str]) -> Vec<Version> {
    let mut versions = Vec::new();
    for content in contents {
        world.origin.content(content);
        world.enqueue(PAGE).await;
        sandbox.turn().await;
        versions.push(text(&world.meta(PAGE).await.unwrap(), "version").parse().unwrap());
        pause(10).await;
    }
    versions
}

fn done(operation: Operation) -> Version {
    match operation {
        Operation::Done(version) => version,
        Operation::Busy { .. } | Operation::Superseded | Operation::NotFound => panic!("{operation:?}"),
    }
}

/// What a reader is told about the page now.
async fn seen_by_readers(world: &World, path: &str) -> Freshness {
    let state = world.ledger().lookup(&world.page(path)).await.unwrap();
    let policy = Policy { deploy: 1, max_stale_seconds: None, epsilon_ms: EPSILON_MS };
    freshness(state.meta.as_ref(), &state.health, &Invalidations::default(), &policy, world.now_ms())
}

fn inval() -> String {
    Tenant::parse("acme").unwrap().inval_pk()
}

async fn watermark(world: &World, sk: &str) -> u64 {
    number(&world.row(&inval(), sk).await.unwrap(), "watermark_ms")
}

#[tokio::test(start_paused = true)]
async fn a_page_that_was_rolled_back_stays_so_for_readers_and_expired_requests() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let versions = published(&world, &sandbox, &["one", "two", "three"]).await;
    let old = world.row(&world.pk(PAGE), &versions[0].sk()).await.unwrap();
    let version = done(world.ledger().roll_back(&world.page(PAGE), &versions[0]).await.unwrap());
    assert!(version > versions[2], "a new version (I2)");
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(number(&meta, "source_ms"), number(&old, "source_ms"), "it has seen nothing newer");
    assert!(number(&meta, "generated_at") > number(&old, "generated_at"));
    assert_eq!(text(&meta, "current_sk"), versions[0].sk());
    assert!(world.lock(PAGE).await.is_none());
    let renders = world.origin.renders();
    for _ in 0..3 {
        pause(200).await;
        world.enqueue_as(PAGE, "expired").await;
        world.enqueue_as(PAGE, "prewarm").await;
        sandbox.turn().await;
        assert_eq!(world.waiting().await, 0, "acked");
        assert_eq!(world.published(PAGE).await.unwrap(), "one");
        assert!(matches!(seen_by_readers(&world, PAGE).await, Freshness::Fresh { .. }), "readers do not ask");
    }
    assert_eq!(world.origin.renders(), renders);
    assert!(!world.health(PAGE).await.contains_key("wanted_at_ms"));
}

#[tokio::test(start_paused = true)]
async fn a_change_while_pinned_is_remembered_and_regenerated_after_unpin() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let versions = published(&world, &sandbox, &["one", "two"]).await;
    done(world.ledger().roll_back(&world.page(PAGE), &versions[0]).await.unwrap());
    pause(5).await;
    world.origin.content("three");
    let id = world.enqueue(PAGE).await;
    let sent_ms = world.now_ms();
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::PINNED), 1);
    assert_eq!(world.waiting().await, 0, "acked");
    assert_eq!(world.status(PAGE, &id).await, "absent", "no claim");
    assert_eq!(number(&world.health(PAGE).await, "wanted_at_ms"), sent_ms);
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    pause(30).await;
    done(world.ledger().unpin(&world.page(PAGE), world.now_ms() + EPSILON_MS).await.unwrap());
    let health = world.health(PAGE).await;
    assert!(!health.contains_key("pinned_at_ms") && !health.contains_key("wanted_at_ms"));
    // Even if the operator's tool dies before it enqueues: the page is stale, and the next reader asks.
    assert!(matches!(seen_by_readers(&world, PAGE).await, Freshness::Stale { .. }));
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "three");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_exist_can_be_neither_pinned_nor_purged_nor_rolled_back() {
    let world = World::new().await;
    let (ledger, page) = (world.ledger(), world.page(PAGE));
    assert_eq!(ledger.pin(&page).await.unwrap(), Operation::NotFound);
    assert_eq!(ledger.purge(&page).await.unwrap(), Operation::NotFound);
    let version = "0001763270000123-0000beef".parse().unwrap();
    assert_eq!(ledger.roll_back(&page, &version).await.unwrap(), Operation::NotFound);
    assert_eq!(world.rows(&world.pk(PAGE)).await.len(), 0, "and leaves no lease behind");
}

#[tokio::test(start_paused = true)]
async fn an_operator_who_meets_a_live_lease_changes_nothing() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let versions = published(&world, &sandbox, &["one", "two"]).await;
    world.origin.takes(Duration::from_secs(20));
    world.origin.content("three");
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.turn(), async {
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
enum Verb {
    Pin,
    RollBack,
    Purge,
}

#[tokio::test(start_paused = true)]
async fn a_render_in_flight_is_superseded_by_pin_rollback_and_purge() {
    for verb in [Verb::Pin, Verb::RollBack, Verb::Purge] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        let versions = published(&world, &sandbox, &["one", "two"]).await;
        // Looked up, and then held up on its way to the claim: what it saw is not what is there.
        sandbox.inject(On::next("PutItem"), Fault::Delay(Duration::from_secs(2)));
        world.origin.content("late");
        world.enqueue(PAGE).await;
        tokio::join!(sandbox.turn(), async {
            pause(1).await;
            let (ledger, page) = (world.ledger(), world.page(PAGE));
            done(match verb {
                Verb::Pin => ledger.pin(&page).await.unwrap(),
                Verb::RollBack => ledger.roll_back(&page, &versions[0]).await.unwrap(),
                Verb::Purge => ledger.purge(&page).await.unwrap(),
            });
        });
        let stays = match verb {
            Verb::Pin | Verb::Purge => "two",
            Verb::RollBack => "one",
        };
        let published = world.published(PAGE).await.unwrap();
        assert_eq!(published, stays, "{verb:?}");
        assert_eq!(sandbox.total(metrics::COMMITTED), 2, "{verb:?}: those before");
        world.drain(&sandbox, LONG).await;
        assert_eq!(world.published(PAGE).await.unwrap(), stays, "{verb:?}");
        let health = world.health(PAGE).await;
        assert!(health.contains_key("pinned_at_ms"), "{verb:?}");
        assert!(world.lock(PAGE).await.is_none(), "{verb:?}");
        assert!(world.dead_letters().await.is_empty(), "{verb:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_purged_page_stays_gone_when_a_late_worker_comes_back() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    published(&world, &sandbox, &["one"]).await;
    let late = world.sandbox().await;
    late.inject(On::every("UpdateItem"), Fault::Cut);
    world.origin.content("late");
    world.origin.takes(Duration::from_secs(45));
    world.enqueue(PAGE).await;
    tokio::join!(late.turn(), async {
        pause(40).await;
        done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    });
    late.way.faults().clear();
    world.origin.takes(Duration::ZERO);
    assert_eq!(late.total(metrics::COMMITTED), 0);
    // And whoever asks for it, for whatever reason.
    for reason in ["expired", "prewarm", "changed"] {
        world.enqueue_as(PAGE, reason).await;
        pause(5).await;
    }
    let renders = world.origin.renders();
    world.drain(&sandbox, LONG).await;
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(meta["tombstone"].as_bool(), Ok(&true));
    assert_eq!(number(&meta, "status"), 410);
    assert_eq!(seen_by_readers(&world, PAGE).await, Freshness::Gone);
    assert_eq!(world.origin.renders(), renders);
    assert!(world.health(PAGE).await.contains_key("wanted_at_ms"), "the change is remembered");
    // Until an operator brings it back.
    done(world.ledger().unpin(&world.page(PAGE), world.now_ms() + EPSILON_MS).await.unwrap());
    world.origin.content("back");
    world.enqueue(PAGE).await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "back");
    assert!(!world.meta(PAGE).await.unwrap().contains_key("tombstone"));
}

#[tokio::test(start_paused = true)]
async fn a_wish_is_recorded_only_while_the_pin_is_there() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    published(&world, &sandbox, &["one"]).await;
    assert!(!world.ledger().record_wanted(&world.page(PAGE), 5).await.unwrap());
    assert!(world.health(PAGE).await.is_empty(), "no row is made for it");
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    // The worker sees the pin, and while its wish is on the way the pin goes.
    pause(5).await;
    world.origin.content("two");
    sandbox.inject(On::next("UpdateItem"), Fault::Delay(Duration::from_secs(2)));
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.turn(), async {
        pause(1).await;
        done(world.ledger().unpin(&world.page(PAGE), world.now_ms() + EPSILON_MS).await.unwrap());
    });
    assert!(!world.health(PAGE).await.contains_key("wanted_at_ms"));
    assert_eq!(world.waiting().await, 1, "not acked: nobody would have looked at the wish");
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn a_pinned_foreign_row_loses_the_ttl_that_would_delete_it() {
    let world = World::new().await;
    let object = world.clean.s3.put_object().bucket(&world.stack.bucket).key("acme/html/1");
    object.body(b"theirs".to_vec().into()).send().await.unwrap();
    let row = [
        ("s3_key", s("acme/html/1")),
        ("generated_at", n(world.now_ms() / 1000)),
        ("revalidate_seconds", n(60)),
        ("ttl", n(world.now_ms() / 1000 + 60)),
    ];
    world.put(&world.pk(PAGE), "META", &row).await;
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    let meta = world.meta(PAGE).await.unwrap();
    assert!(!meta.contains_key("ttl"), "held fast until unpinned");
    assert!(meta.contains_key("version"));
    assert_eq!(world.published(PAGE).await.unwrap(), "theirs");
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_path_is_stale_for_us_and_for_other_languages() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    published(&world, &sandbox, &["one"]).await;
    let before = world.meta(PAGE).await.unwrap();
    let at_ms = world.now_ms() + EPSILON_MS;
    world.ledger().invalidate_path(&world.page(PAGE), at_ms).await.unwrap();
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(number(&meta, "revalidate_seconds"), 0);
    assert_eq!(text(&meta, "version"), text(&before, "version"), "nothing is published by it");
    assert_eq!(number(&world.health(PAGE).await, "path_watermark_ms"), at_ms);
    // An older one, delayed: watermarks only rise.
    world.ledger().invalidate_path(&world.page(PAGE), at_ms - 5_000).await.unwrap();
    assert_eq!(number(&world.health(PAGE).await, "path_watermark_ms"), at_ms);
    pause(10).await;
    world.origin.content("two");
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two", "rendered although young");
    assert!(number(&world.meta(PAGE).await.unwrap(), "revalidate_seconds") > 0);
    assert!(matches!(seen_by_readers(&world, PAGE).await, Freshness::Fresh { .. }));
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.origin.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn unpinning_does_not_lower_the_paths_watermark() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    published(&world, &sandbox, &["one"]).await;
    done(world.ledger().pin(&world.page(PAGE)).await.unwrap());
    let at_ms = world.now_ms() + EPSILON_MS;
    world.ledger().invalidate_path(&world.page(PAGE), at_ms).await.unwrap();
    // By an operator whose clock is a little behind.
    done(world.ledger().unpin(&world.page(PAGE), at_ms - 1_500).await.unwrap());
    assert_eq!(number(&world.health(PAGE).await, "path_watermark_ms"), at_ms);
}

#[tokio::test(start_paused = true)]
async fn a_path_without_a_page_can_be_invalidated_and_gets_none_by_that() {
    let world = World::new().await;
    world.ledger().invalidate_path(&world.page(PAGE), 7_000).await.unwrap();
    assert!(world.meta(PAGE).await.is_none());
    assert_eq!(number(&world.health(PAGE).await, "path_watermark_ms"), 7_000);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_during_a_render_does_not_refuse_it_and_is_not_forgotten() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    published(&world, &sandbox, &["one"]).await;
    world.origin.takes(Duration::from_secs(10));
    world.origin.content("read before");
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.turn(), async {
        pause(5).await;
        world.origin.content("read after");
        world.ledger().invalidate_path(&world.page(PAGE), world.now_ms() + EPSILON_MS).await.unwrap();
    });
    assert_eq!(world.published(PAGE).await.unwrap(), "read before");
    assert!(matches!(seen_by_readers(&world, PAGE).await, Freshness::Stale { .. }));
    pause(5).await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "read after");
}

#[tokio::test(start_paused = true)]
async fn an_expired_request_renders_a_page_whose_tag_was_invalidated_although_it_is_young() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(TAGGED).await;
    sandbox.turn().await;
    pause(5).await;
    world.origin.content("two");
    world.send(r#"{"v":1,"tenant":"acme","tag":"product-42"}"#).await;
    let sent_ms = world.now_ms();
    sandbox.turn().await;
    assert_eq!((watermark(&world, "TAG#product-42").await, watermark(&world, "EPOCH").await), (sent_ms, sent_ms));
    assert_eq!(world.origin.renders(), 1, "a tag costs no render");
    pause(3).await;
    world.enqueue_as(TAGGED, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.published(TAGGED).await.unwrap(), "two");
    pause(3).await;
    world.enqueue_as(TAGGED, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.origin.renders(), 2, "and is fresh again");
    // Another page's tag is no business of this one.
    world.send(r#"{"v":1,"tenant":"acme","tag":"product-43"}"#).await;
    sandbox.turn().await;
    pause(3).await;
    world.enqueue_as(TAGGED, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.origin.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_prefix_makes_the_pages_below_it_stale_and_no_others() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(TAGGED).await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    pause(5).await;
    let acme = Tenant::parse("acme").unwrap();
    let prefix = Prefix::of(&CanonicalPath::stored("/products").unwrap());
    let at_ms = world.now_ms() + EPSILON_MS;
    world.ledger().invalidate_prefix(&acme, &prefix, at_ms).await.unwrap();
    world.ledger().invalidate_prefix(&acme, &prefix, at_ms - 1_000).await.unwrap();
    assert_eq!((watermark(&world, "PREFIX#/products").await, watermark(&world, "EPOCH").await), (at_ms, at_ms));
    pause(5).await;
    world.origin.content("two");
    world.enqueue_as(TAGGED, "expired").await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(world.published(TAGGED).await.unwrap(), "two");
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn watermarks_rise_to_the_moment_of_sending_and_never_fall() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let tag = |tag: &str| format!(r#"{{"v":1,"tenant":"acme","tag":"{tag}"}}"#);
    let old_id = world.send(&tag("products")).await;
    let old_ms = world.now_ms();
    let old = sandbox.receive().await;
    pause(10).await;
    world.send(&tag("products")).await;
    let new_ms = world.now_ms();
    sandbox.turn().await;
    assert_eq!(watermark(&world, "TAG#products").await, new_ms);
    // The older one comes late.
    assert!(sandbox.handle(old.clone(), Duration::from_secs(60)).await.unwrap().is_empty());
    assert_eq!((watermark(&world, "TAG#products").await, watermark(&world, "EPOCH").await), (new_ms, new_ms));
    assert_eq!(text(&world.row(&inval(), &format!("REQ#{old_id}")).await.unwrap(), "status"), "COMPLETED");
    // And once more.
    let before = world.rows(&inval()).await;
    assert!(sandbox.handle(old, Duration::from_secs(60)).await.unwrap().is_empty());
    assert_eq!(world.rows(&inval()).await, before);
    assert_eq!(sandbox.total(metrics::REPLAYED), 1);
    // An older message for another tag raises that tag alone.
    assert!(old_ms < new_ms);
    pause(10).await;
    let late = world.send(&tag("late")).await;
    let late_ms = world.now_ms();
    let event = sandbox.receive().await;
    pause(10).await;
    world.send(&tag("products")).await;
    let newest_ms = world.now_ms();
    sandbox.turn().await;
    assert!(sandbox.handle(event, Duration::from_secs(60)).await.unwrap().is_empty());
    assert_eq!((watermark(&world, "TAG#late").await, watermark(&world, "EPOCH").await), (late_ms, newest_ms));
    assert!(world.row(&inval(), &format!("REQ#{late}")).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_tag_request_whose_answer_is_lost_is_done_once() {
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
async fn one_key_for_two_tags_is_refused_and_the_second_tag_stays_as_it_was() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(r#"{"v":1,"tenant":"acme","tag":"products","idempotency_key":"k"}"#).await;
    sandbox.turn().await;
    let before = world.rows(&inval()).await;
    pause(5).await;
    world.send(r#"{"v":1,"tenant":"acme","tag":"others","idempotency_key":"k"}"#).await;
    sandbox.turn().await;
    assert_eq!(world.rows(&inval()).await, before);
    assert_eq!(sandbox.total(metrics::HASH_MISMATCHES), 1);
    assert_eq!(world.dead_letters().await.len(), 1);
    assert_eq!(world.waiting().await, 0);
}

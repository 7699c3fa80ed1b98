//! Other languages' helpers, which write the same table.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Item, World, n, number, pause, s, text};

const PAGE: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

/// Another language's helper.
struct Helper<'w> {
    world: &'w World,
    token: String,
}

impl<'w> Helper<'w> {
    /// Takes the page's lease, if it is free.
    async fn acquire(world: &'w World, lease_s: u64) -> Option<Self> {
        let now_s = world.now_ms() / 1000;
        let token = format!("helper-{:x}", fastrand::u64(..));
        let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
        let put = put
            .item("pk", s(world.pk(PAGE)))
            .item("sk", s("LOCK"))
            .item("lease_token", s(&token))
            .item("lease_expires_at", n(now_s + lease_s))
            .item("ttl", n(now_s + lease_s + 3600))
            .condition_expression("attribute_not_exists(pk) OR lease_expires_at <= :now")
            .expression_attribute_values(":now", n(now_s));
        put.send().await.ok().map(|_| Self { world, token })
    }

    /// Replaces META whole and deletes the lease, in one transaction of two. Returns whether it was let.
    async fn commit(self, body: &str) -> bool {
        let world = self.world;
        let now_s = world.now_ms() / 1000;
        let key = format!("acme/html/{:x}.html", fastrand::u64(..));
        let object = world.clean.s3.put_object().bucket(&world.stack.bucket).key(&key);
        object.body(body.as_bytes().to_vec().into()).send().await.unwrap();
        let put = Put::builder()
            .table_name(&world.stack.table)
            .item("pk", s(world.pk(PAGE)))
            .item("sk", s("META"))
            .item("s3_key", s(&key))
            .item("generated_at", n(now_s))
            .item("revalidate_seconds", n(60))
            .item("etag", s(format!("\"{body}\"")))
            .item("ttl", n(now_s + 86_400))
            .build();
        let delete = Delete::builder()
            .table_name(&world.stack.table)
            .key("pk", s(world.pk(PAGE)))
            .key("sk", s("LOCK"))
            .condition_expression("lease_token = :tok AND lease_expires_at > :now")
            .expression_attribute_values(":tok", s(&self.token))
            .expression_attribute_values(":now", n(now_s))
            .build();
        let commit = world.clean.dynamodb.transact_write_items();
        let commit = commit.transact_items(TransactWriteItem::builder().put(put.unwrap()).build());
        let commit = commit.transact_items(TransactWriteItem::builder().delete(delete.unwrap()).build());
        commit.send().await.is_ok()
    }
}

fn version(meta: &Item) -> Option<String> {
    meta.get("version").map(|version| version.as_s().unwrap().clone())
}

#[tokio::test(start_paused = true)]
async fn two_hundred_rounds_beside_another_languages_helper_break_nothing() {
    let mut chance = fastrand::Rng::with_seed(42);
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let mut last_version: Option<String> = None;
    let (mut foreign, mut own) = (0, 0);
    for round in 0..200 {
        let content = format!("ours {round}");
        world.origin.content(&content);
        world.origin.takes(Duration::from_secs(chance.u64(0..4)));
        match chance.u32(0..5) {
            // They publish; what changes before or after, we render all the same.
            0 | 1 => {
                if let Some(helper) = Helper::acquire(&world, 30).await {
                    pause(chance.u64(0..3)).await;
                    assert!(helper.commit(&format!("theirs {round}")).await);
                    let meta = world.meta(PAGE).await.unwrap();
                    assert_eq!(version(&meta), None);
                    foreign += 1;
                    last_version = None;
                }
            }
            // We publish.
            2 => {
                let id = world.enqueue(PAGE).await;
                world.drain(&sandbox, LONG).await;
                assert_eq!(world.published(PAGE).await.unwrap(), content);
                assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
                own += 1;
            }
            // We come while they hold the lease, wait, and publish after them.
            3 => {
                let helper = Helper::acquire(&world, 30).await.unwrap();
                let id = world.enqueue(PAGE).await;
                sandbox.turn().await;
                assert_eq!(world.status(PAGE, &id).await, "absent", "busy: no writes");
                assert!(helper.commit(&format!("theirs {round}")).await);
                last_version = None;
                world.drain(&sandbox, LONG).await;
                assert_eq!(world.published(PAGE).await.unwrap(), content, "a foreign row covers no change");
                assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
                (foreign, own) = (foreign + 1, own + 1);
            }
            // They come while we hold it.
            _ => {
                world.origin.takes(Duration::from_secs(5));
                world.enqueue(PAGE).await;
                tokio::join!(sandbox.turn(), async {
                    pause(2).await;
                    assert!(Helper::acquire(&world, 30).await.is_none(), "our lease is respected");
                });
                world.drain(&sandbox, LONG).await;
                assert_eq!(world.published(PAGE).await.unwrap(), content);
                own += 1;
            }
        }
        if let Some(meta) = world.meta(PAGE).await {
            // Panics if META points at nothing (I4).
            world.published(PAGE).await.unwrap();
            if let Some(version) = version(&meta) {
                assert!(last_version.as_ref().is_none_or(|last| version >= *last), "round {round}");
                assert!(!meta.contains_key("ttl"), "a foreign ttl does not outlive our commit");
                last_version = Some(version);
            }
        }
        assert!(world.lock(PAGE).await.is_none());
        assert_eq!(world.waiting().await, 0);
        pause(chance.u64(3..10)).await;
    }
    assert!(foreign > 50 && own > 50, "{foreign} foreign and {own} own commits");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_helper_that_publishes_after_our_lease_ran_out_is_not_overwritten_by_the_late_render() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("UpdateItem"), Fault::Cut);
    world.origin.takes(Duration::from_secs(45));
    let id = world.enqueue(PAGE).await;
    tokio::join!(sandbox.turn(), async {
        pause(40).await;
        let helper = Helper::acquire(&world, 30).await.expect("our lease has run out");
        assert!(helper.commit("theirs").await);
    });
    sandbox.way.faults().clear();
    assert_eq!(sandbox.total(metrics::SUPERSEDED), 1);
    assert_eq!(world.published(PAGE).await.unwrap(), "theirs");
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one", "the change is not covered by theirs");
    let record = world.req(PAGE, &id).await.unwrap();
    assert_eq!(number(&record, "attempts"), 1, "being superseded is no attempt");
}

#[tokio::test(start_paused = true)]
async fn two_foreign_commits_of_one_second_are_told_apart_by_their_etag() {
    let world = World::new().await;
    let helper = Helper::acquire(&world, 30).await.unwrap();
    assert!(helper.commit("theirs").await);
    let sandbox = world.sandbox().await;
    world.origin.takes(Duration::from_secs(5));
    world.enqueue(PAGE).await;
    let mut meta = world.meta(PAGE).await.unwrap();
    tokio::join!(sandbox.turn(), async {
        pause(2).await;
        meta.insert("etag".into(), s("\"other\""));
        let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
        put.set_item(Some(meta.clone())).send().await.unwrap();
    });
    assert_eq!(sandbox.total(metrics::SUPERSEDED), 1);
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "etag"), "\"other\"");
}

#[tokio::test(start_paused = true)]
async fn a_pointer_that_a_helper_moves_during_our_render_is_not_overwritten() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    let before = version(&world.meta(PAGE).await.unwrap());
    pause(10).await;
    world.origin.content("two");
    world.origin.takes(Duration::from_secs(5));
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.turn(), async {
        pause(2).await;
        // The pointer alone: our version stays beside it.
        let update = world.clean.dynamodb.update_item().table_name(&world.stack.table);
        let update = update.key("pk", s(world.pk(PAGE))).key("sk", s("META"));
        let update = update.update_expression("SET current_sk = :sk").expression_attribute_values(":sk", s("VER#abc"));
        update.send().await.unwrap();
    });
    assert_eq!(sandbox.total(metrics::SUPERSEDED), 1);
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!((version(&meta), text(&meta, "current_sk").as_str()), (before, "VER#abc"));
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn a_fresh_foreign_row_satisfies_an_expired_request_and_no_changed_one() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    pause(10).await;
    assert!(Helper::acquire(&world, 30).await.unwrap().commit("theirs").await);
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::COMMITTED), 1, "it may have read before the change");
    pause(5).await;
    assert!(Helper::acquire(&world, 30).await.unwrap().commit("theirs").await);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::ALREADY_COVERED), 1);
    assert_eq!(world.published(PAGE).await.unwrap(), "theirs");
}

#[tokio::test(start_paused = true)]
async fn attributes_that_we_do_not_know_survive_our_commit() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    let mut meta = world.meta(PAGE).await.unwrap();
    meta.insert("added_later".into(), s("kept"));
    let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
    put.set_item(Some(meta)).send().await.unwrap();
    pause(5).await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(text(&meta, "added_later"), "kept");
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn a_row_of_a_newer_layout_is_left_alone_and_the_message_waits() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    let mut meta = world.meta(PAGE).await.unwrap();
    meta.insert("schema".into(), n(2));
    let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
    put.set_item(Some(meta)).send().await.unwrap();
    let before = world.rows(&world.pk(PAGE)).await;
    pause(5).await;
    for reason in ["changed", "expired"] {
        world.enqueue_as(PAGE, reason).await;
    }
    sandbox.turn().await;
    assert_eq!(world.rows(&world.pk(PAGE)).await, before);
    assert_eq!(world.waiting().await, 2, "they wait for the newer worker");
    assert_eq!(world.origin.renders(), 1);
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_ttl_of_a_published_row_is_ignored() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    let mut meta = world.meta(PAGE).await.unwrap();
    meta.insert("ttl".into(), n(world.now_ms() / 1000 - 10));
    let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
    put.set_item(Some(meta)).send().await.unwrap();
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::ALREADY_COVERED), 1, "it is there and fresh");
    pause(5).await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert!(!world.meta(PAGE).await.unwrap().contains_key("ttl"), "and our commit takes it away");
}

#[tokio::test(start_paused = true)]
async fn pointer_set_on_a_foreign_row_during_a_render_is_not_overwritten() {
    let world = World::new().await;
    assert!(Helper::acquire(&world, 30).await.unwrap().commit("theirs").await);
    let sandbox = world.sandbox().await;
    world.origin.takes(Duration::from_secs(5));
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.turn(), async {
        pause(2).await;
        // Another helper keeps versions, and moves the pointer alone.
        let update = world.clean.dynamodb.update_item().table_name(&world.stack.table);
        let update = update.key("pk", s(world.pk(PAGE))).key("sk", s("META")).update_expression("SET current_sk = :sk");
        update.expression_attribute_values(":sk", s("VER#theirs")).send().await.unwrap();
    });
    assert_eq!(sandbox.total(metrics::COMMITTED), 0);
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "current_sk"), "VER#theirs");
}

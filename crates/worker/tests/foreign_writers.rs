//! Foreign writers on the same table.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Item, World, n, number, pause, s, text};

const PAGE: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

/// A foreign writer that holds the page's lease.
struct ForeignWriter<'w> {
    world: &'w World,
    token: String,
}

impl<'w> ForeignWriter<'w> {
    /// Acquires the page's lease, if it is free.
    async fn acquire(world: &'w World, lease_s: u64) -> Option<Self> {
        let now_s = world.now_ms() / 1000;
        let token = format!("foreign-{:x}", fastrand::u64(..));
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

    /// Replaces META and deletes the lease in one transaction. Returns whether it succeeded.
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
async fn two_hundred_rounds_with_a_foreign_writer_break_nothing() {
    let mut random = fastrand::Rng::with_seed(42);
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let mut last_version: Option<String> = None;
    let (mut foreign, mut own) = (0, 0);
    for round in 0..200 {
        let content = format!("own {round}");
        world.origin.content(&content);
        world.origin.takes(Duration::from_secs(random.u64(0..4)));
        match random.u32(0..5) {
            // The foreign writer publishes; this covers none of our changes.
            0 | 1 => {
                if let Some(writer) = ForeignWriter::acquire(&world, 30).await {
                    pause(random.u64(0..3)).await;
                    assert!(writer.commit(&format!("foreign {round}")).await);
                    let meta = world.meta(PAGE).await.unwrap();
                    assert_eq!(version(&meta), None);
                    foreign += 1;
                    last_version = None;
                }
            }
            // Our worker publishes.
            2 => {
                let id = world.enqueue(PAGE).await;
                world.drain(&sandbox, LONG).await;
                assert_eq!(world.published(PAGE).await.unwrap(), content);
                assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
                own += 1;
            }
            // Our worker waits for the foreign writer's lease and publishes after it.
            3 => {
                let writer = ForeignWriter::acquire(&world, 30).await.unwrap();
                let id = world.enqueue(PAGE).await;
                sandbox.invoke().await;
                assert_eq!(world.status(PAGE, &id).await, "absent", "busy: no writes");
                assert!(writer.commit(&format!("foreign {round}")).await);
                last_version = None;
                world.drain(&sandbox, LONG).await;
                assert_eq!(world.published(PAGE).await.unwrap(), content, "a foreign row covers no change");
                assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
                (foreign, own) = (foreign + 1, own + 1);
            }
            // The foreign writer tries to acquire the lease while our worker holds it.
            _ => {
                world.origin.takes(Duration::from_secs(5));
                world.enqueue(PAGE).await;
                tokio::join!(sandbox.invoke(), async {
                    pause(2).await;
                    assert!(ForeignWriter::acquire(&world, 30).await.is_none(), "our lease is respected");
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
                assert!(!meta.contains_key("ttl"), "our commit removes a foreign ttl");
                last_version = Some(version);
            }
        }
        assert!(world.lock(PAGE).await.is_none());
        assert_eq!(world.queued_messages().await, 0);
        pause(random.u64(3..10)).await;
    }
    assert!(foreign > 50 && own > 50, "{foreign} foreign and {own} own commits");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn late_render_does_not_overwrite_a_foreign_commit() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("UpdateItem"), Fault::Cut);
    world.origin.takes(Duration::from_secs(45));
    let id = world.enqueue(PAGE).await;
    tokio::join!(sandbox.invoke(), async {
        pause(40).await;
        let writer = ForeignWriter::acquire(&world, 30).await.expect("our lease has expired");
        assert!(writer.commit("foreign").await);
    });
    sandbox.way.faults().clear();
    assert_eq!(sandbox.total(metrics::SUPERSEDED), 1);
    assert_eq!(world.published(PAGE).await.unwrap(), "foreign");
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one", "the foreign commit does not cover the change");
    let record = world.req(PAGE, &id).await.unwrap();
    assert_eq!(number(&record, "attempts"), 1, "being superseded counts as no attempt");
}

#[tokio::test(start_paused = true)]
async fn foreign_commits_in_one_second_are_distinguished_by_etag() {
    let world = World::new().await;
    let writer = ForeignWriter::acquire(&world, 30).await.unwrap();
    assert!(writer.commit("foreign").await);
    let sandbox = world.sandbox().await;
    world.origin.takes(Duration::from_secs(5));
    world.enqueue(PAGE).await;
    let mut meta = world.meta(PAGE).await.unwrap();
    tokio::join!(sandbox.invoke(), async {
        pause(2).await;
        meta.insert("etag".into(), s("\"other\""));
        let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
        put.set_item(Some(meta.clone())).send().await.unwrap();
    });
    assert_eq!(sandbox.total(metrics::SUPERSEDED), 1);
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "etag"), "\"other\"");
}

#[tokio::test(start_paused = true)]
async fn foreign_pointer_update_during_render_is_not_overwritten() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let before = version(&world.meta(PAGE).await.unwrap());
    pause(10).await;
    world.origin.content("two");
    world.origin.takes(Duration::from_secs(5));
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.invoke(), async {
        pause(2).await;
        // Only the pointer: our version attribute stays.
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
async fn fresh_foreign_row_covers_expired_but_not_changed_requests() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    pause(10).await;
    assert!(ForeignWriter::acquire(&world, 30).await.unwrap().commit("foreign").await);
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::COMMITTED), 1, "its content may predate the change");
    pause(5).await;
    assert!(ForeignWriter::acquire(&world, 30).await.unwrap().commit("foreign").await);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::ALREADY_COVERED), 1);
    assert_eq!(world.published(PAGE).await.unwrap(), "foreign");
}

#[tokio::test(start_paused = true)]
async fn unknown_attributes_survive_our_commit() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let mut meta = world.meta(PAGE).await.unwrap();
    meta.insert("added_later".into(), s("kept"));
    let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
    put.set_item(Some(meta)).send().await.unwrap();
    pause(5).await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(text(&meta, "added_later"), "kept");
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn row_with_newer_schema_is_kept_and_the_message_waits() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let mut meta = world.meta(PAGE).await.unwrap();
    meta.insert("schema".into(), n(3));
    let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
    put.set_item(Some(meta)).send().await.unwrap();
    let before = world.rows(&world.pk(PAGE)).await;
    pause(5).await;
    for reason in ["changed", "expired"] {
        world.enqueue_as(PAGE, reason).await;
    }
    sandbox.invoke().await;
    assert_eq!(world.rows(&world.pk(PAGE)).await, before);
    assert_eq!(world.queued_messages().await, 2, "they wait for a newer worker");
    assert_eq!(world.origin.renders(), 1);
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ttl_of_a_published_row_is_ignored() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let mut meta = world.meta(PAGE).await.unwrap();
    meta.insert("ttl".into(), n(world.now_ms() / 1000 - 10));
    let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
    put.set_item(Some(meta)).send().await.unwrap();
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::ALREADY_COVERED), 1, "the row is still fresh");
    pause(5).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert!(!world.meta(PAGE).await.unwrap().contains_key("ttl"), "our commit removes it");
}

#[tokio::test(start_paused = true)]
async fn pointer_set_on_a_foreign_row_during_render_is_not_overwritten() {
    let world = World::new().await;
    assert!(ForeignWriter::acquire(&world, 30).await.unwrap().commit("foreign").await);
    let sandbox = world.sandbox().await;
    world.origin.takes(Duration::from_secs(5));
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.invoke(), async {
        pause(2).await;
        // Another foreign writer keeps versions, and updates only the pointer.
        let update = world.clean.dynamodb.update_item().table_name(&world.stack.table);
        let update = update.key("pk", s(world.pk(PAGE))).key("sk", s("META")).update_expression("SET current_sk = :sk");
        update.expression_attribute_values(":sk", s("VER#foreign")).send().await.unwrap();
    });
    assert_eq!(sandbox.total(metrics::COMMITTED), 0);
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "current_sk"), "VER#foreign");
}

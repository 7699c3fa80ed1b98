//! Other writers of the same table: other languages' helpers, other deployments, other configurations, other tenants.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem};
use everfresh_core::config::Config;
use everfresh_core::domain::page_key::{KeyLayout, Tenant};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Breaks, Item, Make, World, n, number, pause, s, text};

const PAGE: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

/// Another language's helper, as the seeds describe it.
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
async fn a_worker_of_an_older_deployment_never_replaces_a_newer_ones_page() {
    let world = World::new().await;
    let newer = world.sandbox_with(Make { deploy: 2, ..Make::default() });
    let older = world.sandbox().await;
    world.enqueue(PAGE).await;
    newer.turn().await;
    let before = world.meta(PAGE).await.unwrap();
    pause(100).await;
    world.origin.content("two");
    for reason in ["changed", "expired", "prewarm"] {
        world.enqueue_as(PAGE, reason).await;
    }
    older.turn().await;
    assert_eq!(world.meta(PAGE).await.unwrap(), before);
    assert_eq!(world.origin.renders(), 1);
    assert_eq!(world.waiting().await, 3);
    world.drain(&newer, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_newer_deployment_that_publishes_during_an_older_ones_render_stays() {
    let world = World::new().await;
    let newer = world.sandbox_with(Make { deploy: 2, ..Make::default() });
    let older = world.sandbox().await;
    world.enqueue(PAGE).await;
    older.turn().await;
    pause(5).await;
    older.inject(On::every("UpdateItem"), Fault::Cut);
    world.origin.content("older");
    world.origin.takes(Duration::from_secs(45));
    world.enqueue(PAGE).await;
    tokio::join!(older.turn(), async {
        pause(40).await;
        world.origin.takes(Duration::ZERO);
        world.origin.content("newer");
        world.enqueue(PAGE).await;
        newer.turn().await;
        older.way.faults().clear();
    });
    world.drain(&older, LONG).await;
    let meta = world.meta(PAGE).await.unwrap();
    assert_eq!(number(&meta, "deploy"), 2);
    assert_eq!(world.published(PAGE).await.unwrap(), "newer");
}

#[tokio::test(start_paused = true)]
async fn a_new_deployment_makes_the_page_stale_for_prewarm_and_expired() {
    let world = World::new().await;
    world.enqueue(PAGE).await;
    world.sandbox().await.turn().await;
    pause(5).await;
    let newer = world.sandbox_with(Make { deploy: 2, ..Make::default() });
    world.enqueue_as(PAGE, "prewarm").await;
    newer.turn().await;
    assert_eq!(newer.total(metrics::UNCHANGED), 1);
    assert_eq!(number(&world.meta(PAGE).await.unwrap(), "deploy"), 2);
    world.enqueue_as(PAGE, "prewarm").await;
    newer.turn().await;
    assert_eq!(newer.total(metrics::ALREADY_COVERED), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_before_a_deployment_goes_on_after_it() {
    let mut world = World::new().await;
    let before = world.sandbox().await;
    world.origin.breaks(Breaks::Unreachable);
    let id = world.enqueue(PAGE).await;
    before.turn().await;
    let failed = world.req(PAGE, &id).await.unwrap();
    assert_eq!(text(&failed, "status"), "FAILED");
    // Another life, other tags, a gate, another ladder.
    let config = everfresh_testing::CONFIG
        .replace(r#"revalidate = "60s""#, "revalidate = \"600s\"\ngate = { min_bytes = 2 }")
        .replace(r#"tags       = ["products", "product-{id}"]"#, r#"tags = ["things"]"#)
        .replace("gate       = { min_bytes = 20, max_shrink = 0.5, must_contain = \"</html>\" }", "");
    world.config = Config::parse(&config).unwrap();
    let after = world.sandbox_with(Make { deploy: 2, max_attempts: 9, ..Make::default() });
    world.origin.breaks(Breaks::No);
    world.drain(&after, LONG).await;
    let done = world.req(PAGE, &id).await.unwrap();
    assert_eq!(text(&done, "request_hash"), text(&failed, "request_hash"));
    assert_eq!((text(&done, "status"), number(&done, "attempts")), ("COMPLETED".into(), 2));
    assert!(number(&world.meta(PAGE).await.unwrap(), "revalidate_seconds") > 500);
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_computes_another_page_is_put_off_and_counted() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#);
    let other = "a".repeat(64);
    world.send_with(&body, &[("everfresh-page", &other)]).await;
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::CONFIGURATION_SKEW), 1);
    assert_eq!(world.rows(&world.pk(PAGE)).await.len(), 0);
    assert_eq!(world.waiting().await, 1, "it waits for a worker that agrees");
    // One that agrees is handled.
    let hash = world.page(PAGE).hash().to_string();
    world.send_with(&body, &[("everfresh-page", &hash)]).await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_computes_another_page_neither_leads_nor_follows_in_its_batch() {
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#);
    let other = "a".repeat(64);
    // Wherever it stands in the batch: its neighbours are handled, and it is not taken for granted by them.
    for place in 0..3 {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        let mut ids = Vec::new();
        for at in 0..3 {
            let attributes: &[(&str, &str)] = if at == place { &[("everfresh-page", &other)] } else { &[] };
            ids.push(world.send_with(&body, attributes).await);
        }
        let event = sandbox.receive().await;
        let again = sandbox.handle(event, Duration::from_secs(60)).await.unwrap();
        assert_eq!(again, [ids[place].clone()], "place {place}");
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "place {place}");
        assert_eq!(world.origin.renders(), 1);
        assert_eq!(sandbox.total(metrics::CONFIGURATION_SKEW), 1);
    }
}

/// The record of an earlier request under the same key, long past its ttl.
fn past_its_ttl(world: &World, request_hash: &str) -> Vec<(&'static str, AttributeValue)> {
    vec![
        ("request_hash", s(request_hash)),
        ("status", s("COMPLETED")),
        ("owner", s("long-gone")),
        ("claim_expires_ms", n(1)),
        ("attempts", n(1)),
        ("ttl", n(world.now_ms() / 1000 - 10)),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_record_past_its_ttl_counts_as_absent_deleted_or_not() {
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    let known = {
        let world = World::new().await;
        world.send(&body).await;
        world.sandbox().await.turn().await;
        text(&world.req(PAGE, "k").await.unwrap(), "request_hash")
    };
    // Another request's, this one's own, and none at all.
    for hash in [Some("other"), Some(known.as_str()), None] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        if let Some(hash) = hash {
            world.put(&world.pk(PAGE), "REQ#k", &past_its_ttl(&world, hash)).await;
        }
        world.send(&body).await;
        sandbox.turn().await;
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "{hash:?}");
        let record = world.req(PAGE, "k").await.unwrap();
        assert_eq!((text(&record, "request_hash"), text(&record, "status")), (known.clone(), "COMPLETED".into()));
        assert!(number(&record, "ttl") > world.now_ms() / 1000);
        assert!(world.dead_letters().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_past_its_ttl_does_not_answer_for_a_change_sent_close_to_the_published_render() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    let known = text(
        &world.rows(&world.pk(PAGE)).await.into_values().find(|row| text(row, "sk").starts_with("REQ#")).unwrap(),
        "request_hash",
    );
    world.put(&world.pk(PAGE), "REQ#k", &past_its_ttl(&world, &known)).await;
    world.origin.content("two");
    world.send(&body).await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two", "the change is not lost");
}

#[tokio::test(start_paused = true)]
async fn a_tag_requests_record_past_its_ttl_counts_as_absent_deleted_or_not() {
    let body = r#"{"v":1,"tenant":"acme","tag":"products","idempotency_key":"daily"}"#;
    let inval = Tenant::parse("acme").unwrap().inval_pk();
    let known = {
        let world = World::new().await;
        world.send(body).await;
        world.sandbox().await.turn().await;
        text(&world.row(&inval, "REQ#daily").await.unwrap(), "request_hash")
    };
    for hash in [known.as_str(), "other"] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.put(&inval, "REQ#daily", &past_its_ttl(&world, hash)).await;
        world.send(body).await;
        sandbox.turn().await;
        assert!(world.row(&inval, "TAG#products").await.is_some(), "{hash}: acked, so its watermark is written (I1)");
        let record = world.row(&inval, "REQ#daily").await.unwrap();
        assert_eq!(text(&record, "request_hash"), known);
        assert!(number(&record, "ttl") > world.now_ms() / 1000);
        assert_eq!(world.waiting().await, 0);
        assert!(world.dead_letters().await.is_empty());
    }
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
async fn the_same_path_of_two_tenants_is_two_pages() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    world.origin.content("globex");
    world.send(&format!(r#"{{"v":1,"tenant":"globex","path":"{PAGE}","idempotency_key":"k"}}"#)).await;
    sandbox.turn().await;
    let globex = world.config.tenant(&Tenant::parse("globex").unwrap()).unwrap();
    let globex_pk = globex.resolve(PAGE).unwrap().page.pk(KeyLayout::default());
    assert_ne!(globex_pk, world.pk(PAGE));
    let theirs = world.rows(&globex_pk).await;
    assert!(text(&theirs["META"], "s3_key").starts_with("globex/"));
    assert!(theirs.contains_key("REQ#k"));
    assert_eq!(world.status(PAGE, "k").await, "absent");
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert!(text(&world.meta(PAGE).await.unwrap(), "s3_key").starts_with("acme/"));
    // A tag of the one does nothing to the other.
    pause(5).await;
    world.send(r#"{"v":1,"tenant":"globex","tag":"products"}"#).await;
    sandbox.turn().await;
    assert_eq!(world.rows(&Tenant::parse("acme").unwrap().inval_pk()).await.len(), 0);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::ALREADY_COVERED), 1);
}

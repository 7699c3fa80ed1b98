//! Foreign writers on the same table: we read, serve and replace their rows, and they ours.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod foreign;

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::domain::page::LockRow;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::request::{IdempotencyKey, Reason, Request, Target};
use everfresh_core::ledger::{Ledger, PageState};
use everfresh_testing::{Fixture, Item, Make, OriginFault, World, body, cache_status, done, fixtures, pause, text};
use serde_json::{Value, json};

use self::foreign::model;
use self::foreign::rounds::Rounds;

const PAGE: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

/// Drops null fields, as in the fixtures.
fn compact(mut value: Value) -> Value {
    value.as_object_mut().unwrap().retain(|_, field| !field.is_null());
    value
}

/// The ledger's read, in the format of the fixtures.
async fn read(fixture: &Fixture, world: &World) -> Value {
    let ledger = Ledger::new(&world.clean, &world.stack.table, fixture.layout);
    let page = world.page(&fixture.path);
    let PageState { meta, lock, .. } = ledger.lookup(&page).await.unwrap();
    let published = meta.map(|meta| {
        assert!(meta.is_foreign(), "{}", fixture.name);
        compact(json!({
            "s3_key": meta.s3_key, "generated_at": meta.generated_at, "revalidate_seconds": meta.revalidate_seconds,
            "etag": meta.etag, "ttl": meta.ttl, "pointer": meta.pointer.then_some(true),
        }))
    });
    let lease = lock.map(|lock| {
        let held = lock.held(world.now_ms());
        let LockRow { lease_token, lease_expires_at, ttl } = lock;
        compact(json!({ "lease_token": lease_token, "lease_expires_at": lease_expires_at, "ttl": ttl, "held": held }))
    });
    let mut request = None;
    if let Some(key) = fixture.means.pointer("/request/key") {
        let name = IdempotencyKey::parse(key.as_str().unwrap()).unwrap();
        let record = ledger.request(&page, &name).await.unwrap().unwrap();
        assert_eq!(record.request_hash, changed(&page, &name).request_hash().to_string(), "{}", fixture.name);
        let outlived = (!record.counts(world.now_ms())).then_some(true);
        request = Some(compact(json!({
            "key": key, "status": record.status.as_str(), "result_s3_key": record.result_s3_key, "ttl": record.ttl,
            "outlived": outlived,
        })));
    }
    compact(json!({ "published": published, "lease": lease, "request": request }))
}

fn changed(page: &PageKey, key: &IdempotencyKey) -> Request {
    let target = Target::Path(page.path().clone());
    Request { tenant: page.tenant().clone(), target, reason: Reason::Changed, key: key.clone() }
}

#[tokio::test(start_paused = true)]
async fn foreign_rows_are_read_as_their_fixtures_specify() {
    for fixture in fixtures() {
        let world = fixture.world().await;
        assert_eq!(world.page(&fixture.path).pk(fixture.layout), fixture.pk(), "{}", fixture.name);
        let mut means = fixture.means.clone();
        means.as_object_mut().unwrap().remove("served");
        assert_eq!(read(&fixture, &world).await, means, "{}", fixture.name);
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_pages_are_served() {
    for fixture in fixtures() {
        let Some(served) = fixture.means.get("served") else { continue };
        let world = fixture.world().await;
        let reply = world.instance_with(|settings| settings.layout = fixture.layout).get(&fixture.path).await;
        let status = served.get("status").map_or(200, |status| status.as_u64().unwrap());
        assert_eq!(
            (u64::from(reply.status), body(&reply).as_str()),
            (status, text_of(&served["body"])),
            "{}",
            fixture.name
        );
        let fresh = !cache_status(&reply).contains("stale-age");
        assert_eq!(served["fresh"], fresh, "{}: {reply:?}", fixture.name);
        if let Some(etag) = served.get("etag") {
            assert_eq!(reply.header("etag"), etag.as_str(), "{}", fixture.name);
        }
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn regeneration_replaces_foreign_rows_and_keeps_unknown_attributes() {
    for fixture in fixtures() {
        let name = &fixture.name;
        let world = fixture.world().await;
        let sandbox = world.sandbox_with(Make { layout: fixture.layout, ..Make::default() });
        let key = fixture.means.pointer("/request/key").map_or("another", |key| key.as_str().unwrap());
        let path = &fixture.path;
        world.send(&format!(r#"{{"v":1,"tenant":"acme","path":"{path}","idempotency_key":"{key}"}}"#)).await;
        world.drain(&sandbox, LONG).await;
        assert!(world.dead_letters().await.is_empty(), "{name}");
        let rows = world.rows(&fixture.pk()).await;
        let request = fixture.means.get("request");
        if request.is_some_and(|request| request["status"] == "COMPLETED" && request.get("outlived").is_none()) {
            assert_eq!(world.origin.renders(), 0, "{name}: the request is already completed");
            assert_eq!(rows.get("META"), fixture.row("META"), "{name}");
            continue;
        }
        let meta = model::Meta::of(&rows["META"]);
        assert_eq!(world.object(&meta.s3_key).await, "one", "{name}");
        assert!(rows["META"].contains_key("version"), "{name}");
        let record = model::Req::of(&rows[&format!("REQ#{key}")]);
        assert_eq!((record.status.as_str(), record.result_s3_key), ("COMPLETED", Some(meta.s3_key)), "{name}");
        assert!(!rows.contains_key("LOCK"), "{name}");
        for attribute in &fixture.keeps {
            assert_eq!(rows["META"].get(attribute), fixture.row("META").unwrap().get(attribute), "{name}: {attribute}");
        }
        for kept in fixture.rows.iter().filter(|row| text(row, "sk").starts_with("VER#")) {
            assert_eq!(numbers_trimmed(&rows[&text(kept, "sk")]), numbers_trimmed(kept), "{name}");
        }
        let instance = world.instance_with(|settings| settings.layout = fixture.layout);
        let reply = instance.get(path).await;
        assert_eq!((reply.status, body(&reply).as_str()), (200, "one"), "{name}");
        assert!(!cache_status(&reply).contains("detail"), "{name}: {reply:?}");
    }
}

/// DynamoDB normalizes numbers: it returns `60.0` as `60`.
fn numbers_trimmed(row: &Item) -> Item {
    let trimmed = |value: &AttributeValue| match value.as_n() {
        Ok(number) => AttributeValue::N(number.trim_end_matches(".0").to_owned()),
        Err(value) => value.clone(),
    };
    row.iter().map(|(name, value)| (name.clone(), trimmed(value))).collect()
}

#[tokio::test(start_paused = true)]
async fn foreign_model_reads_our_rows_during_and_after_regeneration() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    // The first route keeps no history, the second does.
    for path in [PAGE, "/kept/1"] {
        world.origin.takes(Duration::from_secs(5));
        let id = world.enqueue(path).await;
        tokio::join!(sandbox.invoke(), async {
            pause(2).await;
            let rows = world.rows(&world.pk(path)).await;
            let lease = model::Lock::of(&rows["LOCK"]);
            assert!(lease.lease_expires_at > world.now_ms() / 1000, "held");
            assert!(lease.ttl.unwrap() > lease.lease_expires_at, "the row outlives the lease");
            let record = model::Req::of(&rows[&format!("REQ#{id}")]);
            assert_eq!((record.status.as_str(), record.result_s3_key), ("STARTED", None));
        });
        let rows = world.rows(&world.pk(path)).await;
        assert!(!rows.contains_key("LOCK"));
        let meta = model::Meta::of(&rows["META"]);
        assert_eq!(world.object(&meta.s3_key).await, "one");
        assert!(meta.generated_at.abs_diff(world.now_ms() / 1000) < 10, "{meta:?}");
        assert!((50..=60).contains(&meta.revalidate_seconds), "{meta:?}");
        let etag = meta.etag.unwrap();
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "{etag}");
        assert_eq!(meta.ttl, None, "a published row does not expire");
        if let Some(current_sk) = meta.current_sk {
            assert_eq!(model::Meta::version_row(&rows[&current_sk]).s3_key, meta.s3_key, "the pointer matches");
        }
        let record = model::Req::of(&rows[&format!("REQ#{id}")]);
        assert_eq!((record.status.as_str(), record.result_s3_key), ("COMPLETED", Some(meta.s3_key)));
        assert!(record.ttl.unwrap() > world.now_ms() / 1000);
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_model_reads_failed_request_and_purged_page() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.fail_with(OriginFault::Unreachable);
    let id = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let record = model::Req::of(&world.req(PAGE, &id).await.unwrap());
    assert_eq!((record.status.as_str(), record.result_s3_key), ("FAILED", None));
    world.origin.fail_with(OriginFault::No);
    world.drain(&sandbox, LONG).await;
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    let meta = model::Meta::of(&world.meta(PAGE).await.unwrap());
    assert_eq!(meta.revalidate_seconds, 0, "a purged page is stale to a reader that ignores tombstones");
}

#[tokio::test(start_paused = true)]
async fn thousand_rounds_with_crashing_foreign_writer_lose_no_change() {
    let mut rounds = Rounds::new(42).await;
    for round in 0..1_000 {
        Box::pin(rounds.play(round)).await;
    }
    rounds.finish().await;
}

//! A helper of another language on the same table: takes the lease, renders, and puts META whole, without a condition on it and
//! without our attributes. Its clock is right and nothing happens to its calls: the one overwrite that a late write of its lease can
//! cause is a known limit, told in docs/model.md.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem};
use aws_sdk_s3::primitives::ByteStream;
use everfresh_core::clients::Clients;
use everfresh_core::domain::page_key::{KeyLayout, PageKey};

use super::pause;
use crate::check::Actor;
use crate::run::Sim;
use crate::site;

const LEASE_SECONDS: u64 = 30;

/// Regenerates pages now and then while there is chaos.
pub(crate) async fn foreign(sim: Arc<Sim>) {
    let mut rng = sim.rng(500);
    if rng.bool() {
        return;
    }
    let clients = sim.clean_clients(Actor::Foreign);
    while !sim.is_calm() {
        pause(&sim, &mut rng, 5_000, 120_000).await;
        if sim.is_calm() {
            return;
        }
        let page = sim.pages.any(&mut rng).clone();
        let takes = Duration::from_millis(rng.u64(0..25_000));
        let attempt = rng.u32(..);
        // Some of them die while they render.
        let dies = rng.u8(0..5) == 0;
        if regenerate(&sim, &clients, &page, takes, attempt, dies).await.is_some() {
            sim.happened("foreign-commit");
        }
    }
}

async fn regenerate(
    sim: &Sim,
    clients: &Clients,
    page: &PageKey,
    takes: Duration,
    attempt: u32,
    dies: bool,
) -> Option<()> {
    let (table, pk) = (&sim.queues.stack.table, page.pk(KeyLayout::default()));
    let now = || sim.clock.now_ms() / 1000;
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let number = |value: u64| AttributeValue::N(value.to_string());
    let token = format!("foreign-{attempt}");
    let acquire = clients
        .dynamodb
        .put_item()
        .table_name(table)
        .item("pk", text(&pk))
        .item("sk", text("LOCK"))
        .item("lease_token", text(&token))
        .item("lease_expires_at", number(now() + LEASE_SECONDS))
        .item("ttl", number(now() + 2 * LEASE_SECONDS))
        .condition_expression("attribute_not_exists(pk) OR lease_expires_at <= :now")
        .expression_attribute_values(":now", number(now()));
    acquire.send().await.ok()?;
    let name = page.to_string();
    let body = site::body(&name, sim.sites.revision(&name));
    tokio::time::sleep(takes).await;
    if dies {
        return None;
    }
    let key = format!("{}/foreign/{attempt}", page.tenant());
    let upload = clients.s3.put_object().bucket(&sim.queues.stack.bucket).key(&key);
    upload.body(ByteStream::from(body.into_bytes())).send().await.ok()?;
    let meta = Put::builder()
        .table_name(table)
        .item("pk", text(&pk))
        .item("sk", text("META"))
        .item("s3_key", text(&key))
        .item("generated_at", number(now()))
        .item("revalidate_seconds", number(60))
        .item("etag", text(&format!("\"{attempt}\"")))
        .build()
        .ok()?;
    let lock = Delete::builder()
        .table_name(table)
        .key("pk", text(&pk))
        .key("sk", text("LOCK"))
        .condition_expression("lease_token = :token AND lease_expires_at > :now")
        .expression_attribute_values(":token", text(&token))
        .expression_attribute_values(":now", number(now()))
        .build()
        .ok()?;
    let commit = clients
        .dynamodb
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().put(meta).build())
        .transact_items(TransactWriteItem::builder().delete(lock).build());
    commit.send().await.ok().map(|_| ())
}

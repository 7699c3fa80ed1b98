//! A foreign writer on the same table: takes the lease, renders, and puts the whole META row
//! without a condition and without our attributes; or it keeps versions, and updates only META's
//! pointer. Its clock is right and its calls have no faults: the one overwrite that a late write of
//! its lease can cause is a known limit, described in docs/model.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem, Update};
use aws_sdk_s3::primitives::ByteStream;
use everfresh_core::clients::Clients;
use everfresh_core::domain::page_key::{KeyLayout, PageKey};

use super::pause;
use crate::check::Actor;
use crate::faults::RunFault;
use crate::run::Sim;
use crate::site;

const LEASE_SECONDS: u64 = 30;

/// Regenerates pages during the chaos phase.
pub(crate) async fn foreign(sim: Arc<Sim>) {
    let mut rng = sim.rng(500);
    let Some(most_ms) = sim.profile.foreign_ms else { return };
    let clients = sim.clean_clients(Actor::Foreign);
    while !sim.is_calm() {
        pause(&sim, &mut rng, 1_000, most_ms).await;
        if sim.is_calm() {
            return;
        }
        let page = sim.pages.any(&mut rng).clone();
        let takes = Duration::from_millis(rng.u64(0..25_000));
        let attempt = rng.u32(..);
        let crashes = rng.u8(0..5) == 0;
        let writer = Writer { sim: &sim, clients: &clients, page: &page, attempt, keeps_versions: rng.u8(0..3) == 0 };
        if writer.regenerate(takes, crashes).await.is_some() {
            sim.count_fault(if writer.keeps_versions { RunFault::ForeignPointer } else { RunFault::ForeignCommit });
        }
    }
}

struct Writer<'a> {
    sim: &'a Sim,
    clients: &'a Clients,
    page: &'a PageKey,
    attempt: u32,
    keeps_versions: bool,
}

impl Writer<'_> {
    async fn regenerate(&self, takes: Duration, crashes: bool) -> Option<()> {
        let (sim, attempt) = (self.sim, self.attempt);
        let token = format!("foreign-{attempt}");
        let acquire = self.clients.dynamodb.put_item().table_name(&sim.queues.stack.table);
        let acquire = acquire
            .set_item(Some(self.row("LOCK")))
            .item("lease_token", text(&token))
            .item("lease_expires_at", number(self.now() + LEASE_SECONDS))
            .item("ttl", number(self.now() + 2 * LEASE_SECONDS))
            .condition_expression("attribute_not_exists(pk) OR lease_expires_at <= :now")
            .expression_attribute_values(":now", number(self.now()));
        acquire.send().await.ok()?;
        let name = self.page.to_string();
        let body = site::body(&name, sim.sites.revision(&name));
        tokio::time::sleep(takes).await;
        if crashes {
            return None;
        }
        let key = format!("{}/foreign/{attempt}", self.page.tenant());
        let upload = self.clients.s3.put_object().bucket(&sim.queues.stack.bucket).key(&key);
        upload.body(ByteStream::from(body.into_bytes())).send().await.ok()?;
        let lock = Delete::builder()
            .table_name(&sim.queues.stack.table)
            .set_key(Some(self.row("LOCK")))
            .condition_expression("lease_token = :token AND lease_expires_at > :now")
            .expression_attribute_values(":token", text(&token))
            .expression_attribute_values(":now", number(self.now()))
            .build()
            .ok()?;
        let mut commit = self.clients.dynamodb.transact_write_items();
        commit = commit.transact_items(TransactWriteItem::builder().delete(lock).build());
        if self.keeps_versions {
            let sk = format!("VER#foreign-{attempt}");
            let pointer = Update::builder()
                .table_name(&sim.queues.stack.table)
                .set_key(Some(self.row("META")))
                .update_expression("SET current_sk = :sk")
                .expression_attribute_values(":sk", text(&sk))
                .build()
                .ok()?;
            commit = commit.transact_items(TransactWriteItem::builder().put(self.published(&sk, &key)?).build());
            commit = commit.transact_items(TransactWriteItem::builder().update(pointer).build());
        } else {
            commit = commit.transact_items(TransactWriteItem::builder().put(self.published("META", &key)?).build());
        }
        commit.send().await.ok().map(|_| ())
    }

    /// The whole published row.
    fn published(&self, sk: &str, key: &str) -> Option<Put> {
        let put = Put::builder().table_name(&self.sim.queues.stack.table).set_item(Some(self.row(sk)));
        let put = put.item("s3_key", text(key)).item("generated_at", number(self.now()));
        put.item("revalidate_seconds", number(60)).item("etag", text(&format!("\"{}\"", self.attempt))).build().ok()
    }

    fn row(&self, sk: &str) -> HashMap<String, AttributeValue> {
        let pk = self.page.pk(KeyLayout::default());
        HashMap::from([("pk".to_owned(), text(&pk)), ("sk".to_owned(), text(sk))])
    }

    fn now(&self) -> u64 {
        self.sim.clock.now_ms() / 1000
    }
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

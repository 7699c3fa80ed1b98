//! How a foreign writer publishes: it acquires the lease with a condition, renders, stores the
//! body, and in one transaction replaces META without a condition and deletes its lease if it still
//! holds it. It may crash between any two of these steps.

use std::time::Duration;

use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem};
use everfresh_testing::{World, n, s};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    AfterAcquire,
    AfterRender,
    AfterUpload,
    Never,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) lease_s: u64,
    pub(crate) render: Duration,
    pub(crate) crash: CrashPoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ended {
    /// Another writer holds the lease.
    LeaseHeld,
    Crashed,
    /// Its lease had expired or been taken over.
    Refused,
    Published,
}

/// Publishes the value of `content` at the start of the render.
pub(crate) async fn publish(world: &World, path: &str, attempt: Attempt, content: impl Fn() -> String) -> Ended {
    let (pk, table) = (world.pk(path), &world.stack.table);
    let now_s = || world.now_ms() / 1000;
    let token = format!("foreign-{:016x}", fastrand::u64(..));
    let acquire = world.clean.dynamodb.put_item().table_name(table);
    let acquire = acquire
        .item("pk", s(&pk))
        .item("sk", s("LOCK"))
        .item("lease_token", s(&token))
        .item("lease_expires_at", n(now_s() + attempt.lease_s))
        .item("ttl", n(now_s() + attempt.lease_s + 3600))
        .condition_expression("attribute_not_exists(#pk) OR #exp <= :now")
        .expression_attribute_names("#pk", "pk")
        .expression_attribute_names("#exp", "lease_expires_at")
        .expression_attribute_values(":now", n(now_s()));
    if acquire.send().await.is_err() {
        return Ended::LeaseHeld;
    }
    if attempt.crash == CrashPoint::AfterAcquire {
        return Ended::Crashed;
    }
    let body = format!("{} by foreign writer", content());
    tokio::time::sleep(attempt.render).await;
    if attempt.crash == CrashPoint::AfterRender {
        return Ended::Crashed;
    }
    let key = format!("acme/html/{token}.html");
    world.store(&key, &body, &[]).await;
    if attempt.crash == CrashPoint::AfterUpload {
        return Ended::Crashed;
    }
    let put = Put::builder()
        .table_name(table)
        .item("pk", s(&pk))
        .item("sk", s("META"))
        .item("s3_key", s(&key))
        .item("generated_at", n(now_s()))
        .item("revalidate_seconds", n(60))
        .item("etag", s(format!("\"{token}\"")))
        .item("ttl", n(now_s() + 86_400))
        .build();
    let delete = Delete::builder()
        .table_name(table)
        .key("pk", s(&pk))
        .key("sk", s("LOCK"))
        .condition_expression("#tok = :tok AND #exp > :now")
        .expression_attribute_names("#tok", "lease_token")
        .expression_attribute_names("#exp", "lease_expires_at")
        .expression_attribute_values(":tok", s(&token))
        .expression_attribute_values(":now", n(now_s()))
        .build();
    let transaction = world.clean.dynamodb.transact_write_items();
    let transaction = transaction.transact_items(TransactWriteItem::builder().put(put.unwrap()).build());
    let transaction = transaction.transact_items(TransactWriteItem::builder().delete(delete.unwrap()).build());
    match transaction.send().await {
        Ok(_) => Ended::Published,
        Err(_) => Ended::Refused,
    }
}

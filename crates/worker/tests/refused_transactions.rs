//! Transactions that DynamoDB refuses, for another reason than a lost race.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_core::metrics;
use everfresh_testing::{Item, World, list, pause, s, text};

const PAGE: &str = "/kept/1";

async fn put(world: &World, item: &Item) -> bool {
    let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
    put.set_item(Some(item.clone())).send().await.is_ok()
}

/// META has more attributes than the version's own row, which is as large as a row may be.
#[tokio::test(start_paused = true)]
async fn operators_command_that_is_refused_releases_the_lease() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let versions = world.publish(&sandbox, PAGE, &["one", "two"]).await;
    let mut kept = world.row(&world.pk(PAGE), &versions[0].sk()).await.unwrap();
    for bytes in (300_000..410_000).rev().step_by(20) {
        kept.insert("headers".to_owned(), list(vec![s(format!("x-long: {}", "x".repeat(bytes)))]));
        if put(&world, &kept).await {
            break;
        }
    }
    let refused = world.ledger().roll_back(&world.page(PAGE), &versions[0]).await;
    assert!(refused.is_err(), "{refused:?}");
    assert!(world.lock(PAGE).await.is_none(), "the lease is released");
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn version_row_in_the_way_is_not_counted_as_a_withdrawal() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    // After this version only one can follow, whose row is already there.
    let mut meta = world.meta(PAGE).await.unwrap();
    meta.insert("version".to_owned(), s("9999999999999999-00000005"));
    assert!(put(&world, &meta).await);
    world.put(&world.pk(PAGE), "VER#9999999999999999-00000006", &[("s3_key", s("acme/other"))]).await;
    pause(100).await;
    world.origin.content("two");
    let id = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::WITHDRAWALS_REFUSED), 0);
    assert_ne!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(text(&world.meta(PAGE).await.unwrap(), "version"), "9999999999999999-00000005");
    assert!(world.lock(PAGE).await.is_none());
}

//! The record of a request that ends without its own commit.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::domain::request::IdempotencyKey;
use everfresh_core::domain::request_events::{Stage, after};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{World, n, pause, s, text};

const PAGE: &str = "/products/42";

fn message(key: &str, reason: &str) -> String {
    format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","reason":"{reason}","idempotency_key":"{key}"}}"#)
}

/// The stages of a request, in order.
async fn stages(world: &World, key: &str) -> Vec<Stage> {
    let key = IdempotencyKey::parse(key).unwrap();
    let record = world.ledger().request(&world.page(PAGE), &key).await.unwrap().unwrap();
    record.events.iter().filter_map(|event| event.stage()).collect()
}

#[tokio::test(start_paused = true)]
async fn released_claim_is_completed_when_covered() {
    let world = World::new().await;
    let (late, quick) = (world.sandbox().await, world.sandbox().await);
    world.send(&message("late", "changed")).await;
    // The other worker takes the lease between lookup and acquire, so this one releases its claim.
    late.way.faults().inject(On::next("PutItem"), Fault::Delay(Duration::from_secs(2)));
    world.origin.takes(Duration::from_secs(10));
    tokio::join!(late.invoke(), async {
        pause(1).await;
        world.enqueue(PAGE).await;
        quick.invoke().await;
    });
    assert_eq!(world.status(PAGE, "late").await, "STARTED");
    assert_eq!(stages(&world, "late").await.last(), Some(&Stage::GivenBack));
    // Another change is rendered and covers both requests.
    pause(5).await;
    world.origin.takes(Duration::ZERO);
    world.send(&message("next", "changed")).await;
    quick.invoke().await;
    world.drain(&quick, Duration::from_secs(600)).await;
    assert_eq!(world.status(PAGE, "late").await, "COMPLETED");
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn crashed_workers_record_is_completed_when_covered() {
    let world = World::new().await;
    let crashed = world.sandbox().await;
    world.origin.takes(Duration::from_secs(20));
    world.send(&message("crashed", "changed")).await;
    crashed.invoke_killed_after(Duration::from_secs(5)).await;
    world.origin.takes(Duration::ZERO);
    pause(100).await;
    // Another request is rendered first.
    let worker = world.sandbox().await.one_by_one();
    world.send(&message("other", "changed")).await;
    world.drain(&worker, Duration::from_secs(2_000)).await;
    assert_eq!(world.status(PAGE, "other").await, "COMPLETED");
    assert_eq!(world.status(PAGE, "crashed").await, "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn transaction_conflict_on_claim_counts_as_contention() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    sandbox.way.faults().inject(On::next("PutItem"), Fault::Conflict);
    let id = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::LOCK_CONTENTION), 1);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn request_rejected_without_claim_leaves_a_record() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let held = [("lease_token", s("alive")), ("lease_expires_at", n(world.now_ms() / 1000 + 600))];
    world.put(&world.pk(PAGE), "LOCK", &held).await;
    let id = world.enqueue(PAGE).await;
    let mut event = sandbox.receive().await;
    event.records[0].attributes.insert("ApproximateReceiveCount".into(), "90".into());
    sandbox.handle(event, Duration::from_secs(60)).await.unwrap();
    assert_eq!(world.dead_letters().await.len(), 1);
    assert_eq!(world.status(PAGE, &id).await, "FAILED");
    assert_eq!(stages(&world, &id).await, [Stage::Received, Stage::Rejected]);
    let record = world.req(PAGE, &id).await.unwrap();
    assert_eq!((record.contains_key("rejected_at_ms"), text(&record, "reject_reason")), (true, "waited".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn rejection_after_attempts_is_recorded_as_event() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.fail_with(everfresh_testing::OriginFault::Unreachable);
    world.send(&message("k", "changed")).await;
    world.drain(&sandbox, Duration::from_secs(20_000)).await;
    assert_eq!(world.dead_letters().await.len(), 1);
    assert_eq!(stages(&world, "k").await.last(), Some(&Stage::Rejected));
    assert_eq!(text(&world.req(PAGE, "k").await.unwrap(), "reject_reason"), "attempts");
}

#[tokio::test(start_paused = true)]
async fn key_conflict_within_one_batch_is_rejected() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(&message("k", "changed")).await;
    world.send(&message("k", "expired")).await;
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(sandbox.total(metrics::KEY_CONFLICTS), 1);
    assert_eq!(world.dead_letters().await.len(), 1);
    assert_eq!(world.origin.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn key_conflict_is_rejected_when_the_record_is_read() {
    // Too close: the record is read at the first delivery.
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(&message("k", "expired")).await;
    sandbox.invoke().await;
    world.send(&message("k", "changed")).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::KEY_CONFLICTS), 1);
    // Covered at the first delivery.
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(&message("k", "changed")).await;
    sandbox.invoke().await;
    world.send(&message("k", "expired")).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::KEY_CONFLICTS), 1);
    assert_eq!(world.dead_letters().await.len(), 1);
    assert_eq!(world.status(PAGE, "k").await, "COMPLETED", "the record of the first stays");
}

/// A reader of the events who has seen the failure must see that the request was covered later.
#[tokio::test(start_paused = true)]
async fn covered_event_comes_after_the_failed_one() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.fail_with(everfresh_testing::OriginFault::Unreachable);
    world.send(&message("k", "changed")).await;
    sandbox.invoke().await;
    assert_eq!(stages(&world, "k").await.last(), Some(&Stage::Failed));
    let key = IdempotencyKey::parse("k").unwrap();
    let record = async || world.ledger().request(&world.page(PAGE), &key).await.unwrap().unwrap();
    let seen = record().await.events.last().unwrap().seq;
    world.origin.fail_with(everfresh_testing::OriginFault::No);
    pause(3).await;
    // A later version covers it before its message is delivered again.
    world.ledger().end_cooldown(&world.page(PAGE)).await.unwrap();
    world.send(&message("other", "changed")).await;
    sandbox.invoke().await;
    assert_eq!(world.status(PAGE, "other").await, "COMPLETED");
    world.drain(&sandbox, Duration::from_secs(2_000)).await;
    let record = record().await;
    assert_eq!(record.status.as_str(), "COMPLETED");
    let later: Vec<_> = after(&record.events, seen).iter().filter_map(|event| event.stage()).collect();
    assert_eq!(later, [Stage::Covered], "{:?}", record.events);
}

#[tokio::test(start_paused = true)]
async fn record_has_the_result_also_of_a_covering_version() {
    let world = World::new().await;
    let (late, quick) = (world.sandbox().await, world.sandbox().await);
    world.send(&message("late", "changed")).await;
    late.way.faults().inject(On::next("PutItem"), Fault::Delay(Duration::from_secs(2)));
    world.origin.takes(Duration::from_secs(10));
    tokio::join!(late.invoke(), async {
        pause(1).await;
        world.enqueue(PAGE).await;
        quick.invoke().await;
    });
    let given_back = world.req(PAGE, "late").await.unwrap();
    assert!(!given_back.contains_key("result_version"));
    pause(5).await;
    world.origin.takes(Duration::ZERO);
    world.send(&message("next", "changed")).await;
    quick.invoke().await;
    world.drain(&quick, Duration::from_secs(600)).await;
    let meta = world.meta(PAGE).await.unwrap();
    let late = world.req(PAGE, "late").await.unwrap();
    assert_eq!((text(&late, "status"), text(&late, "result_s3_key")), ("COMPLETED".into(), text(&meta, "s3_key")));
    for key in ["late", "next"] {
        let record = world.req(PAGE, key).await.unwrap();
        assert_eq!(text(&record, "result_etag"), text(&meta, "etag"), "{key}");
        assert!(text(&record, "result_version") <= text(&meta, "version"), "{key}");
        assert!(!record.contains_key("result_bypass"), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn key_conflict_between_two_followers_is_rejected() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send(&message("leader", "changed")).await;
    world.send(&message("k", "changed")).await;
    world.send(&message("k", "expired")).await;
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(sandbox.total(metrics::KEY_CONFLICTS), 1);
    assert_eq!(world.dead_letters().await.len(), 1);
    assert_eq!(world.origin.renders(), 1);
}

#[tokio::test(start_paused = true)]
async fn covered_redrive_completes_its_rejected_record() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.origin.fail_with(everfresh_testing::OriginFault::Unreachable);
    world.send(&message("k", "prewarm")).await;
    world.drain(&sandbox, Duration::from_secs(20_000)).await;
    assert_eq!(world.status(PAGE, "k").await, "FAILED");
    world.origin.fail_with(everfresh_testing::OriginFault::No);
    pause(3_600).await;
    world.enqueue(PAGE).await;
    world.drain(&sandbox, Duration::from_secs(600)).await;
    // The page is fresh, so the redriven request is covered at its first delivery.
    let letter = world.dead_letters().await.remove(0);
    let send = world.clean.sqs.send_message().queue_url(&world.stack.queue).message_body(letter.body().unwrap());
    send.set_message_attributes(letter.message_attributes.clone()).send().await.unwrap();
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(world.status(PAGE, "k").await, "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn conflict_while_giving_back_a_claim_is_retried() {
    let world = World::new().await;
    let (late, quick) = (world.sandbox().await, world.sandbox().await);
    world.send(&message("late", "changed")).await;
    late.way.faults().inject(On::next("PutItem"), Fault::Delay(Duration::from_secs(2)));
    late.way.faults().inject(On::next("TransactWriteItems").times(2), Fault::Conflict);
    world.origin.takes(Duration::from_secs(10));
    tokio::join!(late.invoke(), async {
        pause(1).await;
        world.enqueue(PAGE).await;
        quick.invoke().await;
    });
    assert_eq!(stages(&world, "late").await.last(), Some(&Stage::GivenBack));
    assert_eq!(late.total(metrics::LOCK_CONTENTION), 1);
}

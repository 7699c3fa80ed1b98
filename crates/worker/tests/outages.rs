//! Services that are down, slow or throttled: nothing is half published, no request is lost, and
//! each is done after recovery.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Sandbox, World, number, pause, text};

const PAGE: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

const DYNAMODB: [&str; 6] = ["Query", "GetItem", "BatchGetItem", "PutItem", "UpdateItem", "TransactWriteItems"];

/// A page with an old version, and a request for a new one.
async fn published_page_with_request() -> (World, Sandbox, String) {
    let world = World::new().await;
    world.origin.content("old");
    world.enqueue(PAGE).await;
    world.sandbox().await.invoke().await;
    pause(10).await;
    world.origin.content("new");
    let id = world.enqueue(PAGE).await;
    let sandbox = world.sandbox().await;
    (world, sandbox, id)
}

/// After the outage the request is completed once, without leftovers.
async fn assert_recovers(world: &World, sandbox: &Sandbox, id: &str, case: &str) {
    assert_eq!(world.queued_messages().await, 1, "{case}: the message is redelivered");
    assert_eq!(world.published(PAGE).await.unwrap(), "old", "{case}: nothing half published");
    assert_ne!(world.status(PAGE, id).await, "COMPLETED", "{case}");
    sandbox.way.faults().clear();
    world.drain(sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "new", "{case}");
    assert_eq!(world.status(PAGE, id).await, "COMPLETED", "{case}");
    assert!(world.lock(PAGE).await.is_none(), "{case}");
    assert!(world.dead_letters().await.is_empty(), "{case}");
}

#[tokio::test(start_paused = true)]
async fn table_outage_writes_nothing_and_the_request_recovers() {
    for fault in [Fault::FailBefore, Fault::Cut, Fault::Hang, Fault::Throttle] {
        let (world, sandbox, id) = published_page_with_request().await;
        let before = world.rows(&world.pk(PAGE)).await;
        for operation in DYNAMODB {
            sandbox.inject(On::every(operation), fault);
        }
        sandbox.invoke().await;
        assert_eq!(world.rows(&world.pk(PAGE)).await, before, "{fault:?}");
        assert_eq!(world.objects().await.len(), 1, "{fault:?}");
        assert_recovers(&world, &sandbox, &id, &format!("{fault:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn table_outage_at_any_step_leaves_nothing_half_published() {
    for fault in [Fault::FailBefore, Fault::Hang, Fault::Throttle] {
        // Before the claim, before the lease, before the commit.
        for (step, at) in [("claim", On::every("PutItem")), ("acquire", On::every("PutItem").after(1))] {
            let case = format!("{fault:?} at {step}");
            let (world, sandbox, id) = published_page_with_request().await;
            sandbox.inject(at, fault);
            for operation in ["UpdateItem", "TransactWriteItems", "GetItem"] {
                sandbox.inject(On::every(operation), fault);
            }
            sandbox.invoke().await;
            assert_recovers(&world, &sandbox, &id, &case).await;
        }
        let case = format!("{fault:?} at commit");
        let (world, sandbox, id) = published_page_with_request().await;
        for operation in ["UpdateItem", "TransactWriteItems", "GetItem"] {
            sandbox.inject(On::every(operation), fault);
        }
        sandbox.invoke().await;
        assert_recovers(&world, &sandbox, &id, &case).await;
        let attempts = number(&world.req(PAGE, &id).await.unwrap(), "attempts");
        assert!(attempts <= 2, "{case}: {attempts} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn next_delivery_finds_a_commit_whose_response_was_lost() {
    for fault in [Fault::FailAfter, Fault::LoseResponse, Fault::HangAfter] {
        let (world, sandbox, id) = published_page_with_request().await;
        sandbox.inject(On::every("TransactWriteItems"), fault);
        sandbox.inject(On::every("GetItem"), Fault::Cut);
        sandbox.inject(On::every("UpdateItem"), Fault::Cut);
        sandbox.invoke().await;
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{fault:?}");
        assert_eq!(world.published(PAGE).await.unwrap(), "new", "{fault:?}");
        sandbox.way.faults().clear();
        let renders = world.origin.renders();
        world.drain(&sandbox, LONG).await;
        assert_eq!(world.origin.renders(), renders, "{fault:?}: no second render (I3)");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{fault:?}: never FAILED after its commit (I5)");
    }
}

#[tokio::test(start_paused = true)]
async fn bucket_outage_keeps_the_old_page_and_releases_the_lease() {
    for fault in [Fault::FailBefore, Fault::Cut, Fault::Hang, Fault::Throttle] {
        let case = format!("{fault:?}");
        let (world, sandbox, id) = published_page_with_request().await;
        sandbox.inject(On::every("PutObject"), fault);
        sandbox.invoke().await;
        let record = world.req(PAGE, &id).await.unwrap();
        assert_eq!(
            (text(&record, "status").as_str(), text(&record, "error_class").as_str()),
            ("FAILED", "upload"),
            "{case}"
        );
        assert!(world.lock(PAGE).await.is_none(), "{case}");
        assert_recovers(&world, &sandbox, &id, &case).await;
    }
}

#[tokio::test(start_paused = true)]
async fn redelivery_recovers_after_table_and_bucket_outage() {
    let (world, sandbox, id) = published_page_with_request().await;
    for operation in ["PutObject", "TransactWriteItems", "UpdateItem"] {
        sandbox.inject(On::every(operation), Fault::FailBefore);
    }
    sandbox.invoke().await;
    assert_eq!(world.status(PAGE, &id).await, "STARTED", "neither failed nor released");
    assert_recovers(&world, &sandbox, &id, "both").await;
}

#[tokio::test(start_paused = true)]
async fn failed_visibility_change_falls_back_to_the_queues_timeout() {
    for fault in [Fault::FailBefore, Fault::Hang, Fault::Throttle] {
        let (world, sandbox, id) = published_page_with_request().await;
        sandbox.inject(On::every("ChangeMessageVisibilityBatch"), fault);
        sandbox.inject(On::every("Query"), Fault::FailBefore);
        let before_ms = world.now_ms();
        sandbox.invoke().await;
        assert_eq!(world.queued_messages().await, 1, "{fault:?}");
        sandbox.way.faults().clear();
        world.drain(&sandbox, LONG).await;
        assert!(world.now_ms() - before_ms >= 390_000, "{fault:?}: only time is lost");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn transient_faults_are_retried_within_the_invocation() {
    let cases = [
        ("TransactWriteItems", Fault::Conflict, 3),
        ("TransactWriteItems", Fault::InProgress, 3),
        ("TransactWriteItems", Fault::Throttle, 3),
        ("TransactWriteItems", Fault::Overload, 3),
        ("TransactWriteItems", Fault::FailBefore, 2),
        ("Query", Fault::Throttle, 3),
        ("PutItem", Fault::Throttle, 3),
        ("PutObject", Fault::Throttle, 3),
        ("PutObject", Fault::Conflict, 3),
        ("PutObject", Fault::FailBefore, 3),
    ];
    for (operation, fault, times) in cases {
        let case = format!("{times} × {fault:?} on {operation}");
        let (world, sandbox, id) = published_page_with_request().await;
        sandbox.inject(On::next(operation).times(times), fault);
        sandbox.invoke().await;
        assert_eq!(world.published(PAGE).await.unwrap(), "new", "{case}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{case}");
        assert_eq!(world.queued_messages().await, 0, "{case}");
        assert_eq!(sandbox.total(metrics::COMMITTED), 1, "{case}");
        assert_eq!(world.origin.renders(), 2, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn table_fault_at_claim_or_acquire_costs_no_attempt() {
    // The SDK does not retry a single write that conflicts with a transaction; it sends a throttled
    // one four times.
    for (fault, times) in [(Fault::Conflict, 1), (Fault::Throttle, 4), (Fault::FailBefore, 4)] {
        for (step, spared) in [("claim", 0), ("acquire", 1)] {
            let case = format!("{fault:?} at {step}");
            let (world, sandbox, id) = published_page_with_request().await;
            sandbox.inject(On::next("PutItem").after(spared).times(times), fault);
            let before_ms = world.now_ms();
            sandbox.invoke().await;
            assert_recovers(&world, &sandbox, &id, &case).await;
            assert!(world.now_ms() - before_ms < 40_000, "{case}: it did not wait for its own claim to expire");
            assert_eq!(number(&world.req(PAGE, &id).await.unwrap(), "attempts"), 1, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn persistent_faults_are_retried_a_bounded_number_of_times() {
    for (operation, fault) in [
        ("TransactWriteItems", Fault::Conflict),
        ("TransactWriteItems", Fault::InProgress),
        ("TransactWriteItems", Fault::Throttle),
        ("TransactWriteItems", Fault::Overload),
        ("PutObject", Fault::Conflict),
        ("PutObject", Fault::Throttle),
        ("Query", Fault::Throttle),
    ] {
        let case = format!("{fault:?} on {operation}");
        let (world, sandbox, id) = published_page_with_request().await;
        sandbox.inject(On::every(operation), fault);
        sandbox.invoke().await;
        let calls = sandbox.operations().iter().filter(|call| *call == operation).count();
        assert!(calls <= 16, "{case}: {calls} calls");
        assert_recovers(&world, &sandbox, &id, &case).await;
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_upload_of_the_same_object_succeeds() {
    for fault in [Fault::LoseResponse, Fault::FailAfter, Fault::HangAfter] {
        let (world, sandbox, id) = published_page_with_request().await;
        sandbox.inject(On::next("PutObject"), fault);
        sandbox.invoke().await;
        assert_eq!(sandbox.operations().iter().filter(|call| *call == "PutObject").count(), 2, "{fault:?}");
        assert_eq!(world.published(PAGE).await.unwrap(), "new", "{fault:?}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{fault:?}");
        assert_eq!(world.objects().await.len(), 2, "{fault:?}: old and new body");
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_epoch_does_not_ack_an_expired_request() {
    let (world, sandbox, _) = published_page_with_request().await;
    sandbox.invoke().await;
    let other = world.sandbox().await;
    other.inject(On::every("GetItem"), Fault::FailBefore);
    world.enqueue_as(PAGE, "expired").await;
    other.invoke().await;
    assert_eq!(world.queued_messages().await, 1, "its freshness is unknown");
    other.way.faults().clear();
    world.drain(&other, LONG).await;
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn missing_table_or_bucket_loses_and_publishes_nothing() {
    for missing in ["table", "bucket"] {
        let mut world = World::new().await;
        let existing = world.stack.clone();
        match missing {
            "table" => world.stack.table = "no-such-table".to_owned(),
            _ => world.stack.bucket = "no-such-bucket".to_owned(),
        }
        let misconfigured = world.sandbox().await;
        world.stack = existing;
        world.enqueue(PAGE).await;
        misconfigured.invoke().await;
        assert_eq!(world.queued_messages().await, 1, "{missing}");
        assert!(world.meta(PAGE).await.is_none() && world.objects().await.is_empty(), "{missing}");
        let sandbox = world.sandbox().await;
        world.drain(&sandbox, LONG).await;
        assert!(world.published(PAGE).await.is_some(), "{missing}");
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_call_at_the_deadline_does_not_fail_other_records() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(49));
    world.enqueue("/products/1").await;
    world.enqueue("/products/2").await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::next("PutObject"), Fault::Hang);
    // The other record's commit succeeds; the record with the hanging upload makes no further
    // write.
    sandbox.inject(On::every("TransactWriteItems").after(1), Fault::Hang);
    sandbox.invoke().await;
    assert_eq!(world.queued_messages().await, 1, "the other record is acked");
    let published = [world.meta("/products/1").await, world.meta("/products/2").await];
    assert_eq!(published.iter().flatten().count(), 1);
    sandbox.way.faults().clear();
    world.origin.takes(Duration::ZERO);
    world.drain(&sandbox, LONG).await;
    assert!(world.meta("/products/1").await.is_some() && world.meta("/products/2").await.is_some());
}

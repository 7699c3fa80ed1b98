//! Pending notifications, after a failed call or a crash: which worker sends them, and which
//! requests do not wait for them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod notifying;

use std::collections::BTreeSet;
use std::time::Duration;

use everfresh_core::config::Config;
use everfresh_core::metrics;
use everfresh_core::notifier::{Invalidate, NotifierSettings};
use everfresh_local::faults::{Fault, On};
use everfresh_testing::operators::done;
use everfresh_testing::{CONFIG, OriginFault, World, pause};

use crate::notifying::{
    LONG, PAGE, events_received, invalidations, is_pending, notifying_world, version, versions_received,
};

/// A worker publishes the page and crashes before it sends the notification.
async fn publish_and_crash(world: &World) {
    world.enqueue(PAGE).await;
    let crashing = world.sandbox().await;
    crashing.inject(On::next("CreateInvalidation"), Fault::Hang);
    crashing.invoke_killed_after(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn covered_request_does_not_wait_for_pending_notification() {
    let world = notifying_world().await;
    publish_and_crash(&world).await;
    world.enqueue_as(PAGE, "expired").await;
    let other = world.sandbox().await;
    other.invoke().await;
    assert_eq!(
        (other.total(metrics::ALREADY_COVERED), world.queued_messages().await),
        (1, 1),
        "the crashed worker's message is redelivered"
    );
    assert_eq!((invalidations(&world).len(), is_pending(&world).await), (0, true));
    world.drain(&other, LONG).await;
    assert_eq!((invalidations(&world).len(), is_pending(&world).await, world.origin.renders()), (1, false, 1));
}

#[tokio::test(start_paused = true)]
async fn next_worker_sends_orphaned_notification_and_delays_no_request() {
    let mut world = notifying_world().await;
    // Fresh for an hour: later requests have no reason to publish.
    world.config = Config::parse(&CONFIG.replace("60s", "1h")).unwrap();
    publish_and_crash(&world).await;
    // The crashed worker's claim has expired; its message is still invisible.
    pause(70).await;
    let other = world.sandbox().await;
    other.inject(On::every("CreateInvalidation").times(4), Fault::FailBefore);
    world.enqueue_as(PAGE, "expired").await;
    other.invoke().await;
    assert_eq!(
        (other.total(metrics::ALREADY_COVERED), world.queued_messages().await, is_pending(&world).await),
        (1, 1, true)
    );
    pause(61).await;
    world.enqueue_as(PAGE, "expired").await;
    other.invoke().await;
    assert_eq!(
        (other.total(metrics::ALREADY_COVERED), world.queued_messages().await, is_pending(&world).await),
        (2, 1, false)
    );
    assert_eq!((invalidations(&world).len(), events_received(&world)), (1, 1));
    world.drain(&other, LONG).await;
    assert_eq!((invalidations(&world).len(), events_received(&world), world.origin.renders()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn hanging_cdn_costs_a_batch_one_try_for_orphaned_notification() {
    let mut world = notifying_world().await;
    world.config = Config::parse(&CONFIG.replace("60s", "1h")).unwrap();
    publish_and_crash(&world).await;
    pause(70).await;
    let other = world.sandbox().await;
    other.inject(On::every("CreateInvalidation"), Fault::Hang);
    for _ in 0..9 {
        world.enqueue_as(PAGE, "expired").await;
    }
    other.invoke().await;
    assert_eq!((other.total(metrics::ALREADY_COVERED), world.queued_messages().await), (9, 1));
    assert!(is_pending(&world).await);
}

#[tokio::test(start_paused = true)]
async fn hanging_cdn_costs_a_batch_one_try_for_operators_notification() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    sandbox.inject(On::every("CreateInvalidation"), Fault::Hang);
    for _ in 0..9 {
        world.enqueue_as(PAGE, "expired").await;
    }
    let before_ms = world.now_ms();
    sandbox.invoke().await;
    assert!(world.now_ms() - before_ms < 20_000, "one try, not nine");
    // Any of them may have to send it, so all are redelivered.
    assert_eq!(
        (sandbox.total(metrics::NOTIFICATIONS_PENDING), world.queued_messages().await, is_pending(&world).await),
        (9, 9, true)
    );
    let recovered = world.sandbox().await;
    world.drain(&recovered, LONG).await;
    assert_eq!((invalidations(&world).len(), is_pending(&world).await), (2, false));
}

#[tokio::test(start_paused = true)]
async fn notification_leaves_time_for_the_batch_response() {
    // In the first case the notification is not started, in the second it is cut short.
    for time_ms in [16_000, 18_000] {
        let mut world = notifying_world().await;
        world.config = Config::parse(&CONFIG.replace("60s", "1h")).unwrap();
        publish_and_crash(&world).await;
        pause(70).await;
        let other = world.sandbox().await;
        other.inject(On::next("CreateInvalidation"), Fault::Hang);
        other.inject(On::every("CreateInvalidation"), Fault::Delay(Duration::from_millis(2_900)));
        other.inject(On::every("PutEvents"), Fault::Hang);
        world.enqueue_as(PAGE, "expired").await;
        let event = other.receive().await;
        let failed = other.handle(event, Duration::from_millis(time_ms)).await.unwrap();
        let covered = other.total(metrics::ALREADY_COVERED);
        assert_eq!((failed, covered), (Vec::new(), 1), "{time_ms} ms: acked with the notification pending");
        assert!(is_pending(&world).await, "{time_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_render_counts_as_failed_despite_operators_pending_notification() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    done(world.ledger().unpin(&world.page(PAGE), world.now_ms()).await.unwrap());
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.origin.fail_with(OriginFault::Unreachable);
    pause(10).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!((sandbox.total(metrics::FAILED), world.queued_messages().await, is_pending(&world).await), (1, 1, true));
}

#[tokio::test(start_paused = true)]
async fn request_with_pending_notification_is_not_rejected_with_its_batch() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), world.queued_messages().await), (1, 1));
    // Now the origin's address is forbidden: a changed request is rejected, in one batch with the
    // request whose notification is pending.
    world.origin.fail_with(OriginFault::Forbidden);
    pause(10).await;
    for _ in 0..5 {
        world.enqueue(PAGE).await;
    }
    pause(120).await;
    sandbox.invoke().await;
    assert_eq!((sandbox.total(metrics::FAILED), world.dead_letters().await.len()), (1, 1), "one was rendered");
    let recovered = world.sandbox().await;
    pause(900).await;
    world.drain(&recovered, LONG).await;
    assert_eq!((invalidations(&world).len(), is_pending(&world).await), (1, false));
    assert_eq!(world.dead_letters().await.len(), 5, "the changed requests, and not the one that notified");
}

#[tokio::test(start_paused = true)]
async fn failed_render_still_sends_orphaned_notification() {
    let world = notifying_world().await;
    publish_and_crash(&world).await;
    pause(70).await;
    world.origin.fail_with(OriginFault::Unreachable);
    let other = world.sandbox().await;
    world.enqueue(PAGE).await;
    other.invoke().await;
    assert_eq!((other.total(metrics::FAILED), is_pending(&world).await), (1, false));
    assert_eq!((invalidations(&world).len(), events_received(&world)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn commit_without_subscribers_keeps_notification_pending() {
    let mut world = notifying_world().await;
    publish_and_crash(&world).await;
    let with_subscribers = world.sandbox().await;
    world.notifier = NotifierSettings::default();
    let without_subscribers = world.sandbox().await;
    pause(90).await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    without_subscribers.invoke().await;
    assert_eq!((without_subscribers.total(metrics::COMMITTED), is_pending(&world).await), (1, true));
    world.drain(&with_subscribers, LONG).await;
    assert_eq!((invalidations(&world).len(), is_pending(&world).await), (1, false));
}

#[tokio::test(start_paused = true)]
async fn cooldown_does_not_ack_request_with_pending_notification() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), world.queued_messages().await), (1, 1));
    // Now the render fails, and changed requests are in cooldown, in one batch with the request
    // whose notification is pending.
    world.origin.fail_with(OriginFault::Unreachable);
    pause(3).await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::FAILED), 1);
    for _ in 0..5 {
        world.enqueue(PAGE).await;
    }
    pause(5).await;
    sandbox.invoke().await;
    assert!(sandbox.total(metrics::NOTIFICATIONS_PENDING) > 1, "it was in the batch");
    assert_eq!((world.queued_messages().await, is_pending(&world).await), (7, true));
}

#[tokio::test(start_paused = true)]
async fn stale_origin_does_not_ack_request_with_pending_notification() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.origin.is_cached(Duration::from_secs(3_600), false);
    let unnotified = world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), world.queued_messages().await), (1, 1));
    // A changed request meets the old page in the origin's cache, in one batch and before the
    // request whose notification is pending.
    pause(10).await;
    let changed = world.enqueue(PAGE).await;
    let mut event = sandbox.receive().await;
    event.records.sort_by_key(|record| record.message_id.as_deref() != Some(changed.as_str()));
    assert_eq!(event.records.len(), 2);
    let again = sandbox.handle(event, Duration::from_secs(60)).await.unwrap();
    assert!(again.contains(&unnotified), "acked with its notification pending");
    assert!(is_pending(&world).await);
}

#[tokio::test(start_paused = true)]
async fn failed_notification_redelivers_only_the_publishing_request() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    for _ in 0..3 {
        world.enqueue(PAGE).await;
    }
    sandbox.invoke().await;
    assert_eq!(
        (
            sandbox.total(metrics::NOTIFICATIONS_PENDING),
            sandbox.total(metrics::ALREADY_COVERED),
            world.queued_messages().await
        ),
        (1, 2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn unchanged_without_subscribers_keeps_notification_pending() {
    let mut world = notifying_world().await;
    publish_and_crash(&world).await;
    pause(90).await;
    let with_subscribers = world.sandbox().await;
    world.notifier = NotifierSettings::default();
    let without_subscribers = world.sandbox().await;
    world.enqueue_as(PAGE, "expired").await;
    without_subscribers.invoke().await;
    assert_eq!((without_subscribers.total(metrics::UNCHANGED), is_pending(&world).await), (1, true));
    world.drain(&with_subscribers, LONG).await;
    assert_eq!((invalidations(&world).len(), is_pending(&world).await), (1, false));
}

#[tokio::test(start_paused = true)]
async fn notification_survives_an_hour_of_cdn_outage() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
    assert_eq!(
        (sandbox.total(metrics::NOTIFICATIONS_PENDING), world.queued_messages().await, events_received(&world)),
        (1, 1, 0)
    );
    let recovered = world.sandbox().await;
    for _ in 0..60 {
        pause(60).await;
        sandbox.invoke().await;
    }
    assert_eq!(
        (world.queued_messages().await, world.dead_letters().await.len()),
        (1, 0),
        "it is retried, not rejected"
    );
    world.drain(&recovered, LONG).await;
    assert_eq!((invalidations(&world).len(), world.origin.renders(), is_pending(&world).await), (1, 1, false));
    assert_eq!(events_received(&world), 1, "one event, after the outage");
}

#[tokio::test(start_paused = true)]
async fn pending_notification_is_sent_for_the_next_version() {
    let world = notifying_world().await;
    publish_and_crash(&world).await;
    pause(90).await;
    // The page has expired, so it is rendered; the content is unchanged.
    let sandbox = world.sandbox().await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::UNCHANGED), 1);
    assert_eq!(
        (invalidations(&world).len(), versions_received(&world), events_received(&world)),
        (1, BTreeSet::from([version(&world).await]), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn request_acked_for_stale_origin_sends_operators_notification() {
    const KEPT: &str = "/kept/1";
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    let versions = world.publish(&sandbox, KEPT, &["one", "two"]).await;
    let page = world.page(KEPT);
    done(world.ledger().roll_back(&page, &versions[0]).await.unwrap());
    done(world.ledger().unpin(&page, world.now_ms()).await.unwrap());
    // The origin's cache has only content that is older than the published version.
    world.origin.answers(200, &[("content-type", "text/html"), ("age", "300")], "zero");
    pause(70).await;
    let received = events_received(&world);
    world.enqueue_as(KEPT, "expired").await;
    sandbox.invoke().await;
    assert_eq!((world.published(KEPT).await.as_deref(), world.queued_messages().await), (Some("one"), 0));
    assert_eq!(events_received(&world), received + 1);
    assert!(!world.meta(KEPT).await.unwrap().contains_key("pending_notification"));
}

#[tokio::test(start_paused = true)]
async fn page_restored_after_an_unnotified_takedown_is_still_invalidated() {
    for by_operator in [false, true] {
        let mut world = notifying_world().await;
        world.notifier.invalidate = Invalidate::Withdrawals;
        let sandbox = world.sandbox().await;
        world.publish(&sandbox, PAGE, &["one"]).await;
        assert_eq!(invalidations(&world).len(), 0, "{by_operator}");
        let page = world.page(PAGE);
        if by_operator {
            done(world.ledger().purge(&page).await.unwrap());
            done(world.ledger().unpin(&page, world.now_ms()).await.unwrap());
        } else {
            let crashing = world.sandbox().await;
            crashing.inject(On::next("CreateInvalidation"), Fault::Hang);
            world.origin.answers(200, &[("content-type", "text/html"), ("cache-control", "private")], "mine");
            world.enqueue(PAGE).await;
            crashing.invoke_killed_after(Duration::from_secs(5)).await;
        }
        assert!(is_pending(&world).await, "{by_operator}");
        // Two versions later the page is public again, and CloudFront answers again.
        pause(10).await;
        let restoring = world.sandbox().await;
        restoring.inject(On::every("CreateInvalidation"), Fault::FailBefore);
        for content in ["two", "three"] {
            world.origin.answers(200, &[("content-type", "text/html")], content);
            world.enqueue(PAGE).await;
            restoring.invoke().await;
            assert_eq!(world.published(PAGE).await.as_deref(), Some(content), "{by_operator}");
            pause(10).await;
        }
        let recovered = world.sandbox().await;
        world.drain(&recovered, LONG).await;
        assert_eq!((invalidations(&world).len(), is_pending(&world).await), (1, false), "{by_operator}");
    }
}

//! After a commit the CDN is invalidated and subscribers receive an event, also across crashes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod notifying;

use std::collections::BTreeSet;
use std::time::Duration;

use everfresh_core::metrics;
use everfresh_core::notifier::EventTarget;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::operators::done;
use everfresh_testing::{World, text};
use serde_json::json;

use crate::notifying::{
    BUS, LONG, PAGE, events_received, invalidations, is_pending, notifying_world, subscribers, version,
    versions_received,
};

/// Just past the visibility timeout of a killed worker's message.
const REDELIVERED: Duration = Duration::from_millis(401_000);

fn own_tag(world: &World) -> String {
    format!("#.acme:{}", world.page(PAGE).hash())
}

#[tokio::test(start_paused = true)]
async fn published_page_invalidates_cdn_and_notifies_subscribers() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(invalidations(&world), [[own_tag(&world)]]);
    let meta = world.meta(PAGE).await.unwrap();
    let [event] = subscribers(&world).events().try_into().unwrap();
    assert_eq!((event.target.as_str(), event.kind), (BUS, ("everfresh".to_owned(), "Page Regenerated".to_owned())));
    let id = subscribers(&world).invalidations().into_keys().next().unwrap();
    let expected = json!({
        "id": id, "tenant": "acme", "path": PAGE, "version": text(&meta, "version"), "status": 200, "etag": text(&meta, "etag"),
        "tags": ["products", "product-42"], "generated_at": everfresh_testing::number(&meta, "generated_at"),
    });
    assert_eq!(event.detail, expected);
    assert!(!is_pending(&world).await);
    assert_eq!((sandbox.total(metrics::COMMITTED), world.queued_messages().await), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn without_subscribers_no_notification_call_is_made() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert!(!is_pending(&world).await);
    assert_eq!(sandbox.operations().last().map(String::as_str), Some("TransactWriteItems"));
}

#[tokio::test(start_paused = true)]
async fn new_tags_or_a_shorter_life_invalidate_only_the_cdn() {
    let html = ("content-type", "text/html");
    for changed in [("cache-tag", "sale"), ("cache-control", "s-maxage=5")] {
        let world = notifying_world().await;
        let sandbox = world.sandbox().await;
        world.origin.answers(200, &[html], "one");
        world.enqueue(PAGE).await;
        sandbox.invoke().await;
        everfresh_testing::pause(10).await;
        world.origin.answers(200, &[html, changed], "one");
        world.enqueue(PAGE).await;
        sandbox.invoke().await;
        assert_eq!((sandbox.total(metrics::UNCHANGED), is_pending(&world).await), (1, false));
        assert_eq!((invalidations(&world).len(), events_received(&world)), (2, 1), "{changed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unchanged_content_sends_no_notification() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one", "one", "two"]).await;
    assert_eq!(sandbox.total(metrics::UNCHANGED), 1);
    assert_eq!((invalidations(&world).len(), events_received(&world)), (2, 2));
    assert!(!is_pending(&world).await);
}

#[tokio::test(start_paused = true)]
async fn redelivery_sends_pending_notification() {
    for operation in ["CreateInvalidation", "PutEvents", "UpdateItem"] {
        for (when, fault) in [("before", Fault::Hang), ("after", Fault::HangAfter)] {
            let world = notifying_world().await;
            world.enqueue(PAGE).await;
            let crashing = world.sandbox().await;
            crashing.inject(On::next(operation), fault);
            crashing.invoke_killed_after(Duration::from_secs(5)).await;
            let published = version(&world).await;
            assert_eq!(is_pending(&world).await, (operation, when) != ("UpdateItem", "after"), "{when} {operation}");
            assert_eq!(world.queued_messages().await, 1, "{when} {operation}: not acked");

            tokio::time::sleep(REDELIVERED).await;
            let healthy = world.sandbox().await;
            world.drain(&healthy, Duration::from_secs(60)).await;
            assert_eq!(invalidations(&world), [[own_tag(&world)]], "{when} {operation}");
            assert_eq!(versions_received(&world), BTreeSet::from([published.clone()]), "{when} {operation}");
            assert!(events_received(&world) <= 2, "{when} {operation}");
            assert_eq!((version(&world).await, is_pending(&world).await), (published, false), "{when} {operation}");
            assert_eq!((world.queued_messages().await, world.origin.renders()), (0, 1), "{when} {operation}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn replayed_request_is_acked_only_after_its_notification() {
    let world = notifying_world().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    world.send(&body).await;
    world.send(&body).await;
    // The slow worker looks up before the other commits, and claims only after that one was killed.
    let (slow, crashing) = (world.sandbox().await.one_by_one(), world.sandbox().await.one_by_one());
    slow.inject(On::next("PutItem"), Fault::Delay(Duration::from_millis(2_500)));
    crashing.inject(On::next("CreateInvalidation"), Fault::Hang);
    tokio::join!(slow.invoke(), crashing.invoke_killed_after(Duration::from_millis(2_200)));
    assert_eq!((slow.total(metrics::REPLAYED), world.origin.renders()), (1, 1));
    assert_eq!((invalidations(&world), is_pending(&world).await), (vec![vec![own_tag(&world)]], false));
}

#[tokio::test(start_paused = true)]
async fn event_entry_refused_by_bus_is_sent_again() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    subscribers(&world).refuse_entries(1);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), events_received(&world)), (1, 0));
    world.drain(&sandbox, LONG).await;
    assert_eq!((events_received(&world), invalidations(&world).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn without_tag_header_page_is_invalidated_by_path() {
    let mut world = notifying_world().await;
    world.notifier.by_tag = false;
    world.notifier.event_target = None;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    world.send(r#"{"v":1,"tenant":"acme","tag":"products"}"#).await;
    sandbox.invoke().await;
    assert_eq!(invalidations(&world), [[PAGE]], "a tag cannot be invalidated");
    assert_eq!((events_received(&world), world.queued_messages().await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn tag_request_invalidates_cdn_once_despite_crash() {
    for (when, fault) in [("before", Fault::Hang), ("after", Fault::HangAfter)] {
        let world = notifying_world().await;
        world.send(r#"{"v":1,"tenant":"acme","tag":"products"}"#).await;
        let crashing = world.sandbox().await;
        crashing.inject(On::next("CreateInvalidation"), fault);
        crashing.invoke_killed_after(Duration::from_secs(5)).await;
        tokio::time::sleep(REDELIVERED).await;
        let sandbox = world.sandbox().await;
        sandbox.inject(On::next("CreateInvalidation"), Fault::Throttle);
        world.drain(&sandbox, LONG).await;
        assert_eq!(invalidations(&world), [["#acme:products"]], "{when}");
        assert_eq!((events_received(&world), world.queued_messages().await), (0, 0), "{when}: no page is regenerated");
    }
}

#[tokio::test(start_paused = true)]
async fn sns_topic_is_notified_and_fifo_topic_deduplicates() {
    let at_once = Duration::from_secs(1);
    for (name, again_after, times) in
        [("site", REDELIVERED, 2), ("site.fifo", REDELIVERED, 2), ("site.fifo", at_once, 1)]
    {
        let mut world = notifying_world().await;
        let arn = format!("arn:aws:sns:us-east-1:000000000000:{name}");
        world.notifier.event_target = EventTarget::parse(&arn);
        let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
        world.send(&body).await;
        let crashing = world.sandbox().await;
        crashing.inject(On::next("UpdateItem"), Fault::Hang);
        crashing.invoke_killed_after(Duration::from_secs(5)).await;
        tokio::time::sleep(again_after).await;
        // The same request in a second message: the first is still invisible after the kill.
        world.send(&body).await;
        let sandbox = world.sandbox().await;
        sandbox.invoke().await;
        let events = subscribers(&world).events();
        assert_eq!(events.len(), times, "{name} after {again_after:?}");
        assert!(events.iter().all(|event| *event == events[0]), "{name}: same event id");
        assert_eq!((events[0].target.as_str(), events[0].kind.1.as_str()), (arn.as_str(), "Page Regenerated"));
        assert_eq!(events[0].detail["path"], PAGE);
    }
}

#[tokio::test(start_paused = true)]
async fn next_worker_sends_operators_pending_notification() {
    let world = notifying_world().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    assert!(is_pending(&world).await);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.invoke().await;
    assert_eq!((invalidations(&world).len(), is_pending(&world).await, world.queued_messages().await), (2, false, 0));
    assert_eq!(subscribers(&world).events().last().unwrap().detail["status"], 410);
}

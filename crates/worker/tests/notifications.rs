//! After a commit: the CDN forgets, subscribers hear, and no crash keeps the news from them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod notified;

use std::collections::BTreeSet;
use std::time::Duration;

use everfresh_core::metrics;
use everfresh_core::notifier::EventTarget;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::operators::done;
use everfresh_testing::{World, text};
use serde_json::json;

use crate::notified::{BUS, LONG, PAGE, forgotten, heard, is_due, subscribers, telling, version};

/// Until a dead worker's message is visible again.
const REDELIVERED: Duration = Duration::from_millis(401_000);

fn own_tag(world: &World) -> String {
    format!("#.acme:{}", world.page(PAGE).hash())
}

#[tokio::test(start_paused = true)]
async fn a_published_page_is_forgotten_by_the_cdn_and_told_to_listeners() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(forgotten(&world), [[own_tag(&world)]]);
    let meta = world.meta(PAGE).await.unwrap();
    let [event] = subscribers(&world).events().try_into().unwrap();
    assert_eq!((event.target.as_str(), event.kind), (BUS, ("everfresh".to_owned(), "Page Regenerated".to_owned())));
    let id = subscribers(&world).invalidations().into_keys().next().unwrap();
    let expected = json!({
        "id": id, "tenant": "acme", "path": PAGE, "version": text(&meta, "version"), "status": 200, "etag": text(&meta, "etag"),
        "tags": ["products", "product-42"], "generated_at": everfresh_testing::number(&meta, "generated_at"),
    });
    assert_eq!(event.detail, expected);
    assert!(!is_due(&world).await);
    assert_eq!((sandbox.total(metrics::COMMITTED), world.waiting().await), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_tells_nobody_pays_nothing_for_it() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert!(!is_due(&world).await);
    assert_eq!(sandbox.operations().last().map(String::as_str), Some("TransactWriteItems"));
}

#[tokio::test(start_paused = true)]
async fn content_that_did_not_change_is_no_news() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one", "one", "two"]).await;
    assert_eq!(sandbox.total(metrics::UNCHANGED), 1);
    assert_eq!((forgotten(&world).len(), heard(&world).1), (2, 2));
    assert!(!is_due(&world).await);
}

#[tokio::test(start_paused = true)]
async fn killed_between_commit_and_ack_the_redelivery_tells_what_was_not_told() {
    for operation in ["CreateInvalidation", "PutEvents", "UpdateItem"] {
        for (when, fault) in [("before", Fault::Hang), ("after", Fault::NotifyBackoff)] {
            let world = telling().await;
            world.enqueue(PAGE).await;
            let doomed = world.sandbox().await;
            doomed.inject(On::next(operation), fault);
            doomed.turn_killed_after(Duration::from_secs(5)).await;
            let published = version(&world).await;
            assert_eq!(is_due(&world).await, (operation, when) != ("UpdateItem", "after"), "{when} {operation}");
            assert_eq!(world.waiting().await, 1, "{when} {operation}: not acked");

            tokio::time::sleep(REDELIVERED).await;
            let healthy = world.sandbox().await;
            world.drain(&healthy, Duration::from_secs(60)).await;
            assert_eq!(forgotten(&world), [[own_tag(&world)]], "{when} {operation}");
            assert_eq!(heard(&world).0, BTreeSet::from([published.clone()]), "{when} {operation}");
            assert!(heard(&world).1 <= 2, "{when} {operation}");
            assert_eq!((version(&world).await, is_due(&world).await), (published, false), "{when} {operation}");
            assert_eq!((world.waiting().await, world.origin.renders()), (0, 1), "{when} {operation}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_came_twice_is_not_acked_before_its_news_is_told() {
    let world = telling().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
    world.send(&body).await;
    world.send(&body).await;
    // One looks up before the other commits, and comes to its claim only after that one has died.
    let (slow, doomed) = (world.sandbox().await.one_by_one(), world.sandbox().await.one_by_one());
    slow.inject(On::next("PutItem"), Fault::Delay(Duration::from_millis(2_500)));
    doomed.inject(On::next("CreateInvalidation"), Fault::Hang);
    tokio::join!(slow.turn(), doomed.turn_killed_after(Duration::from_millis(2_200)));
    assert_eq!((slow.total(metrics::REPLAYED), world.origin.renders()), (1, 1));
    assert_eq!((forgotten(&world), is_due(&world).await), (vec![vec![own_tag(&world)]], false));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_bus_takes_and_refuses_comes_again() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    subscribers(&world).refuse_entries(1);
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), heard(&world).1), (1, 0));
    world.drain(&sandbox, LONG).await;
    assert_eq!((heard(&world).1, forgotten(&world).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn without_tags_a_page_is_forgotten_by_its_path() {
    let mut world = telling().await;
    world.notifier.by_tag = false;
    world.notifier.event_target = None;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    world.send(r#"{"v":1,"tenant":"acme","tag":"products"}"#).await;
    sandbox.turn().await;
    assert_eq!(forgotten(&world), [[PAGE]], "a tag cannot be told");
    assert_eq!((heard(&world).1, world.waiting().await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_tag_is_forgotten_once_whatever_happens_to_its_message() {
    for (when, fault) in [("before", Fault::Hang), ("after", Fault::NotifyBackoff)] {
        let world = telling().await;
        world.send(r#"{"v":1,"tenant":"acme","tag":"products"}"#).await;
        let doomed = world.sandbox().await;
        doomed.inject(On::next("CreateInvalidation"), fault);
        doomed.turn_killed_after(Duration::from_secs(5)).await;
        tokio::time::sleep(REDELIVERED).await;
        let sandbox = world.sandbox().await;
        sandbox.inject(On::next("CreateInvalidation"), Fault::Throttle);
        world.drain(&sandbox, LONG).await;
        assert_eq!(forgotten(&world), [["#acme:products"]], "{when}");
        assert_eq!((heard(&world).1, world.waiting().await), (0, 0), "{when}: nothing is regenerated yet");
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_told_too_and_a_fifo_topic_recognises_what_it_was_just_told() {
    let at_once = Duration::from_secs(1);
    for (name, again_after, times) in
        [("site", REDELIVERED, 2), ("site.fifo", REDELIVERED, 2), ("site.fifo", at_once, 1)]
    {
        let mut world = telling().await;
        let arn = format!("arn:aws:sns:us-east-1:000000000000:{name}");
        world.notifier.event_target = EventTarget::parse(&arn);
        let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}","idempotency_key":"k"}}"#);
        world.send(&body).await;
        let doomed = world.sandbox().await;
        doomed.inject(On::next("UpdateItem"), Fault::Hang);
        doomed.turn_killed_after(Duration::from_secs(5)).await;
        tokio::time::sleep(again_after).await;
        // The request once more: a copy, for its own message is still with the dead worker's queue.
        world.send(&body).await;
        let sandbox = world.sandbox().await;
        sandbox.turn().await;
        let events = subscribers(&world).events();
        assert_eq!(events.len(), times, "{name} after {again_after:?}");
        assert!(events.iter().all(|event| *event == events[0]), "{name}: known by its id");
        assert_eq!((events[0].target.as_str(), events[0].kind.1.as_str()), (arn.as_str(), "Page Regenerated"));
        assert_eq!(events[0].detail["path"], PAGE);
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_published_is_told_by_the_next_worker_at_once() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    assert!(is_due(&world).await);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!((forgotten(&world).len(), is_due(&world).await, world.waiting().await), (2, false, 0));
    assert_eq!(subscribers(&world).events().last().unwrap().detail["status"], 410);
}

//! After a commit: the CDN forgets, listeners hear, and no crash keeps the news from them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use everfresh_core::config::Config;
use everfresh_core::downstream::{DownstreamSettings, EventTarget};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_local::listeners::Listeners;
use everfresh_testing::operators::done;
use everfresh_testing::{Breaks, CONFIG, World, pause, text};
use serde_json::json;

const PAGE: &str = "/products/42";
const BUS: &str = "arn:aws:events:us-east-1:000000000000:event-bus/site";
/// Until a dead worker's message is visible again.
const REDELIVERED: Duration = Duration::from_millis(401_000);
const LONG: Duration = Duration::from_secs(7_200);

/// A world whose workers tell a distribution, by tag, and a bus.
async fn telling() -> World {
    let mut world = World::new().await;
    world.downstream = DownstreamSettings {
        distribution: Some("E1EXAMPLE".to_owned()),
        by_tag: true,
        event_target: EventTarget::parse(BUS),
    };
    world
}

fn listeners(world: &World) -> &Listeners {
    world.engines.listeners()
}

/// What the CDN was asked to forget, request by request.
fn forgotten(world: &World) -> Vec<Vec<String>> {
    listeners(world).invalidations().into_values().collect()
}

/// The versions that listeners heard of, and how often they were told in all.
fn heard(world: &World) -> (BTreeSet<String>, usize) {
    let events = listeners(world).events();
    let versions = events.iter().map(|event| event.detail["version"].as_str().unwrap().to_owned());
    (versions.collect(), events.len())
}

async fn version(world: &World) -> String {
    text(&world.meta(PAGE).await.unwrap(), "version")
}

async fn is_due(world: &World) -> bool {
    world.meta(PAGE).await.unwrap().contains_key("downstream_due")
}

/// A worker publishes the page and dies before anybody is told.
async fn publish_and_die(world: &World) {
    world.enqueue(PAGE).await;
    let doomed = world.sandbox().await;
    doomed.inject(On::next("CreateInvalidation"), Fault::Hang);
    doomed.turn_killed_after(Duration::from_secs(5)).await;
}

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
    let [event] = listeners(&world).events().try_into().unwrap();
    assert_eq!((event.target.as_str(), event.kind), (BUS, ("everfresh".to_owned(), "Page Regenerated".to_owned())));
    let id = listeners(&world).invalidations().into_keys().next().unwrap();
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
        for (when, fault) in [("before", Fault::Hang), ("after", Fault::Silence)] {
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
async fn nobody_waits_for_anothers_news() {
    let world = telling().await;
    publish_and_die(&world).await;
    world.enqueue_as(PAGE, "expired").await;
    let other = world.sandbox().await;
    other.turn().await;
    assert_eq!(
        (other.total(metrics::ALREADY_COVERED), world.waiting().await),
        (1, 1),
        "the dead one's message comes again"
    );
    assert_eq!((forgotten(&world).len(), is_due(&world).await), (0, true));
    world.drain(&other, LONG).await;
    assert_eq!((forgotten(&world).len(), is_due(&world).await, world.origin.renders()), (1, false, 1));
}

#[tokio::test(start_paused = true)]
async fn news_that_a_dead_worker_left_behind_is_told_by_whoever_comes_next_and_keeps_nobody() {
    let mut world = telling().await;
    // Fresh for long: those who come later have no reason to publish anything.
    world.config = Config::parse(&CONFIG.replace("60s", "1h")).unwrap();
    publish_and_die(&world).await;
    // Its claim has run out; its own message is still hidden.
    pause(70).await;
    let other = world.sandbox().await;
    other.inject(On::every("CreateInvalidation").times(4), Fault::FailBefore);
    world.enqueue_as(PAGE, "expired").await;
    other.turn().await;
    assert_eq!((other.total(metrics::ALREADY_COVERED), world.waiting().await, is_due(&world).await), (1, 1, true));
    pause(61).await;
    world.enqueue_as(PAGE, "expired").await;
    other.turn().await;
    assert_eq!((other.total(metrics::ALREADY_COVERED), world.waiting().await, is_due(&world).await), (2, 1, false));
    assert_eq!((forgotten(&world).len(), heard(&world).1), (1, 1));
    world.drain(&other, LONG).await;
    assert_eq!((forgotten(&world).len(), heard(&world).1, world.origin.renders()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn while_the_cdn_hangs_what_others_left_behind_costs_a_batch_one_try() {
    let mut world = telling().await;
    world.config = Config::parse(&CONFIG.replace("60s", "1h")).unwrap();
    publish_and_die(&world).await;
    pause(70).await;
    let other = world.sandbox().await;
    other.inject(On::every("CreateInvalidation"), Fault::Hang);
    for _ in 0..9 {
        world.enqueue_as(PAGE, "expired").await;
    }
    other.turn().await;
    assert_eq!((other.total(metrics::ALREADY_COVERED), world.waiting().await), (9, 1));
    assert!(is_due(&world).await);
}

#[tokio::test(start_paused = true)]
async fn while_the_cdn_hangs_what_an_operator_published_costs_a_batch_one_try() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    sandbox.inject(On::every("CreateInvalidation"), Fault::Hang);
    for _ in 0..9 {
        world.enqueue_as(PAGE, "expired").await;
    }
    let before_ms = world.now_ms();
    sandbox.turn().await;
    assert!(world.now_ms() - before_ms < 20_000, "one try, and not nine");
    // It falls to whichever comes next, so all of them come again.
    assert_eq!((sandbox.total(metrics::UNTOLD), world.waiting().await, is_due(&world).await), (9, 9, true));
    let recovered = world.sandbox().await;
    world.drain(&recovered, LONG).await;
    assert_eq!((forgotten(&world).len(), is_due(&world).await), (2, false));
}

#[tokio::test(start_paused = true)]
async fn telling_takes_no_more_of_an_invocation_than_its_answers_need() {
    // With less time it is not begun, with more it is cut short.
    for time_ms in [16_000, 18_000] {
        let mut world = telling().await;
        world.config = Config::parse(&CONFIG.replace("60s", "1h")).unwrap();
        publish_and_die(&world).await;
        pause(70).await;
        let other = world.sandbox().await;
        other.inject(On::next("CreateInvalidation"), Fault::Hang);
        other.inject(On::every("CreateInvalidation"), Fault::Delay(Duration::from_millis(2_900)));
        other.inject(On::every("PutEvents"), Fault::Hang);
        world.enqueue_as(PAGE, "expired").await;
        let event = other.receive().await;
        let failed = other.handle(event, Duration::from_millis(time_ms)).await.unwrap();
        let granted = other.total(metrics::ALREADY_COVERED);
        assert_eq!((failed, granted), (Vec::new(), 1), "{time_ms} ms: granted, whoever has not heard");
        assert!(is_due(&world).await, "{time_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_render_that_fails_is_told_as_that_although_an_operators_news_cannot_be_told() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    world.publish(&sandbox, PAGE, &["one"]).await;
    done(world.ledger().purge(&world.page(PAGE)).await.unwrap());
    done(world.ledger().unpin(&world.page(PAGE), world.now_ms()).await.unwrap());
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.origin.breaks(Breaks::Unreachable);
    pause(10).await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!((sandbox.total(metrics::FAILED), world.waiting().await, is_due(&world).await), (1, 1, true));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_news_is_not_given_up_because_another_was() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!((sandbox.total(metrics::UNTOLD), world.waiting().await), (1, 1));
    // Now the page's origin may not be asked any more, and one that wants it changed is rejected, in one batch with the one that has to tell.
    world.origin.breaks(Breaks::Forbidden);
    pause(10).await;
    for _ in 0..5 {
        world.enqueue(PAGE).await;
    }
    pause(120).await;
    sandbox.turn().await;
    assert_eq!((sandbox.total(metrics::FAILED), world.dead_letters().await.len()), (1, 1), "one was tried");
    let recovered = world.sandbox().await;
    pause(900).await;
    world.drain(&recovered, LONG).await;
    assert_eq!((forgotten(&world).len(), is_due(&world).await), (1, false));
    assert_eq!(world.dead_letters().await.len(), 5, "those that were tried, and not the one that has told");
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_origin_fails_still_tells_what_was_left_behind() {
    let world = telling().await;
    publish_and_die(&world).await;
    pause(70).await;
    world.origin.breaks(Breaks::Unreachable);
    let other = world.sandbox().await;
    world.enqueue(PAGE).await;
    other.turn().await;
    assert_eq!((other.total(metrics::FAILED), is_due(&world).await), (1, false));
    assert_eq!((forgotten(&world).len(), heard(&world).1), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_knows_nobody_and_has_new_content_leaves_the_news_too() {
    let mut world = telling().await;
    publish_and_die(&world).await;
    let knowing = world.sandbox().await;
    world.downstream = DownstreamSettings::default();
    let unknowing = world.sandbox().await;
    pause(90).await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    unknowing.turn().await;
    assert_eq!((unknowing.total(metrics::COMMITTED), is_due(&world).await), (1, true));
    world.drain(&knowing, LONG).await;
    assert_eq!((forgotten(&world).len(), is_due(&world).await), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_that_others_met_does_not_end_a_request_that_has_news() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!((sandbox.total(metrics::UNTOLD), world.waiting().await), (1, 1));
    // Now the page fails, and those who want it changed meet the cooldown, in one batch with the one that has to tell.
    world.origin.breaks(Breaks::Unreachable);
    pause(3).await;
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::FAILED), 1);
    for _ in 0..5 {
        world.enqueue(PAGE).await;
    }
    pause(5).await;
    sandbox.turn().await;
    assert!(sandbox.total(metrics::UNTOLD) > 1, "the batch had it");
    assert_eq!((world.waiting().await, is_due(&world).await), (7, true));
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_whose_news_cannot_be_told_only_the_one_that_published_comes_again() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    for _ in 0..3 {
        world.enqueue(PAGE).await;
    }
    sandbox.turn().await;
    assert_eq!(
        (sandbox.total(metrics::UNTOLD), sandbox.total(metrics::ALREADY_COVERED), world.waiting().await),
        (1, 2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_knows_nobody_leaves_the_news_to_one_that_does() {
    let mut world = telling().await;
    publish_and_die(&world).await;
    pause(90).await;
    let knowing = world.sandbox().await;
    world.downstream = DownstreamSettings::default();
    let unknowing = world.sandbox().await;
    world.enqueue_as(PAGE, "expired").await;
    unknowing.turn().await;
    assert_eq!((unknowing.total(metrics::UNCHANGED), is_due(&world).await), (1, true));
    world.drain(&knowing, LONG).await;
    assert_eq!((forgotten(&world).len(), is_due(&world).await), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_cdn_that_is_down_for_an_hour_is_told_afterwards_and_the_page_is_published_meanwhile() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(world.published(PAGE).await.as_deref(), Some("one"));
    assert_eq!((sandbox.total(metrics::UNTOLD), world.waiting().await, heard(&world).1), (1, 1, 0));
    let recovered = world.sandbox().await;
    for _ in 0..60 {
        pause(60).await;
        sandbox.turn().await;
    }
    assert_eq!((world.waiting().await, world.dead_letters().await.len()), (1, 0), "it waits, and is not given up");
    world.drain(&recovered, LONG).await;
    assert_eq!((forgotten(&world).len(), world.origin.renders(), is_due(&world).await), (1, 1, false));
    assert_eq!(heard(&world).1, 1, "it was not told of meanwhile");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_bus_takes_and_refuses_comes_again() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    listeners(&world).refuse_entries(1);
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!((sandbox.total(metrics::UNTOLD), heard(&world).1), (1, 0));
    world.drain(&sandbox, LONG).await;
    assert_eq!((heard(&world).1, forgotten(&world).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_nobody_was_told_of_is_told_under_the_next_one() {
    let world = telling().await;
    publish_and_die(&world).await;
    pause(90).await;
    // Its age makes it render; the content is the old one.
    let sandbox = world.sandbox().await;
    world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::UNCHANGED), 1);
    assert_eq!((forgotten(&world).len(), heard(&world)), (1, (BTreeSet::from([version(&world).await]), 1)));
}

#[tokio::test(start_paused = true)]
async fn without_tags_a_page_is_forgotten_by_its_path() {
    let mut world = telling().await;
    world.downstream.by_tag = false;
    world.downstream.event_target = None;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    world.send(r#"{"v":1,"tenant":"acme","tag":"products"}"#).await;
    sandbox.turn().await;
    assert_eq!(forgotten(&world), [[PAGE]], "a tag cannot be told");
    assert_eq!((heard(&world).1, world.waiting().await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_tag_is_forgotten_once_whatever_happens_to_its_message() {
    for (when, fault) in [("before", Fault::Hang), ("after", Fault::Silence)] {
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
        world.downstream.event_target = EventTarget::parse(&arn);
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
        let events = listeners(&world).events();
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
    assert_eq!(listeners(&world).events().last().unwrap().detail["status"], 410);
}

//! News that could not be told, or that nobody is left to tell: who tells it, and who does not wait for that.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod notified;

use std::collections::BTreeSet;
use std::time::Duration;

use everfresh_core::config::Config;
use everfresh_core::metrics;
use everfresh_core::notifier::NotifierSettings;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::operators::done;
use everfresh_testing::{Breaks, CONFIG, World, pause};

use crate::notified::{LONG, PAGE, forgotten, heard, is_due, telling, version};

/// A worker publishes the page and dies before anybody is told.
async fn publish_and_die(world: &World) {
    world.enqueue(PAGE).await;
    let doomed = world.sandbox().await;
    doomed.inject(On::next("CreateInvalidation"), Fault::Hang);
    doomed.turn_killed_after(Duration::from_secs(5)).await;
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
    assert_eq!(
        (sandbox.total(metrics::NOTIFICATIONS_PENDING), world.waiting().await, is_due(&world).await),
        (9, 9, true)
    );
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
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), world.waiting().await), (1, 1));
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
    world.notifier = NotifierSettings::default();
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
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), world.waiting().await), (1, 1));
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
    assert!(sandbox.total(metrics::NOTIFICATIONS_PENDING) > 1, "the batch had it");
    assert_eq!((world.waiting().await, is_due(&world).await), (7, true));
}

#[tokio::test(start_paused = true)]
async fn stale_origin_that_another_met_does_not_end_a_pending_notification() {
    let world = telling().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("CreateInvalidation"), Fault::FailBefore);
    world.origin.is_cached(Duration::from_secs(3_600), false);
    let untold = world.enqueue_as(PAGE, "expired").await;
    sandbox.turn().await;
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), world.waiting().await), (1, 1));
    // Somebody wants the page changed, and the origin's cache has only the old one: in one batch, before the one that has to notify.
    pause(10).await;
    let changed = world.enqueue(PAGE).await;
    let mut event = sandbox.receive().await;
    event.records.sort_by_key(|record| record.message_id.as_deref() != Some(changed.as_str()));
    assert_eq!(event.records.len(), 2);
    let again = sandbox.handle(event, Duration::from_secs(60)).await.unwrap();
    assert!(again.contains(&untold), "acked, and its notification is pending");
    assert!(is_due(&world).await);
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
        (sandbox.total(metrics::NOTIFICATIONS_PENDING), sandbox.total(metrics::ALREADY_COVERED), world.waiting().await),
        (1, 2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_knows_nobody_leaves_the_news_to_one_that_does() {
    let mut world = telling().await;
    publish_and_die(&world).await;
    pause(90).await;
    let knowing = world.sandbox().await;
    world.notifier = NotifierSettings::default();
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
    assert_eq!((sandbox.total(metrics::NOTIFICATIONS_PENDING), world.waiting().await, heard(&world).1), (1, 1, 0));
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

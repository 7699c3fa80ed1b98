//! The dead-letter queue: what of a rejected message reaches it, and what a redrive of it starts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use aws_sdk_sqs::types::Message;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Make, OriginFault, World, number, pause, text};

const PAGE: &str = "/products/42";
const LONG: Duration = Duration::from_secs(7_200);

fn attribute<'m>(letter: &'m Message, name: &str) -> &'m str {
    letter.message_attributes().unwrap().get(name).and_then(|value| value.string_value()).unwrap_or_default()
}

/// Sends a dead letter to the main queue as a redrive does: same body, same attributes, new id.
async fn redrive(world: &World, letter: &Message) -> String {
    let send = world.clean.sqs.send_message().queue_url(&world.stack.queue).message_body(letter.body().unwrap());
    let sent = send.set_message_attributes(letter.message_attributes.clone()).send().await.unwrap();
    sent.message_id.unwrap()
}

#[tokio::test(start_paused = true)]
async fn second_rejection_keeps_the_key_of_the_first() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.send_with("poison", &[("everfresh-key", "first-id"), ("reason", "waited")]).await;
    sandbox.invoke().await;
    let letters = world.dead_letters().await;
    assert_eq!(attribute(&letters[0], "everfresh-key"), "first-id");
    assert_eq!(attribute(&letters[0], "reason"), "bad_message");
}

#[tokio::test(start_paused = true)]
async fn at_most_eight_of_a_producers_attributes_are_kept() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let names: Vec<String> = (0..10).map(|index| format!("producer-{index}")).collect();
    let attributes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "value")).collect();
    world.send_with("poison", &attributes).await;
    sandbox.invoke().await;
    assert_eq!(world.queued_messages().await, 0);
    let letters = world.dead_letters().await;
    let kept = letters[0].message_attributes().unwrap();
    assert_eq!(kept.len(), 10);
    assert_eq!(kept.keys().filter(|name| name.starts_with("producer-")).count(), 8);
    assert_eq!(attribute(&letters[0], "reason"), "bad_message");
}

#[tokio::test(start_paused = true)]
async fn redrive_of_unsupported_contract_is_rejected_again() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#);
    let names: Vec<String> = (0..9).map(|index| format!("app-{index}")).collect();
    let mut attributes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "value")).collect();
    attributes.push(("everfresh-contract", "2"));
    world.send_with(&body, &attributes).await;
    sandbox.invoke().await;
    let letters = world.dead_letters().await;
    assert_eq!(attribute(&letters[0], "everfresh-contract"), "2", "kept before the producer's attributes");
    redrive(&world, &letters[0]).await;
    sandbox.invoke().await;
    assert_eq!((sandbox.total(metrics::REJECTED), world.origin.renders()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn invalid_attached_key_is_rejected_and_not_kept() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let body = format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#);
    let id = world.send_with(&body, &[("everfresh-key", "a#b")]).await;
    sandbox.invoke().await;
    let letters = world.dead_letters().await;
    assert_eq!(
        (attribute(&letters[0], "reason"), attribute(&letters[0], "everfresh-key")),
        ("bad_message", id.as_str())
    );
    assert_eq!(sandbox.total(metrics::KEY_CONFLICTS), 0);
}

#[tokio::test(start_paused = true)]
async fn redrive_restarts_the_attempts_of_a_rejected_request() {
    let world = World::new().await;
    let sandbox = world.sandbox_with(Make { max_attempts: 2, ..Make::default() });
    world.origin.fail_with(OriginFault::Unreachable);
    let id = world.enqueue(PAGE).await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.origin.renders(), 2);
    let letters = world.dead_letters().await;
    let [letter] = letters.as_slice() else { panic!("{} dead letters", letters.len()) };
    assert_eq!((attribute(letter, "reason"), attribute(letter, "everfresh-key")), ("attempts", id.as_str()));
    // Redriven too early: it gets two attempts and is rejected again.
    pause(1).await;
    redrive(&world, letter).await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.origin.renders(), 4);
    let letters = world.dead_letters().await;
    let letter = letters.last().unwrap();
    assert_eq!((attribute(letter, "reason"), attribute(letter, "everfresh-key")), ("attempts", id.as_str()));
    // Redriven after the origin has recovered.
    world.origin.fail_with(OriginFault::No);
    pause(1).await;
    let new_id = redrive(&world, letter).await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    let record = world.req(PAGE, &id).await.unwrap();
    assert_eq!((text(&record, "status"), number(&record, "attempts")), ("COMPLETED".into(), 1));
    assert!(!record.contains_key("rejected_at_ms"));
    assert_eq!(world.status(PAGE, &new_id).await, "absent", "the same request under its first key");
    // Redriven again by mistake.
    pause(5).await;
    redrive(&world, letter).await;
    world.drain(&sandbox, LONG).await;
    assert_eq!(sandbox.total(metrics::COMMITTED) + sandbox.total(metrics::UNCHANGED), 1, "one commit per request (I3)");
}

/// The worker knows AWS's time only to a second or so, and may be ahead of it.
#[tokio::test(start_paused = true)]
async fn redrive_right_after_the_rejection_restarts_the_attempts() {
    for skew_ms in (-900..=900).step_by(300) {
        let world = World::new().await;
        let sandbox = world.sandbox_on(Make { max_attempts: 1, ..Make::default() }, world.clock.skewed_by_ms(skew_ms));
        world.origin.fail_with(OriginFault::Unreachable);
        world.enqueue(PAGE).await;
        world.drain(&sandbox, LONG).await;
        world.origin.fail_with(OriginFault::No);
        let letters = world.dead_letters().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        redrive(&world, &letters[0]).await;
        world.drain(&sandbox, LONG).await;
        assert_eq!(world.published(PAGE).await.as_deref(), Some("one"), "skew of {skew_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn message_that_cannot_be_dead_lettered_is_redelivered() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("SendMessage"), Fault::FailBefore);
    world.send("poison").await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert_eq!(world.queued_messages().await, 1, "not lost");
    assert_eq!(sandbox.total(metrics::REJECTED), 0, "not yet");
    assert!(world.dead_letters().await.is_empty());
    sandbox.way.faults().clear();
    world.drain(&sandbox, LONG).await;
    assert_eq!(world.dead_letters().await.len(), 1);
    assert_eq!(sandbox.total(metrics::REJECTED), 1);
}

#[tokio::test(start_paused = true)]
async fn rejection_with_lost_response_is_dead_lettered_at_least_once() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    sandbox.inject(On::every("SendMessage").times(4), Fault::LoseResponse);
    let id = world.send("poison").await;
    world.drain(&sandbox, LONG).await;
    let letters = world.dead_letters().await;
    assert!(!letters.is_empty());
    assert!(letters.iter().all(|letter| attribute(letter, "everfresh-key") == id));
}

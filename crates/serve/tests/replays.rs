//! Replays of captured requests: they take no tokens of honest callers, and cost few writes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod signing;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::http::Request;
use everfresh_serve::trigger::signature::RevalidateKeys;
use everfresh_testing::{Instance, World, pause};

use self::signing::{Draft, KEYS, REVALIDATE, altered, state_read, with_keys};

const STATE: &str = "/_everfresh/requests/inval.k";

fn limited(world: &World, per_minute: u32) -> Instance {
    world.instance_with(|settings| {
        settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap();
        settings.revalidate_per_minute = per_minute;
    })
}

fn writes(instance: &Instance) -> usize {
    instance.operations().iter().filter(|operation| *operation == "PutItem").count()
}

/// Requests that callers have signed and an attacker has captured.
fn captured(world: &World, count: usize) -> Vec<Request> {
    let nonces = (0..count).map(|number| format!("captured-0123456789-{number}"));
    nonces.map(|nonce| Draft { nonce: &nonce, ..REVALIDATE }.signed(world)).collect()
}

async fn honest(world: &World, instance: &Instance, number: usize) -> u16 {
    Draft { nonce: &format!("honest-0123456789-{number}"), ..REVALIDATE }.sent(world, instance).await.status
}

#[tokio::test(start_paused = true)]
async fn replays_leave_honest_callers_their_whole_rate_limit() {
    let world = World::new().await;
    let (instance, other) = (with_keys(&world), with_keys(&world));
    let change = REVALIDATE.signed(&world);
    let state = state_read(STATE, "nonce-state-read-01").signed(&world);
    assert_eq!(instance.serve(&change).await.status, 202);
    assert_eq!(instance.serve(&state).await.status, 200);
    for _ in 0..611 {
        for request in [&change, &state] {
            assert_eq!(instance.serve(request).await.status, 401);
            assert_eq!(other.serve(request).await.status, 401);
        }
    }
    assert_eq!(writes(&instance), 2, "the instance knows its own nonces");
    assert_eq!(writes(&other), 2, "and learns each other nonce once");
    assert_eq!(instance.total(metrics::TRIGGERS_LIMITED), 0);
    for number in 0..599 {
        assert_eq!(honest(&world, &instance, number).await, 202, "{number}");
    }
    let read = state_read(STATE, "nonce-state-read-02").sent(&world, &instance).await;
    assert_eq!((read.status, honest(&world, &instance, 600).await), (200, 429), "and no more than that");
}

#[tokio::test(start_paused = true)]
async fn unsigned_and_invalid_requests_take_no_token() {
    let world = World::new().await;
    let instance = limited(&world, 5);
    let unsigned = altered(&REVALIDATE.signed(&world), "x-everfresh-signature", Some(&"0".repeat(64)));
    let old = Draft { when: -301, ..REVALIDATE }.signed(&world);
    let invalid = Draft { body: "{}", ..REVALIDATE }.signed(&world);
    for (request, status) in [(&unsigned, 401), (&old, 401), (&invalid, 400)] {
        for _ in 0..20 {
            assert_eq!(instance.serve(request).await.status, status);
        }
    }
    assert_eq!(instance.operations(), Vec::<String>::new());
    for number in 0..5 {
        assert_eq!(honest(&world, &instance, number).await, 202, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_replays_cost_a_bounded_number_of_writes() {
    let world = World::new().await;
    let (first, second) = (with_keys(&world), limited(&world, 10));
    let captured = captured(&world, 50);
    for request in &captured {
        assert_eq!(first.serve(request).await.status, 202);
    }
    for round in 0..3 {
        for request in &captured {
            assert!(matches!(second.serve(request).await.status, 401 | 429), "{round}");
        }
    }
    assert_eq!(writes(&second), 10);
    // The tokens come back, and those of honest callers were never taken.
    pause(60).await;
    for number in 0..10 {
        assert_eq!(honest(&world, &second, number).await, 202, "{number}");
    }
    assert_eq!(world.queued_messages().await, 50 + 10);
}

#[tokio::test(start_paused = true)]
async fn replays_cost_few_writes_while_dynamodb_is_down() {
    let world = World::new().await;
    let instance = limited(&world, 10);
    let request = REVALIDATE.signed(&world);
    instance.inject(On::every("PutItem"), Fault::FailBefore);
    let mut unavailable = 0;
    for _ in 0..50 {
        match instance.serve(&request).await.status {
            503 => unavailable += 1,
            429 => {}
            other => panic!("{other}"),
        }
    }
    assert!((10..=12).contains(&unavailable), "ten, and the tokens added meanwhile: {unavailable}");
    instance.way.faults().clear();
    pause(60).await;
    assert_eq!(instance.serve(&request).await.status, 202, "it has never counted");
}

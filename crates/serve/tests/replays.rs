//! Captured requests that are sent again: they spend nothing of what honest callers may send, and few writes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod signing;

use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_serve::request::Request;
use everfresh_serve::rules::signature::RevalidateKeys;
use everfresh_testing::{Instance, World, pause};

use self::signing::{Draft, KEYS, WISHING, altered, asking, believing};

const QUESTION: &str = "/_everfresh/requests/inval.k";

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
    nonces.map(|nonce| Draft { nonce: &nonce, ..WISHING }.signed(world)).collect()
}

async fn honest(world: &World, instance: &Instance, number: usize) -> u16 {
    Draft { nonce: &format!("honest-0123456789-{number}"), ..WISHING }.sent(world, instance).await.status
}

#[tokio::test(start_paused = true)]
async fn six_hundred_replays_leave_honest_callers_their_whole_budget() {
    let world = World::new().await;
    let (instance, other) = (believing(&world), believing(&world));
    let change = WISHING.signed(&world);
    let question = asking(QUESTION, "nonce-question-01").signed(&world);
    assert_eq!(instance.serve(&change).await.status, 202);
    assert_eq!(instance.serve(&question).await.status, 200);
    for _ in 0..611 {
        for request in [&change, &question] {
            assert_eq!(instance.serve(request).await.status, 401);
            assert_eq!(other.serve(request).await.status, 401);
        }
    }
    assert_eq!(writes(&instance), 2, "an instance knows the nonces that it has seen");
    assert_eq!(writes(&other), 2, "and learns each of the others once");
    assert_eq!(instance.total(metrics::TRIGGERS_LIMITED), 0);
    for number in 0..599 {
        assert_eq!(honest(&world, &instance, number).await, 202, "{number}");
    }
    let asked = asking(QUESTION, "nonce-question-02").sent(&world, &instance).await;
    assert_eq!((asked.status, honest(&world, &instance, 600).await), (200, 429), "and no more than that");
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_signed_or_make_no_sense_spend_nothing() {
    let world = World::new().await;
    let instance = limited(&world, 5);
    let unsigned = altered(&WISHING.signed(&world), "x-everfresh-signature", Some(&"0".repeat(64)));
    let old = Draft { when: -301, ..WISHING }.signed(&world);
    let senseless = Draft { body: "{}", ..WISHING }.signed(&world);
    for (request, status) in [(&unsigned, 401), (&old, 401), (&senseless, 400)] {
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
async fn replays_that_an_instance_has_not_seen_cost_a_bounded_number_of_writes() {
    let world = World::new().await;
    let (first, second) = (believing(&world), limited(&world, 10));
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
    // What they spent comes back, and what honest callers may send was never touched.
    pause(60).await;
    for number in 0..10 {
        assert_eq!(honest(&world, &second, number).await, 202, "{number}");
    }
    assert_eq!(world.waiting().await, 50 + 10);
}

#[tokio::test(start_paused = true)]
async fn replays_cost_a_bounded_number_of_writes_while_the_table_is_down() {
    let world = World::new().await;
    let instance = limited(&world, 10);
    let request = WISHING.signed(&world);
    instance.inject(On::every("PutItem"), Fault::FailBefore);
    let mut unavailable = 0;
    for _ in 0..50 {
        match instance.serve(&request).await.status {
            503 => unavailable += 1,
            429 => {}
            other => panic!("{other}"),
        }
    }
    assert!((10..=12).contains(&unavailable), "ten, and what came back meanwhile: {unavailable}");
    instance.way.faults().clear();
    pause(60).await;
    assert_eq!(instance.serve(&request).await.status, 202, "it has never counted");
}

//! A thousand messages, ten per request, with poison among them, and workers killed at every step.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everfresh_core::metrics;
use everfresh_enqueue::attributes;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{OriginFault, World, text};

const PAGES: usize = 100;
const COPIES: usize = 10;
const POISON: usize = 20;

/// The step at which a worker is killed, and the AWS operation of that step.
const KILLS: [(&str, Option<&str>); 7] = [
    ("lookup", Some("Query")),
    ("claim", Some("PutItem")),
    ("acquire", Some("PutItem")),
    ("render", None),
    ("upload", Some("PutObject")),
    ("commit", Some("TransactWriteItems")),
    ("ack", None),
];

const ROUNDS: usize = 8;

fn poison(index: usize) -> String {
    let bodies = [
        "not json".to_owned(),
        r#"{"v":2,"tenant":"acme","path":"/kept/1"}"#.to_owned(),
        r#"{"v":1,"tenant":"unknown","path":"/kept/1"}"#.to_owned(),
        r#"{"v":1,"tenant":"acme","path":"/no/such/route/at/all"}"#.to_owned(),
        r#"{"v":1,"tenant":"acme","path":"/kept/../x"}"#.to_owned(),
        r#"{"v":1,"tenant":"acme","path":"/kept/1","surprise":true}"#.to_owned(),
        format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
        "x".repeat(200_000),
    ];
    bodies[index % bodies.len()].clone()
}

#[tokio::test(start_paused = true)]
async fn every_page_is_committed_once_and_only_poison_is_dead_lettered() {
    let world = World::new().await;
    // Every render differs, so a second commit of a request would be a second version.
    world.origin.numbers_its_renders();
    let mut poison_ids = BTreeSet::new();
    for index in 0..PAGES * COPIES {
        let page = index % PAGES;
        world
            .send(&format!(r#"{{"v":1,"tenant":"acme","path":"/kept/{page}","idempotency_key":"request-{page}"}}"#))
            .await;
        if index % 50 == 25 {
            poison_ids.insert(world.send(&poison(poison_ids.len())).await);
        }
    }
    assert_eq!(poison_ids.len(), POISON);

    let mut kills: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (step, operation) in KILLS {
            for fault in [Fault::Hang, Fault::HangAfter] {
                // A poison or covered message does not reach the step: try the next one.
                for _ in 0..5 {
                    if kill(&world, step, operation, fault).await {
                        *kills.entry(step).or_default() += 1;
                        break;
                    }
                }
            }
        }
    }
    println!("kills: {kills:?}, {} in all", kills.values().sum::<usize>());
    for (step, _) in KILLS {
        assert!(kills.get(step).copied().unwrap_or(0) >= 5, "too few kills at {step}: {kills:?}");
    }
    assert!(kills.values().sum::<usize>() >= 100, "{kills:?}");

    let healthy = world.sandbox().await;
    world.drain(&healthy, Duration::from_secs(24 * 3600)).await;
    for page in 0..PAGES {
        let path = format!("/kept/{page}");
        assert!(world.published(&path).await.is_some(), "{path} is not published");
        let rows = world.rows(&world.pk(&path)).await;
        let commits = rows.keys().filter(|sk| sk.starts_with("VER#")).count();
        assert_eq!(commits, 1, "{path}: one request, one commit");
        assert_eq!(text(&rows[&format!("REQ#request-{page}")], "status"), "COMPLETED");
    }
    let letters = world.dead_letters().await;
    let dead: BTreeSet<String> = letters
        .iter()
        .map(|letter| letter.message_attributes().unwrap()[attributes::KEY].string_value().unwrap().to_owned())
        .collect();
    assert_eq!(dead, poison_ids, "the dead-letter queue holds the poison and nothing else");
    println!(
        "renders {}, commits {PAGES}, duplicates prevented {}, dead letters {}",
        world.origin.renders(),
        healthy.total(metrics::DUPLICATES_PREVENTED),
        dead.len()
    );
}

/// One invocation that is killed at `step`. Returns whether it reached the step.
async fn kill(world: &World, step: &str, operation: Option<&str>, fault: Fault) -> bool {
    let killed = world.sandbox().await.one_by_one();
    match (step, operation) {
        ("render", _) => world.origin.fail_with(OriginFault::Hangs),
        ("ack", _) => {
            let records = killed.invoke_unacked().await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            return records > 0 && killed.total(metrics::COMMITTED) > 0;
        }
        ("acquire", _) => killed.inject(On::next("PutItem").after(1), fault),
        (_, Some(operation)) => {
            let operation =
                ["Query", "PutItem", "PutObject", "TransactWriteItems"].into_iter().find(|o| *o == operation);
            killed.inject(On::next(operation.unwrap()), fault);
        }
        (_, None) => unreachable!("every other step has an operation"),
    }
    let renders = world.origin.renders();
    killed.invoke_killed_after(Duration::from_secs(1)).await;
    world.origin.fail_with(OriginFault::No);
    let reached = match step {
        "render" => world.origin.renders() > renders,
        _ => !killed.way.faults().fired().is_empty(),
    };
    // Long enough for redeliveries to mix with messages that are still undelivered.
    tokio::time::sleep(Duration::from_secs(30)).await;
    reached
}

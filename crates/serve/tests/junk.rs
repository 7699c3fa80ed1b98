//! A crawler with invented addresses: what it costs is bounded, and pages are refreshed meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_testing::{CONFIG, OriginFault, World, body, get, pause};

const PAGE: &str = "/kept/1";
const HTML: (&str, &str) = ("content-type", "text/html");

/// A minute's worth of the two limits, and what is added while the crawler reads.
const MOST: u64 = 200 + 50 + 50;

/// How many addresses, and what the origin answers to them.
const CRAWLS: [(u64, u16, OriginFault); 4] = [
    (10_000, 404, OriginFault::No),
    (2_000, 403, OriginFault::No),
    (2_000, 500, OriginFault::No),
    (2_000, 200, OriginFault::Unreachable),
];

async fn rows(world: &World) -> Vec<std::collections::HashMap<String, aws_sdk_dynamodb::types::AttributeValue>> {
    let scan = world.clean.dynamodb.scan().table_name(&world.stack.table).into_paginator().items().send();
    scan.collect::<Result<Vec<_>, _>>().await.unwrap()
}

/// Half of them match a route with a parameter, and half only `{*rest}`.
async fn crawled(addresses: u64, status: u16, fault: OriginFault) {
    let any = "[[tenant.acme.route]]\npath = \"/{*rest}\"\nrevalidate = \"60s\"\n\n[tenant.globex]";
    let world = World::with_config(&CONFIG.replacen("[tenant.globex]", any, 1)).await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let known = rows(&world).await.len();
    let instance = world.instance_with(|settings| {
        (settings.first_renders_per_minute, settings.enqueues_per_minute, settings.wait_ms) = (200, 50, 0);
    });
    pause(70).await;
    world.origin.answers(status, &[HTML], "<p>unknown</p>");
    world.origin.fail_with(fault);
    let before = world.origin.renders();
    for number in 0..addresses {
        let path = if number % 2 == 0 { format!("/products/junk-{number}") } else { format!("/junk/{number}") };
        instance.get(&path).await;
    }
    let sent = instance.total(metrics::ENQUEUED);
    assert!((200..=MOST).contains(&sent), "{status}: {sent} messages");
    assert_eq!(world.queued_messages().await, sent);
    // Not sent: its failure would be another test's subject.
    let served = instance.server.serve(&get(PAGE)).await;
    assert_eq!((served.reply.status, served.enqueues.len()), (200, 1), "a published page is refreshed meanwhile");
    world.drain(&sandbox, Duration::from_secs(3_600)).await;
    let renders = world.origin.renders() - before;
    assert!(renders <= MOST + 5, "{status}: {renders} renders");
    let table = rows(&world).await;
    assert!((table.len() - known) as u64 <= 4 * MOST, "{status}: {} rows", table.len());
    let pages = table.iter().filter(|row| row["sk"].as_s().unwrap() == "META");
    let lasting = pages.filter(|row| !row.contains_key("ttl")).count();
    assert_eq!(lasting, 1, "{status}: rows of invented addresses expire");
    let letters = world.dead_letters().await.len();
    assert_eq!(letters, 0, "{status}: dead letters");
    let objects = world.objects().await.len() as u64;
    assert!(objects <= MOST, "{status}: {objects} objects");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_invented_addresses_leave_queue_and_table_bounded() {
    for (addresses, status, fault) in CRAWLS {
        crawled(addresses, status, fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn cold_site_is_rendered_beyond_the_limit_of_refreshes() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let instance = world.instance_with(|settings| settings.wait_ms = 0);
    for number in 0..500 {
        instance.get(&format!("/products/{number}")).await;
    }
    assert_eq!(world.queued_messages().await, 500);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    for number in 0..500 {
        assert_eq!(body(&instance.get(&format!("/products/{number}")).await), "one");
    }
}

//! How many pages an origin may withdraw at once, and how a site survives an origin that refuses
//! every request for a while.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use everfresh_core::metrics;
use everfresh_testing::{CONFIG, Sandbox, World, pause};

const HTML: (&str, &str) = ("content-type", "text/html");
const LONG: Duration = Duration::from_secs(7_200);

#[tokio::test(start_paused = true)]
async fn withdrawals_beyond_the_limit_wait_and_lose_nothing() {
    let world = World::with_config(&CONFIG.replace("[tenant.acme]\n", "[tenant.acme]\nwithdrawals = 2\n")).await;
    let sandbox = world.sandbox().await;
    let pages: Vec<String> = (0..5).map(|number| format!("/products/{number}")).collect();
    for page in &pages {
        world.enqueue(page).await;
    }
    sandbox.invoke().await;
    pause(30).await;
    world.origin.answers(403, &[HTML], "firewall");
    let mut ids = Vec::new();
    for page in &pages {
        ids.push(world.enqueue(page).await);
        world.enqueue_as(page, "expired").await;
    }
    sandbox.invoke().await;
    sandbox.invoke().await;
    let mut published = 0;
    for page in &pages {
        published += usize::from(!world.meta(page).await.unwrap().contains_key("bypass_reason"));
    }
    assert_eq!(published, 3, "two of five pages were taken down");
    assert!(sandbox.total(metrics::WITHDRAWALS_REFUSED) >= 3);
    // The firewall lets the site through again, before anything is dead-lettered.
    world.origin.answers(200, &[HTML], "public");
    world.drain(&sandbox, LONG).await;
    for page in &pages {
        world.enqueue(page).await;
    }
    world.drain(&sandbox, LONG).await;
    for (page, id) in pages.iter().zip(&ids) {
        assert_eq!(world.published(page).await.unwrap(), "public", "{page}");
        assert_eq!(world.status(page, id).await, "COMPLETED", "{page}");
    }
    assert_eq!(world.dead_letters().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn operator_raises_the_limit_of_withdrawals_for_a_time() {
    let world = World::with_config(&CONFIG.replace("[tenant.acme]\n", "[tenant.acme]\nwithdrawals = 2\n")).await;
    let sandbox = world.sandbox().await;
    let pages: Vec<String> = (0..9).map(|number| format!("/products/{number}")).collect();
    for page in &pages {
        world.enqueue(page).await;
    }
    world.drain(&sandbox, LONG).await;
    pause(30).await;
    let acme = everfresh_core::domain::page_key::Tenant::parse("acme").unwrap();
    let ledger = world.ledger();
    let withdrawn = async || {
        let mut count = 0;
        for page in &pages {
            count += usize::from(world.meta(page).await.unwrap().contains_key("bypass_reason"));
        }
        count
    };
    world.origin.answers(403, &[HTML], "meant");
    // Fewer than configured change nothing.
    ledger.allow_withdrawals(&acme, 1, 60_000).await.unwrap();
    for page in &pages {
        world.enqueue(page).await;
    }
    sandbox.invoke().await;
    assert_eq!(withdrawn().await, 2);
    let until_ms = ledger.allow_withdrawals(&acme, 9, 25 * 60_000).await.unwrap();
    assert!(until_ms >= world.now_ms() + 25 * 60_000 && until_ms % 600_000 == 0, "{until_ms}");
    // Two ten minutes begin in this time at most. The configuration allows four pages in them.
    world.work(&sandbox, Duration::from_secs(15 * 60)).await;
    assert_eq!(withdrawn().await, 9);
    assert!(world.dead_letters().await.is_empty());
}

/// What readers and editors do during an incident: each page expires and changes now and then.
async fn incident(world: &World, sandbox: &Sandbox, pages: &[String], minutes: u64) -> Vec<(String, String)> {
    let mut changes = Vec::new();
    for minute in 0..minutes {
        for (index, page) in pages.iter().enumerate() {
            world.enqueue_as(page, "expired").await;
            if index as u64 % minutes == minute {
                changes.push((page.clone(), world.enqueue(page).await));
            }
        }
        world.work(sandbox, Duration::from_secs(60)).await;
    }
    changes
}

/// Completed, or covered at its first delivery, which leaves no record.
async fn assert_ended(world: &World, page: &str, id: &str) {
    let status = world.status(page, id).await;
    assert!(["COMPLETED", "absent"].contains(&status.as_str()), "{page}: {status}");
}

#[tokio::test(start_paused = true)]
async fn site_survives_three_minutes_of_403_everywhere() {
    let world = World::with_config(&CONFIG.replace("render =", "withdrawals = 5\nrender =")).await;
    let sandbox = world.sandbox().await;
    world.origin.answers(200, &[HTML], "public");
    let pages: Vec<String> = (0..30).map(|n| format!("/products/{n}")).collect();
    for page in &pages {
        world.enqueue(page).await;
    }
    world.drain(&sandbox, LONG).await;
    pause(100).await;
    world.origin.answers(403, &[HTML], "firewall");
    let changes = incident(&world, &sandbox, &pages, 3).await;
    let mut kept = 0;
    for page in &pages {
        kept += usize::from(!world.meta(page).await.unwrap().contains_key("bypass_reason"));
    }
    assert_eq!(kept, 25);
    world.origin.answers(200, &[HTML], "back");
    // By itself: readers of every page, and the changes that still wait.
    incident(&world, &sandbox, &pages, 1).await;
    world.drain(&sandbox, LONG).await;
    incident(&world, &sandbox, &pages, 1).await;
    world.drain(&sandbox, LONG).await;
    for page in &pages {
        assert_eq!(world.published(page).await.unwrap(), "back", "{page}");
    }
    for (page, id) in changes {
        assert_ended(&world, &page, &id).await;
    }
    assert_eq!((world.dead_letters().await.len(), world.queued_messages().await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn site_survives_three_minutes_of_429_under_load() {
    for headers in [&[HTML][..], &[HTML, ("retry-after", "5")], &[HTML, ("retry-after", "90")]] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        world.origin.answers(200, &[HTML], "public");
        let pages: Vec<String> = (0..30).map(|n| format!("/products/{n}")).collect();
        for page in &pages {
            world.enqueue(page).await;
        }
        world.drain(&sandbox, LONG).await;
        pause(100).await;
        world.origin.answers(429, headers, "slow down");
        let before = world.origin.renders();
        let changes = incident(&world, &sandbox, &pages, 3).await;
        let renders = world.origin.renders() - before;
        assert!(renders <= 4 * pages.len() as u64, "{renders} renders of an origin that answers 429");
        for page in &pages {
            assert_eq!(world.published(page).await.unwrap(), "public", "{page}");
        }
        world.origin.answers(200, &[HTML], "back");
        world.drain(&sandbox, LONG).await;
        for (page, id) in changes {
            assert_eq!(world.published(&page).await.unwrap(), "back", "{page}");
            assert_ended(&world, &page, &id).await;
        }
        assert_eq!(world.dead_letters().await.len(), 0, "{headers:?}");
    }
}

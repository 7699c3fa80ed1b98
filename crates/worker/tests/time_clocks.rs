//! Clock skew and clock steps.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use everfresh_core::clock::Clock;
use everfresh_core::domain::digest::Digest;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::domain::request::IdempotencyKey;
use everfresh_core::ledger::{Acquire, ClaimOutcome, ClaimTerms, Ledger};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Make, Sandbox, World, n, number, pause, s, text};

const PAGE: &str = "/products/42";

/// A wall clock that the test steps against AWS's, and its offset in milliseconds.
fn steppable_clock(world: &World) -> (Clock, Arc<AtomicI64>) {
    let (aws, offset_ms) = (world.clock.clone(), Arc::new(AtomicI64::new(0)));
    let (read, elapsed) = (offset_ms.clone(), aws.clone());
    let clock = Clock::with_monotonic(
        move || UNIX_EPOCH + Duration::from_millis(aws.now_ms().saturating_add_signed(read.load(Ordering::Relaxed))),
        move || Duration::from_millis(elapsed.now_ms()),
    );
    (clock, offset_ms)
}

#[tokio::test(start_paused = true)]
async fn skewed_worker_dates_its_render_by_aws_time() {
    for skew_ms in [60_000, -60_000] {
        let world = World::new().await;
        let sandbox = world.sandbox_with(Make { skew_ms, ..Make::default() });
        let id = world.enqueue(PAGE).await;
        sandbox.invoke().await;
        let meta = world.meta(PAGE).await.unwrap();
        let off_ms = number(&meta, "source_ms").abs_diff(world.now_ms());
        assert!(off_ms <= 1_000, "{skew_ms}: {off_ms}");
        assert!(number(&meta, "generated_at").abs_diff(world.now_ms() / 1000) <= 1, "{skew_ms}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
        // A later change is not covered, however far ahead the worker's clock is.
        pause(5).await;
        world.origin.content("two");
        world.enqueue(PAGE).await;
        sandbox.invoke().await;
        assert_eq!(world.published(PAGE).await.unwrap(), "two", "{skew_ms}");
        assert_eq!(world.queued_messages().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_with_opposite_skew_lose_no_change() {
    let world = World::new().await;
    let skewed = |skew_ms| world.sandbox_with(Make { skew_ms, ..Make::default() });
    let workers = [skewed(60_000), skewed(-60_000)];
    let mut last_version = String::new();
    for round in 0..12 {
        let content = format!("content {round}");
        world.origin.content(&content);
        let id = world.enqueue(PAGE).await;
        workers[round % 2].invoke().await;
        let meta = world.meta(PAGE).await.unwrap();
        assert_eq!(world.published(PAGE).await.unwrap(), content, "round {round}");
        let version = text(&meta, "version");
        assert!(version > last_version, "versions increase whatever the clock skew (I2)");
        last_version = version;
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
        // The other worker gets a duplicate: it is acked, not rendered, not failed (I3, I5).
        world.send_with(&format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#), &[("everfresh-key", &id)]).await;
        workers[(round + 1) % 2].invoke().await;
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
        pause(5).await;
    }
    assert_eq!(world.origin.renders(), 12);
    assert_eq!(world.queued_messages().await, 0);
}

#[tokio::test(start_paused = true)]
async fn lease_is_respected_by_a_worker_whose_clock_is_ahead() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(20));
    let slow = world.sandbox_with(Make { skew_ms: -60_000, ..Make::default() });
    let ahead = world.sandbox_with(Make { skew_ms: 60_000, ..Make::default() });
    world.enqueue(PAGE).await;
    tokio::join!(slow.invoke(), async {
        pause(5).await;
        world.enqueue(PAGE).await;
        ahead.invoke().await;
    });
    assert_eq!(ahead.total(metrics::LOCK_CONTENTION), 1);
    assert_eq!(slow.total(metrics::COMMITTED), 1);
}

#[tokio::test(start_paused = true)]
async fn clock_step_back_between_requests_keeps_versions_increasing() {
    let world = World::new().await;
    let (clock, offset_ms) = steppable_clock(&world);
    let sandbox = world.sandbox_on(Make::default(), clock);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let before = world.meta(PAGE).await.unwrap();
    offset_ms.store(-3_600_000, Ordering::Relaxed);
    pause(5).await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let after = world.meta(PAGE).await.unwrap();
    assert!(text(&after, "version") > text(&before, "version"));
    assert!(number(&after, "source_ms") > number(&before, "source_ms"));
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn clock_step_during_a_render_loses_no_request() {
    for jump_ms in [-3_600_000, 3_600_000] {
        let world = World::new().await;
        let (clock, offset_ms) = steppable_clock(&world);
        let sandbox = world.sandbox_on(Make::default(), clock);
        world.origin.takes(Duration::from_secs(15));
        let id = world.enqueue(PAGE).await;
        tokio::join!(sandbox.invoke(), async {
            pause(12).await;
            offset_ms.store(jump_ms, Ordering::Relaxed);
        });
        world.drain(&sandbox, Duration::from_secs(1200)).await;
        assert_eq!(world.published(PAGE).await.unwrap(), "one");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED", "{jump_ms}");
        assert!(world.lock(PAGE).await.is_none());
        assert!(world.dead_letters().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn clock_step_during_any_write_before_the_render_loses_no_change() {
    // The claim is the first put, the lease the second.
    for (puts, step_ms) in [(0, 10_000), (1, 10_000), (1, 600_000), (0, -10_000), (1, -10_000)] {
        let world = World::new().await;
        let (clock, offset_ms) = steppable_clock(&world);
        let sandbox = world.sandbox_on(Make::default(), clock);
        sandbox.way.faults().inject(On::next("PutItem").after(puts), Fault::Delay(Duration::from_millis(800)));
        world.enqueue(PAGE).await;
        tokio::join!(sandbox.invoke(), async {
            tokio::time::sleep(Duration::from_millis(400)).await;
            offset_ms.store(step_ms, Ordering::Relaxed);
        });
        world.drain(&sandbox, Duration::from_secs(1200)).await;
        let source_ms = number(&world.meta(PAGE).await.unwrap(), "source_ms");
        assert!(source_ms <= world.now_ms() + 2_000, "{puts} {step_ms}: {source_ms} is in AWS's future");
        pause(3).await;
        world.origin.content("two");
        world.enqueue(PAGE).await;
        world.drain(&sandbox, Duration::from_secs(1200)).await;
        assert_eq!(world.published(PAGE).await.unwrap(), "two", "{puts} {step_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn version_dated_in_the_future_covers_no_change() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    let ahead = [("source_ms", n(world.now_ms() + 600_000))];
    let mut meta = world.meta(PAGE).await.unwrap();
    meta.extend(ahead.map(|(name, value)| (name.to_owned(), value)));
    let meta: Vec<_> = meta.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    world.put(&world.pk(PAGE), "META", &meta).await;
    pause(10).await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
    let source_ms = number(&world.meta(PAGE).await.unwrap(), "source_ms");
    assert!(source_ms <= world.now_ms() + 2_000, "the next version has a correct source time");
}

#[tokio::test(start_paused = true)]
async fn lease_expiring_this_second_has_one_next_owner() {
    let world = World::new().await;
    let ledger = |sandbox: &Sandbox| Ledger::new(&sandbox.clients, &world.stack.table, KeyLayout::default());
    let (left, right) = (ledger(&world.sandbox().await), ledger(&world.sandbox().await));
    let page = world.page(PAGE);
    left.lookup(&page).await.unwrap();
    right.lookup(&page).await.unwrap();
    for _ in 0..20 {
        let now_s = left.time().now_ms() / 1000;
        assert_eq!(now_s, right.time().now_ms() / 1000);
        let held = [("lease_token", s("crashed")), ("lease_expires_at", n(now_s))];
        world.put(&world.pk(PAGE), "LOCK", &held).await;
        let (left, right) = tokio::join!(left.acquire(&page, 30_000), right.acquire(&page, 30_000));
        let granted = [left.unwrap(), right.unwrap()].into_iter().filter(|won| matches!(won, Acquire::Granted(_)));
        assert_eq!(granted.count(), 1);
        // With one second left, no worker gets it.
        let held = [("lease_token", s("alive")), ("lease_expires_at", n(now_s + 1))];
        world.put(&world.pk(PAGE), "LOCK", &held).await;
        assert!(matches!(ledger(&world.sandbox().await).acquire(&page, 30_000).await.unwrap(), Acquire::Held { .. }));
        pause(3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn claim_expiring_this_millisecond_has_one_next_owner() {
    let world = World::new().await;
    let ledger = |sandbox: &Sandbox| Ledger::new(&sandbox.clients, &world.stack.table, KeyLayout::default());
    let (left, right) = (ledger(&world.sandbox().await), ledger(&world.sandbox().await));
    let page = world.page(PAGE);
    left.lookup(&page).await.unwrap();
    right.lookup(&page).await.unwrap();
    let key = IdempotencyKey::parse("k").unwrap();
    let request_hash = Digest::of(b"request");
    for _ in 0..20 {
        let now_ms = left.time().now_ms();
        assert_eq!(now_ms, right.time().now_ms());
        let record = [
            ("request_hash", s(request_hash.to_string())),
            ("status", s("STARTED")),
            ("owner", s("crashed")),
            ("claim_expires_ms", n(now_ms)),
            ("attempts", n(1)),
        ];
        world.put(&world.pk(PAGE), "REQ#k", &record).await;
        let terms = ClaimTerms {
            key: &key,
            request_hash,
            sent_ms: now_ms,
            received_ms: now_ms,
            expires_ms: now_ms + 65_000,
            max_attempts: 5,
        };
        let (left, right) = tokio::join!(left.claim(&page, terms), right.claim(&page, terms));
        let outcomes = [left.unwrap(), right.unwrap()];
        assert_eq!(outcomes.iter().filter(|won| matches!(won, ClaimOutcome::Won(_))).count(), 1);
        assert_eq!(outcomes.iter().filter(|lost| matches!(lost, ClaimOutcome::Busy { .. })).count(), 1);
        assert_eq!(number(&world.req(PAGE, "k").await.unwrap(), "attempts"), 2);
        pause(3).await;
    }
}

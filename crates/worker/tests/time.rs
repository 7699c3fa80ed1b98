//! Clocks that disagree, time that runs out, and work that takes longer than anybody planned.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use everfresh_core::clock::Clock;
use everfresh_core::config::Ladder;
use everfresh_core::domain::digest::Digest;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::domain::request::IdempotencyKey;
use everfresh_core::ledger::{Acquire, ClaimOutcome, ClaimTerms, Ledger};
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Breaks, Make, Sandbox, World, ladder, n, number, pause, s, text};

const PAGE: &str = "/products/42";
const TURN: Duration = Duration::from_secs(60);

/// Longer than it takes until every message that was left alone is visible again.
const REDELIVERY: Duration = Duration::from_secs(401);

/// A page whose lease cannot be renewed: it runs out while its holder renders.
fn lose_renewals(sandbox: &Sandbox) {
    sandbox.inject(On::every("UpdateItem"), Fault::Cut);
}

/// What may not change once a late worker is refused.
async fn state(world: &World) -> impl PartialEq + std::fmt::Debug + use<> {
    world.rows(&world.pk(PAGE)).await
}

/// A clock that the test moves against AWS's.
fn movable(world: &World) -> (Clock, Arc<AtomicI64>) {
    let (aws, offset_ms) = (world.clock.clone(), Arc::new(AtomicI64::new(0)));
    let read = offset_ms.clone();
    let clock = Clock::new(move || {
        UNIX_EPOCH + Duration::from_millis(aws.now_ms().saturating_add_signed(read.load(Ordering::Relaxed)))
    });
    (clock, offset_ms)
}

/// A sandbox that Lambda freezes: what is in it is not polled until it is thawed, whatever its timers say.
struct Freezable<F> {
    inner: Pin<Box<F>>,
    frozen: Arc<AtomicBool>,
}

impl<F: Future> Future for Freezable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.frozen.load(Ordering::Relaxed) {
            // Looks again when the timer of the thaw moves the time.
            let waker = context.waker().clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                waker.wake();
            });
            return Poll::Pending;
        }
        self.inner.as_mut().poll(context)
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_clock_is_off_by_a_minute_dates_its_render_by_awss_clock() {
    for skew_ms in [60_000, -60_000] {
        let world = World::new().await;
        let sandbox = world.sandbox_with(Make { skew_ms, ..Make::default() });
        let id = world.enqueue(PAGE).await;
        sandbox.turn().await;
        let meta = world.meta(PAGE).await.unwrap();
        let off_ms = number(&meta, "source_ms").abs_diff(world.now_ms());
        assert!(off_ms <= 1_000, "{skew_ms}: {off_ms}");
        assert!(number(&meta, "generated_at").abs_diff(world.now_ms() / 1000) <= 1, "{skew_ms}");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
        // A change sent later is not covered, however far ahead the renderer's clock was.
        pause(5).await;
        world.origin.content("two");
        world.enqueue(PAGE).await;
        sandbox.turn().await;
        assert_eq!(world.published(PAGE).await.unwrap(), "two", "{skew_ms}");
        assert_eq!(world.waiting().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn two_workers_of_opposite_skew_alternate_on_one_page_and_lose_no_change() {
    let world = World::new().await;
    let skewed = |skew_ms| world.sandbox_with(Make { skew_ms, ..Make::default() });
    let workers = [skewed(60_000), skewed(-60_000)];
    let mut last_version = String::new();
    for round in 0..12 {
        let content = format!("content {round}");
        world.origin.content(&content);
        let id = world.enqueue(PAGE).await;
        workers[round % 2].turn().await;
        let meta = world.meta(PAGE).await.unwrap();
        assert_eq!(world.published(PAGE).await.unwrap(), content, "round {round}");
        let version = text(&meta, "version");
        assert!(version > last_version, "versions grow whatever the clocks say (I2)");
        last_version = version;
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
        // The other one gets a duplicate of what is done: it is acked, not rendered, not failed (I3, I5).
        world.send_with(&format!(r#"{{"v":1,"tenant":"acme","path":"{PAGE}"}}"#), &[("everfresh-key", &id)]).await;
        workers[(round + 1) % 2].turn().await;
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
        pause(5).await;
    }
    assert_eq!(world.origin.renders(), 12);
    assert_eq!(world.waiting().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_respected_by_a_worker_whose_clock_says_that_it_has_run_out() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(20));
    let slow = world.sandbox_with(Make { skew_ms: -60_000, ..Make::default() });
    let ahead = world.sandbox_with(Make { skew_ms: 60_000, ..Make::default() });
    world.enqueue(PAGE).await;
    tokio::join!(slow.turn(), async {
        pause(5).await;
        world.enqueue(PAGE).await;
        ahead.turn().await;
    });
    assert_eq!(ahead.total(metrics::LOCK_CONTENTION), 1);
    assert_eq!(slow.total(metrics::COMMITTED), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_back_between_two_requests_takes_nothing_back() {
    let world = World::new().await;
    let (clock, offset_ms) = movable(&world);
    let sandbox = world.sandbox_on(Make::default(), clock);
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    let before = world.meta(PAGE).await.unwrap();
    offset_ms.store(-3_600_000, Ordering::Relaxed);
    pause(5).await;
    world.origin.content("two");
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    let after = world.meta(PAGE).await.unwrap();
    assert!(text(&after, "version") > text(&before, "version"));
    assert!(number(&after, "source_ms") > number(&before, "source_ms"));
    assert_eq!(world.published(PAGE).await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_during_a_render_loses_no_request() {
    for jump_ms in [-3_600_000, 3_600_000] {
        let world = World::new().await;
        let (clock, offset_ms) = movable(&world);
        let sandbox = world.sandbox_on(Make::default(), clock);
        world.origin.takes(Duration::from_secs(15));
        let id = world.enqueue(PAGE).await;
        tokio::join!(sandbox.turn(), async {
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
async fn a_lease_that_ends_in_this_very_second_has_one_next_owner() {
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
        // One second longer, and nobody gets it.
        let held = [("lease_token", s("alive")), ("lease_expires_at", n(now_s + 1))];
        world.put(&world.pk(PAGE), "LOCK", &held).await;
        assert!(matches!(ledger(&world.sandbox().await).acquire(&page, 30_000).await.unwrap(), Acquire::Held { .. }));
        pause(3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_ends_at_this_very_moment_has_one_next_owner() {
    let world = World::new().await;
    let ledger = |sandbox: &Sandbox| Ledger::new(&sandbox.clients, &world.stack.table, KeyLayout::default());
    let (left, right) = (ledger(&world.sandbox().await), ledger(&world.sandbox().await));
    let page = world.page(PAGE);
    left.lookup(&page).await.unwrap();
    right.lookup(&page).await.unwrap();
    let key = IdempotencyKey::parse("k").unwrap();
    let request_hash = Digest::of(b"words");
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

#[tokio::test(start_paused = true)]
async fn without_time_for_a_render_nothing_is_claimed() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    let event = sandbox.receive().await;
    let again = sandbox.handle(event, Duration::from_millis(3_500)).await.unwrap();
    assert_eq!(again, [id.as_str()]);
    assert_eq!(world.rows(&world.pk(PAGE)).await.len(), 0);
    assert_eq!(world.origin.renders(), 0);
    world.drain(&sandbox, Duration::from_secs(600)).await;
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(number(&world.req(PAGE, &id).await.unwrap(), "attempts"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_function_that_times_out_in_its_render_is_taken_over_by_the_redelivery() {
    let world = World::new().await;
    world.origin.breaks(Breaks::Hangs);
    let killed = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    killed.turn_killed_after(Duration::from_secs(20)).await;
    assert_eq!(world.status(PAGE, &id).await, "STARTED");
    world.origin.breaks(Breaks::No);
    let next = world.sandbox().await;
    world.drain(&next, Duration::from_secs(900)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(number(&world.req(PAGE, &id).await.unwrap(), "attempts"), 2);
    assert!(world.lock(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_redelivery_that_meets_the_killed_workers_claim_waits_for_it() {
    let world = World::new().await;
    world.origin.breaks(Breaks::Hangs);
    let killed = world.sandbox().await;
    let key = r#"{"v":1,"tenant":"acme","path":"/products/42","idempotency_key":"k"}"#;
    world.send(key).await;
    killed.turn_killed_after(Duration::from_secs(2)).await;
    world.origin.breaks(Breaks::No);
    // The producer's own retry arrives when the lease has run out and the claim has not.
    pause(40).await;
    world.send(key).await;
    let next = world.sandbox().await;
    next.turn().await;
    assert_eq!(next.total(metrics::LOCK_CONTENTION), 1);
    assert_eq!(world.status(PAGE, "k").await, "STARTED");
    world.drain(&next, Duration::from_secs(900)).await;
    assert_eq!(world.status(PAGE, "k").await, "COMPLETED");
    assert_eq!(world.origin.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_frozen_for_ten_minutes_and_thawed_changes_nothing() {
    // It thaws with a page in its hands, or with a failure.
    for breaks in [Breaks::No, Breaks::Unreachable] {
        let world = World::new().await;
        let frozen_one = world.sandbox().await;
        let id = world.enqueue(PAGE).await;
        world.origin.content("old");
        world.origin.takes(Duration::from_secs(5));
        world.origin.breaks(breaks);
        let event = frozen_one.receive().await;
        let frozen = Arc::new(AtomicBool::new(false));
        let handled = Freezable { inner: Box::pin(frozen_one.handle(event, TURN)), frozen: frozen.clone() };
        tokio::join!(
            async {
                assert_eq!(handled.await.unwrap(), [id.as_str()], "refused");
            },
            async {
                pause(2).await;
                frozen.store(true, Ordering::Relaxed);
                world.origin.takes(Duration::ZERO);
                world.origin.breaks(Breaks::No);
                world.origin.content("new");
                let next = world.sandbox().await;
                world.drain(&next, Duration::from_secs(550)).await;
                assert_eq!(world.published(PAGE).await.unwrap(), "new");
                let before = state(&world).await;
                pause(600).await;
                frozen.store(false, Ordering::Relaxed);
                pause(60).await;
                assert_eq!(state(&world).await, before);
            }
        );
        assert_eq!(world.published(PAGE).await.unwrap(), "new");
        assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_renders_slower_than_its_life_causes_no_endless_loop() {
    let config = everfresh_testing::CONFIG.replace(r#"revalidate = "60s""#, r#"revalidate = "5s""#);
    let world = World::with_config(&config).await;
    world.origin.takes(Duration::from_secs(30));
    let (left, right) = (world.sandbox().await, world.sandbox().await);
    for reason in ["changed", "expired", "expired", "changed"] {
        world.enqueue_as(PAGE, reason).await;
        pause(3).await;
    }
    let most = Duration::from_secs(3600);
    tokio::join!(world.drain(&left, most), world.drain(&right, most));
    let renders = world.origin.renders();
    assert!(renders <= 4, "{renders} renders for four requests");
    assert_eq!(world.waiting().await, 0);
    // Nothing asks by itself.
    pause(600).await;
    left.turn().await;
    assert_eq!(world.origin.renders(), renders);
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ten_requests_that_wait_for_a_render_of_ten_minutes_end_acked() {
    let world = World::new().await;
    let patient = Ladder {
        render_deadline_ms: 700_000,
        function_timeout_ms: 720_000,
        claim_expiry_ms: 730_000,
        visibility_ms: 4_400_000,
        ..ladder()
    };
    patient.check().unwrap();
    let queue = world.clean.sqs.set_queue_attributes().queue_url(&world.stack.queue);
    let visibility = aws_sdk_sqs::types::QueueAttributeName::VisibilityTimeout;
    queue.attributes(visibility, (patient.visibility_ms / 1000).to_string()).send().await.unwrap();
    world.origin.takes(Duration::from_secs(600));
    let make = Make { ladder: patient, ..Make::default() };
    let sandboxes = [world.sandbox_with(make), world.sandbox_with(make), world.sandbox_with(make)];
    world.enqueue(PAGE).await;
    let [first, second, third] = &sandboxes;
    let most = Duration::from_secs(7_200);
    tokio::join!(first.turn(), async {
        pause(5).await;
        for _ in 0..10 {
            world.enqueue(PAGE).await;
            pause(1).await;
        }
        tokio::join!(world.drain(second, most), world.drain(third, most));
    });
    assert_eq!(world.origin.renders(), 2, "the second render covers all ten");
    assert!(world.dead_letters().await.is_empty());
    assert_eq!(world.waiting().await, 0);
    let busy: u64 = sandboxes.iter().map(|sandbox| sandbox.total(metrics::BUSY)).sum();
    assert!(busy < 10 * 60, "{busy} deliveries that found the page busy: far from the limit of 90 each");
}

#[tokio::test(start_paused = true)]
async fn a_render_longer_than_the_lease_is_renewed_and_commits() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(45));
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.turn(), async {
        pause(40).await;
        let lock = world.lock(PAGE).await.unwrap();
        assert!(number(&lock, "lease_expires_at") * 1000 > world.now_ms() + 15_000, "renewed");
    });
    assert_eq!(sandbox.total(metrics::COMMITTED), 1);
    assert_eq!(sandbox.operations().iter().filter(|operation| *operation == "UpdateItem").count(), 4);
    assert!(world.lock(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn one_lost_renewal_loses_nothing() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(45));
    let sandbox = world.sandbox().await;
    sandbox.inject(On::next("UpdateItem").after(1).times(4), Fault::Cut);
    world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert_eq!(sandbox.total(metrics::COMMITTED), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_during_the_render_is_revived_if_nobody_took_it() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(45));
    let sandbox = world.sandbox().await;
    lose_renewals(&sandbox);
    let id = world.enqueue(PAGE).await;
    tokio::join!(sandbox.turn(), async {
        pause(42).await;
        let lock = world.lock(PAGE).await.unwrap();
        assert!(number(&lock, "lease_expires_at") * 1000 <= world.now_ms(), "it has run out");
        sandbox.way.faults().clear();
    });
    assert_eq!(sandbox.total(metrics::COMMITTED), 1);
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert!(world.lock(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lost_its_lease_during_the_render_changes_nothing() {
    // It comes back late with a page, or with a failure; it hears of its loss at a renewal, or only in the end.
    let cases = [Breaks::No, Breaks::Unreachable].map(|breaks| [(breaks, true), (breaks, false)]);
    for (breaks, hears) in cases.into_iter().flatten() {
        let world = World::new().await;
        world.enqueue("/products/42").await;
        world.sandbox().await.turn().await;
        pause(5).await;
        let late = world.sandbox().await;
        lose_renewals(&late);
        world.origin.content("late");
        world.origin.takes(Duration::from_secs(45));
        world.origin.breaks(breaks);
        world.enqueue(PAGE).await;
        tokio::join!(late.turn(), async {
            pause(35).await;
            world.origin.takes(Duration::ZERO);
            world.origin.breaks(Breaks::No);
            world.origin.content("next");
            let next = world.sandbox().await;
            world.enqueue(PAGE).await;
            next.turn().await;
            assert_eq!(next.total(metrics::COMMITTED), 1, "taken over");
            if hears {
                late.way.faults().clear();
            }
        });
        late.way.faults().clear();
        assert_eq!(late.total(metrics::COMMITTED), 0);
        assert_eq!(world.published(PAGE).await.unwrap(), "next");
        let health = world.health(PAGE).await;
        assert!(!health.contains_key("failures"), "a late failure says nothing about the page as it is: {health:?}");
        world.drain(&late, Duration::from_secs(900)).await;
        assert_eq!(world.published(PAGE).await.unwrap(), "next");
        assert!(world.lock(PAGE).await.is_none());
        assert!(world.dead_letters().await.is_empty());
    }
}

/// Leases so short that a slow upload outlasts one.
fn short_leases() -> Make {
    Make { ladder: Ladder { lease_ms: 3_000, renew_interval_ms: 1_000, ..ladder() }, ..Make::default() }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_between_upload_and_commit_is_revived_if_nobody_took_it() {
    let world = World::new().await;
    let sandbox = world.sandbox_with(short_leases());
    sandbox.inject(On::next("PutObject").times(2), Fault::Silence);
    let id = world.enqueue(PAGE).await;
    sandbox.turn().await;
    assert!(world.now_ms() > everfresh_testing::START_MS + 5_000, "the upload outlasted the lease");
    assert_eq!(sandbox.operations().last().unwrap(), "TransactWriteItems");
    assert!(sandbox.operations().contains(&"UpdateItem".to_owned()), "revived");
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lost_its_lease_between_upload_and_commit_changes_nothing() {
    let world = World::new().await;
    let late = world.sandbox_with(short_leases());
    late.inject(On::next("PutObject").times(2), Fault::Silence);
    world.origin.content("late");
    let late_id = world.enqueue(PAGE).await;
    tokio::join!(late.turn(), async {
        let next = world.sandbox_with(short_leases());
        pause(1).await;
        world.origin.content("next");
        world.enqueue(PAGE).await;
        // As soon as the lease is free, and not before.
        while world.lock(PAGE).await.is_some_and(|lock| number(&lock, "lease_expires_at") * 1000 > world.now_ms() - 500)
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        next.turn().await;
        assert_eq!(next.total(metrics::COMMITTED), 1, "{:?}", next.operations());
    });
    assert_eq!(late.total(metrics::COMMITTED), 0);
    assert_eq!(world.published(PAGE).await.unwrap(), "next");
    assert_eq!(world.objects().await.len(), 2, "what the late one uploaded is an orphan for sweep");
    world.drain(&late, Duration::from_secs(900)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "next");
    assert!(["STARTED", "absent"].contains(&world.status(PAGE, &late_id).await.as_str()));
    assert!(world.lock(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_delivery_comes_again_after_the_visibility_time_out() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    assert_eq!(sandbox.receive().await.records.len(), 1);
    assert_eq!(sandbox.turn().await, 0);
    tokio::time::sleep(REDELIVERY).await;
    assert_eq!(sandbox.turn().await, 1);
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

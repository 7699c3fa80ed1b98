//! Deadlines, expired leases and claims, and renders that outlast them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use everfresh_core::config::Ladder;
use everfresh_core::metrics;
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{CONFIG, Make, OriginFault, START_MS, Sandbox, World, ladder, number, pause, text};

const PAGE: &str = "/products/42";
const TURN: Duration = Duration::from_secs(60);

/// Just past the visibility timeout.
const REDELIVERY: Duration = Duration::from_secs(401);

/// No renewal succeeds, so the lease expires during the render.
fn lose_renewals(sandbox: &Sandbox) {
    sandbox.inject(On::every("UpdateItem"), Fault::Cut);
}

/// The page's rows, which a late worker must not change.
async fn state(world: &World) -> impl PartialEq + std::fmt::Debug + use<> {
    world.rows(&world.pk(PAGE)).await
}

/// An invocation in a sandbox that Lambda can freeze: it is not polled until resumed, even if its
/// timers fire.
struct Freezable<F> {
    inner: Pin<Box<F>>,
    frozen: Arc<AtomicBool>,
}

impl<F: Future> Future for Freezable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.frozen.load(Ordering::Relaxed) {
            // Polled again once time moves on.
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

/// Leases shorter than a slow upload.
fn short_leases() -> Make {
    Make { ladder: Ladder { lease_ms: 3_000, renew_interval_ms: 1_000, ..ladder() }, ..Make::default() }
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
async fn redelivery_takes_over_after_function_timeout() {
    let world = World::new().await;
    world.origin.fail_with(OriginFault::Hangs);
    let killed = world.sandbox().await;
    let id = world.enqueue(PAGE).await;
    killed.invoke_killed_after(Duration::from_secs(20)).await;
    assert_eq!(world.status(PAGE, &id).await, "STARTED");
    world.origin.fail_with(OriginFault::No);
    let next = world.sandbox().await;
    world.drain(&next, Duration::from_secs(900)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert_eq!(number(&world.req(PAGE, &id).await.unwrap(), "attempts"), 2);
    assert!(world.lock(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn redelivery_waits_for_the_killed_workers_claim() {
    let world = World::new().await;
    world.origin.fail_with(OriginFault::Hangs);
    let killed = world.sandbox().await;
    let key = r#"{"v":1,"tenant":"acme","path":"/products/42","idempotency_key":"k"}"#;
    world.send(key).await;
    killed.invoke_killed_after(Duration::from_secs(2)).await;
    world.origin.fail_with(OriginFault::No);
    // The producer's retry arrives after the lease has expired and before the claim has.
    pause(40).await;
    world.send(key).await;
    let next = world.sandbox().await;
    next.invoke().await;
    assert_eq!(next.total(metrics::LOCK_CONTENTION), 1);
    assert_eq!(world.status(PAGE, "k").await, "STARTED");
    world.drain(&next, Duration::from_secs(900)).await;
    assert_eq!(world.status(PAGE, "k").await, "COMPLETED");
    assert_eq!(world.origin.renders(), 2);
}

#[tokio::test(start_paused = true)]
async fn sandbox_resumed_after_ten_minutes_changes_nothing() {
    // It is resumed with a rendered page, or with a failed render.
    for breaks in [OriginFault::No, OriginFault::Unreachable] {
        let world = World::new().await;
        let sandbox = world.sandbox().await;
        let id = world.enqueue(PAGE).await;
        world.origin.content("old");
        world.origin.takes(Duration::from_secs(5));
        world.origin.fail_with(breaks);
        let event = sandbox.receive().await;
        let frozen = Arc::new(AtomicBool::new(false));
        let handled = Freezable { inner: Box::pin(sandbox.handle(event, TURN)), frozen: frozen.clone() };
        tokio::join!(
            async {
                assert_eq!(handled.await.unwrap(), [id.as_str()], "refused");
            },
            async {
                pause(2).await;
                frozen.store(true, Ordering::Relaxed);
                world.origin.takes(Duration::ZERO);
                world.origin.fail_with(OriginFault::No);
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
async fn render_slower_than_the_lifetime_causes_no_loop() {
    let config = CONFIG.replace(r#"revalidate = "60s""#, r#"revalidate = "5s""#);
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
    assert_eq!(world.queued_messages().await, 0);
    // Nothing enqueues by itself.
    pause(600).await;
    left.invoke().await;
    assert_eq!(world.origin.renders(), renders);
    assert!(world.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_waiting_for_a_ten_minute_render_are_acked() {
    let world = World::new().await;
    let long_ladder = Ladder {
        render_deadline_ms: 700_000,
        function_timeout_ms: 720_000,
        claim_expiry_ms: 730_000,
        visibility_ms: 4_400_000,
        ..ladder()
    };
    long_ladder.check().unwrap();
    let queue = world.clean.sqs.set_queue_attributes().queue_url(&world.stack.queue);
    let visibility = aws_sdk_sqs::types::QueueAttributeName::VisibilityTimeout;
    queue.attributes(visibility, (long_ladder.visibility_ms / 1000).to_string()).send().await.unwrap();
    world.origin.takes(Duration::from_secs(600));
    let make = Make { ladder: long_ladder, ..Make::default() };
    let sandboxes = [world.sandbox_with(make), world.sandbox_with(make), world.sandbox_with(make)];
    world.enqueue(PAGE).await;
    let [first, second, third] = &sandboxes;
    let most = Duration::from_secs(7_200);
    tokio::join!(first.invoke(), async {
        pause(5).await;
        for _ in 0..10 {
            world.enqueue(PAGE).await;
            pause(1).await;
        }
        tokio::join!(world.drain(second, most), world.drain(third, most));
    });
    assert_eq!(world.origin.renders(), 2, "the second render covers all ten");
    assert!(world.dead_letters().await.is_empty());
    assert_eq!(world.queued_messages().await, 0);
    let busy: u64 = sandboxes.iter().map(|sandbox| sandbox.total(metrics::BUSY)).sum();
    assert!(busy < 10 * 60, "{busy} deliveries that found the page busy: far from the limit of 90 each");
}

#[tokio::test(start_paused = true)]
async fn render_longer_than_the_lease_renews_and_commits() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(45));
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    tokio::join!(sandbox.invoke(), async {
        pause(40).await;
        let lock = world.lock(PAGE).await.unwrap();
        assert!(number(&lock, "lease_expires_at") * 1000 > world.now_ms() + 15_000, "renewed");
    });
    assert_eq!(sandbox.total(metrics::COMMITTED), 1);
    assert_eq!(sandbox.operations().iter().filter(|operation| *operation == "UpdateItem").count(), 4);
    assert!(world.lock(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn one_lost_renewal_does_not_lose_the_lease() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(45));
    let sandbox = world.sandbox().await;
    sandbox.inject(On::next("UpdateItem").after(1).times(4), Fault::Cut);
    world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert_eq!(sandbox.total(metrics::COMMITTED), 1);
}

#[tokio::test(start_paused = true)]
async fn untaken_lease_expired_during_render_is_revived() {
    let world = World::new().await;
    world.origin.takes(Duration::from_secs(45));
    let sandbox = world.sandbox().await;
    lose_renewals(&sandbox);
    let id = world.enqueue(PAGE).await;
    tokio::join!(sandbox.invoke(), async {
        pause(42).await;
        let lock = world.lock(PAGE).await.unwrap();
        assert!(number(&lock, "lease_expires_at") * 1000 <= world.now_ms(), "it has expired");
        sandbox.way.faults().clear();
    });
    assert_eq!(sandbox.total(metrics::COMMITTED), 1);
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
    assert!(world.lock(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn lease_lost_during_render_changes_nothing() {
    // It ends late with a page or a failure, and detects the lost lease at a renewal or only at the
    // end.
    let cases = [OriginFault::No, OriginFault::Unreachable].map(|breaks| [(breaks, true), (breaks, false)]);
    for (breaks, renewal_detects) in cases.into_iter().flatten() {
        let world = World::new().await;
        world.enqueue("/products/42").await;
        world.sandbox().await.invoke().await;
        pause(5).await;
        let late = world.sandbox().await;
        lose_renewals(&late);
        world.origin.content("late");
        world.origin.takes(Duration::from_secs(45));
        world.origin.fail_with(breaks);
        world.enqueue(PAGE).await;
        tokio::join!(late.invoke(), async {
            pause(35).await;
            world.origin.takes(Duration::ZERO);
            world.origin.fail_with(OriginFault::No);
            world.origin.content("next");
            let next = world.sandbox().await;
            world.enqueue(PAGE).await;
            next.invoke().await;
            assert_eq!(next.total(metrics::COMMITTED), 1, "taken over");
            if renewal_detects {
                late.way.faults().clear();
            }
        });
        late.way.faults().clear();
        assert_eq!(late.total(metrics::COMMITTED), 0);
        assert_eq!(world.published(PAGE).await.unwrap(), "next");
        let health = world.health(PAGE).await;
        assert!(!health.contains_key("failures"), "a late failure is not counted: {health:?}");
        world.drain(&late, Duration::from_secs(900)).await;
        assert_eq!(world.published(PAGE).await.unwrap(), "next");
        assert!(world.lock(PAGE).await.is_none());
        assert!(world.dead_letters().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn untaken_lease_expired_during_upload_is_revived() {
    let world = World::new().await;
    let sandbox = world.sandbox_with(short_leases());
    sandbox.inject(On::next("PutObject").times(2), Fault::HangAfter);
    let id = world.enqueue(PAGE).await;
    sandbox.invoke().await;
    assert!(world.now_ms() > START_MS + 5_000, "the upload outlasted the lease");
    assert_eq!(sandbox.operations().last().unwrap(), "TransactWriteItems");
    assert!(sandbox.operations().contains(&"UpdateItem".to_owned()), "revived");
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
    assert_eq!(world.status(PAGE, &id).await, "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn lease_lost_during_upload_changes_nothing() {
    let world = World::new().await;
    let late = world.sandbox_with(short_leases());
    late.inject(On::next("PutObject").times(2), Fault::HangAfter);
    world.origin.content("late");
    let late_id = world.enqueue(PAGE).await;
    tokio::join!(late.invoke(), async {
        let next = world.sandbox_with(short_leases());
        pause(1).await;
        world.origin.content("next");
        world.enqueue(PAGE).await;
        // Starts as soon as the lease has expired.
        while world.lock(PAGE).await.is_some_and(|lock| number(&lock, "lease_expires_at") * 1000 > world.now_ms() - 500)
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        next.invoke().await;
        assert_eq!(next.total(metrics::COMMITTED), 1, "{:?}", next.operations());
    });
    assert_eq!(late.total(metrics::COMMITTED), 0);
    assert_eq!(world.published(PAGE).await.unwrap(), "next");
    assert_eq!(world.objects().await.len(), 2, "the late upload is an orphan for sweep");
    world.drain(&late, Duration::from_secs(900)).await;
    assert_eq!(world.published(PAGE).await.unwrap(), "next");
    let record = world.req(PAGE, &late_id).await.unwrap();
    assert_eq!(text(&record, "status"), "COMPLETED", "covered by the other worker's version");
    assert_eq!(text(&record, "result_s3_key"), text(&world.meta(PAGE).await.unwrap(), "s3_key"));
    assert!(world.lock(PAGE).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn unhandled_delivery_is_redelivered_after_visibility_timeout() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    world.enqueue(PAGE).await;
    assert_eq!(sandbox.receive().await.records.len(), 1);
    assert_eq!(sandbox.invoke().await, 0);
    tokio::time::sleep(REDELIVERY).await;
    assert_eq!(sandbox.invoke().await, 1);
    assert_eq!(world.published(PAGE).await.unwrap(), "one");
}

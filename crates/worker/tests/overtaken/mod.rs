//! Two invocations: A is stopped at an await until its claim and its lease have expired, B runs
//! meanwhile, then A is resumed.
//!
//! The content shows when a render began: "one" is published first, A renders "two" before the
//! stop, B renders "three", and renders that begin after B are "four". So the content reveals an
//! older render published over a newer one.

#[path = "../foreign/writer.rs"]
#[allow(dead_code, reason = "this foreign writer never crashes")]
mod writer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use everfresh_core::clock::Clock;
use everfresh_core::metrics::{self, Metric};
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Item, Make, OriginFault, Sandbox, World, number, pause, text};

use self::writer::{Attempt, CrashPoint, Ended, publish};
use tokio::time::Instant;

use crate::interrupted::{LEAST_AWAITS, polled, time};
use crate::notifying::{PAGE, notifying_world, versions_received};

/// From A's stop to B's start: longer than A's lease and claim.
const UNTIL_B_S: u64 = 200;
/// From B's end to A's resumption: longer than B's claim, so that A sends a notification that B
/// left pending.
const AFTER_B_S: u64 = 100;

/// Which message B handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A's, redelivered: B takes over A's claim.
    Same,
    /// Another message for the same page: A keeps its claim.
    Other,
}

/// How B ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// It publishes new content.
    Commit,
    /// It publishes the same content again.
    Unchanged,
    /// Its render fails.
    Failure,
    /// It publishes, and its notification fails.
    Unnotified,
    /// It is killed after it has claimed the request.
    Claimed,
    /// B is a foreign writer that publishes.
    Foreign,
}

/// Which of A's clocks stood still while it was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The timers only; the wall clock shows the elapsed time.
    Timers,
    /// Timers and wall clock: for A no time has passed.
    Clocks,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) message: Message,
    pub(crate) ends: Ends,
    pub(crate) stopped: Stopped,
    /// Whether A's render fails.
    pub(crate) a_fails: bool,
}

/// The stored state of the page.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    /// Without `pending_notification`, which any worker that sends the notification clears.
    meta: Item,
    health: Item,
    req: Option<Item>,
    lock: Option<Item>,
    content: String,
    renders: u64,
}

impl Stored {
    async fn of(world: &World, key: &str) -> Self {
        let mut meta = world.meta(PAGE).await.unwrap();
        meta.remove("pending_notification");
        let content = world.published(PAGE).await.unwrap();
        Self {
            meta,
            health: world.health(PAGE).await,
            req: world.req(PAGE, key).await,
            lock: world.lock(PAGE).await,
            content,
            renders: world.origin.renders(),
        }
    }

    fn version(&self) -> String {
        self.meta.get("version").map(|version| version.as_s().unwrap().clone()).unwrap_or_default()
    }

    /// Whether A's commit is published.
    fn is_committed(&self) -> bool {
        self.content == "two"
    }

    /// Whether A's render has begun, after the first one.
    fn is_rendering(&self) -> bool {
        self.renders > 1
    }

    /// Whether a worker holds the claim and the lease.
    fn has_rights(&self) -> bool {
        self.lock.is_some() && self.req.as_ref().is_some_and(|req| text(req, "status") == "STARTED")
    }
}

/// The outcome metrics; each message counts in exactly one.
const OUTCOMES: [Metric; 9] = [
    metrics::COMMITTED,
    metrics::UNCHANGED,
    metrics::ALREADY_COVERED,
    metrics::REPLAYED,
    metrics::BUSY,
    metrics::TOO_CLOSE,
    metrics::SUPERSEDED,
    metrics::FAILED,
    metrics::REJECTED,
];

impl Pair {
    /// Stops A at each of its awaits in turn.
    pub(crate) async fn check_at_every_await(self) {
        let mut with_rights = 0;
        for awaits in 1.. {
            match self.check_at(awaits).await {
                Stop::Over => {
                    assert!(awaits > LEAST_AWAITS, "{self:?}: only {awaits} awaits");
                    break;
                }
                Stop::WithRights => with_rights += 1,
                Stop::Otherwise => {}
            }
        }
        assert!(with_rights > 1, "{self:?}: A was stopped with claim and lease {with_rights} times");
    }

    async fn check_at(self, awaits: u32) -> Stop {
        let at = format!("{self:?}, await {awaits}");
        let world = notifying_world().await;
        let first = world.sandbox().await;
        world.publish(&first, PAGE, &["one"]).await;
        pause(100).await;

        world.origin.content("two");
        world.origin.takes(Duration::from_secs(2));
        world.origin.fail_with(if self.a_fails { OriginFault::Unreachable } else { OriginFault::No });
        let key = world.enqueue(PAGE).await;
        let clock = StoppedClock::new(&world);
        let a = world.sandbox_on(Make::default(), clock.clock());
        let event = a.receive().await;
        let same_event = event.clone();
        // The timers are set longer by the time they stand still; the deadline is not.
        clock.step(-clock.stop_ms());
        let mut work = Box::pin(a.handle(event, time() + clock.stop()));
        assert!(polled(&mut work, 1).await.is_none(), "{at}");
        clock.step(clock.stop_ms());
        if polled(&mut work, awaits - 1).await.is_some() {
            return Stop::Over;
        }
        pause(UNTIL_B_S).await;
        let stopped = Stored::of(&world, &key).await;

        let b = world.sandbox().await;
        self.run_b(&world, &b, same_event).await;
        world.origin.content("four");
        world.origin.fail_with(OriginFault::No);
        pause(AFTER_B_S).await;
        let before = Stored::of(&world, &key).await;
        let received_before = versions_received(&world);

        clock.stood_still();
        if self.stopped == Stopped::Clocks {
            clock.step(-clock.stop_ms());
        }
        let again = work.await.unwrap();
        let acked = again.is_empty();
        let after = Stored::of(&world, &key).await;
        self.check_published(&at, &stopped, &before, &after, acked);
        self.check_rights(&at, &world, &stopped, &before, &after);
        self.check_metrics(&at, &a, &stopped, &after, acked);
        self.check_notifications(&at, &world, &stopped, &before, &received_before, acked);

        // The next delivery completes whatever A left undone.
        pause(AFTER_B_S).await;
        let next = world.sandbox().await;
        world.drain(&next, Duration::from_secs(7_200)).await;
        let end = Stored::of(&world, &key).await;
        let covered = covers(&end.content, self.ends) || stopped.is_committed();
        assert!(covered, "{at}: in the end {:?} is published", end.content);
        assert_eq!(end.lock, None, "{at}");
        assert!(world.dead_letters().await.is_empty(), "{at}");
        assert!(
            !world.meta(PAGE).await.unwrap().contains_key("pending_notification"),
            "{at}: a notification is pending"
        );
        let published = [&stopped, &before, &after, &end].map(Stored::version);
        let received = versions_received(&world);
        let unknown: Vec<_> = received.iter().filter(|version| !published.contains(version)).collect();
        // At most one: a version that was replaced between two snapshots.
        assert!(unknown.len() <= 1, "{at}: subscribers received versions that were never published: {unknown:?}");
        if stopped.has_rights() { Stop::WithRights } else { Stop::Otherwise }
    }

    async fn run_b(self, world: &World, b: &Sandbox, same_event: aws_lambda_events::event::sqs::SqsEvent) {
        world.origin.content(if self.ends == Ends::Unchanged { "one" } else { "three" });
        world.origin.fail_with(if self.ends == Ends::Failure { OriginFault::Unreachable } else { OriginFault::No });
        if self.ends == Ends::Foreign {
            let attempt = Attempt { lease_s: 30, render: Duration::from_secs(2), crash: CrashPoint::Never };
            assert_eq!(publish(world, PAGE, attempt, || "three".to_owned()).await, Ended::Published);
            return;
        }
        let event = match self.message {
            Message::Same => same_event,
            Message::Other => {
                world.enqueue(PAGE).await;
                b.receive().await
            }
        };
        match self.ends {
            Ends::Unnotified => {
                b.inject(On::every("CreateInvalidation"), Fault::Cut);
                b.handle(event, time()).await.unwrap();
            }
            Ends::Claimed => {
                // After the claim and its takeover; the lease is never acquired.
                b.inject(On::every("PutItem").after(2), Fault::Hang);
                let _ = tokio::time::timeout(Duration::from_secs(1), b.handle(event, time())).await;
            }
            Ends::Commit | Ends::Unchanged | Ends::Failure | Ends::Foreign => {
                b.handle(event, time()).await.unwrap();
            }
        }
    }

    /// I1 and I2: an older render never replaces a newer one, and only covered requests are acked.
    fn check_published(self, at: &str, stopped: &Stored, before: &Stored, after: &Stored, acked: bool) {
        let new_render = after.content == "four";
        assert!(after.content == before.content || new_render, "{at}: {:?} over {:?}", after.content, before.content);
        if stopped.has_rights() {
            assert_eq!(after.meta, before.meta, "{at}: A's lookup of META was before B");
        }
        if acked {
            let covered = covers(&after.content, self.ends) || stopped.is_committed();
            assert!(covered, "{at}: acked, and {:?} is published", after.content);
        }
    }

    /// A resumed worker changes nothing that B owns, and keeps neither its claim nor its lease.
    fn check_rights(self, at: &str, world: &World, stopped: &Stored, before: &Stored, after: &Stored) {
        let left_by_b = !stopped.has_rights() && after.lock == before.lock;
        assert!(after.lock.is_none() || left_by_b, "{at}: A keeps the lease: {:?}", after.lock);
        let live = |req: &Item| text(req, "status") == "STARTED" && number(req, "claim_expires_ms") > world.now_ms();
        assert!(!after.req.as_ref().is_some_and(live), "{at}: A keeps its claim");
        if !stopped.has_rights() {
            return;
        }
        assert_eq!(after.health, before.health, "{at}: B's failure state stays");
        if self.message == Message::Same && self.ends != Ends::Foreign {
            assert_eq!(after.req, before.req, "{at}: the request is B's");
        }
        let completed = |req: &Option<Item>| req.as_ref().is_some_and(|req| text(req, "status") == "COMPLETED");
        assert!(completed(&after.req) || !completed(&before.req), "{at}: no longer completed");
    }

    /// One message has one outcome, and the expected one.
    fn check_metrics(self, at: &str, a: &Sandbox, stopped: &Stored, after: &Stored, acked: bool) {
        // A commit with a pending notification counts as committed, and its message is redelivered.
        let unnotified = a.total(metrics::NOTIFICATIONS_PENDING) > 0;
        let counts =
            |metric: &&Metric| a.total(**metric) > 0 && !(unnotified && metric.name == metrics::COMMITTED.name);
        let counted: Vec<&str> = OUTCOMES.iter().filter(counts).map(|metric| metric.name).collect();
        assert_eq!((a.total(metrics::RECEIVED), counted.len()), (1, 1), "{at}: {counted:?}");
        let outcome = counted[0];
        if !stopped.has_rights() {
            return;
        }
        let expected = match (self.stopped, self.a_fails && stopped.is_rendering(), self.message, self.ends) {
            (_, true, ..) => vec!["failed"],
            // A sees that it is late; a render that has not begun counts as timed out.
            (Stopped::Timers, ..) => vec!["busy", "failed"],
            (Stopped::Clocks, _, _, Ends::Foreign) => vec!["superseded"],
            (Stopped::Clocks, _, Message::Same, _) => vec!["busy"],
            (Stopped::Clocks, _, Message::Other, Ends::Failure | Ends::Claimed) => vec!["busy"],
            (Stopped::Clocks, _, Message::Other, Ends::Commit | Ends::Unchanged | Ends::Unnotified) => {
                vec!["already_covered"]
            }
        };
        assert!(expected.contains(&outcome), "{at}: {outcome}, expected {expected:?}");
        assert_eq!(acked, outcome == "already_covered", "{at}: {outcome} over {:?}", after.content);
    }

    /// A sends B's pending notification before A's message is acked, unless A itself has published.
    fn check_notifications(
        self,
        at: &str,
        world: &World,
        stopped: &Stored,
        before: &Stored,
        received: &BTreeSet<String>,
        acked: bool,
    ) {
        let now = versions_received(world);
        assert!(now.is_superset(received), "{at}");
        if acked && self.ends == Ends::Unnotified && !stopped.is_committed() {
            assert!(now.contains(&before.version()), "{at}: acked, and B's notification is still pending");
        }
    }
}

/// A's state when it was stopped.
enum Stop {
    /// It held its claim and its lease.
    WithRights,
    /// It did not hold both yet, or had released them.
    Otherwise,
    /// It had already finished.
    Over,
}

/// Whether one of our workers rendered the content after A's message was sent.
fn covers(content: &str, ends: Ends) -> bool {
    match content {
        "two" | "three" | "four" => true,
        // B rendered it again.
        "one" => ends == Ends::Unchanged,
        // A foreign row covers no request.
        _ => false,
    }
}

/// A's wall clock and monotonic clock.
struct StoppedClock {
    aws: Clock,
    started: Instant,
    /// Offset of the wall clock.
    ahead_ms: Arc<AtomicI64>,
    /// Time during which the monotonic clock stood still.
    stood_ms: Arc<AtomicI64>,
}

impl StoppedClock {
    fn new(world: &World) -> Self {
        let started = Instant::now();
        Self { aws: world.clock.clone(), started, ahead_ms: Arc::default(), stood_ms: Arc::default() }
    }

    /// Duration of A's stop, with time to spare for B.
    fn stop(&self) -> Duration {
        Duration::from_secs(UNTIL_B_S + AFTER_B_S + 20)
    }

    fn stop_ms(&self) -> i64 {
        i64::try_from(self.stop().as_millis()).unwrap()
    }

    /// Steps the wall clock.
    fn step(&self, by_ms: i64) {
        self.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    fn stood_still(&self) {
        self.stood_ms.fetch_add(self.stop_ms(), Ordering::Relaxed);
    }

    fn clock(&self) -> Clock {
        let (aws, ahead_ms) = (self.aws.clone(), self.ahead_ms.clone());
        let wall = move || moved(aws.now(), ahead_ms.load(Ordering::Relaxed));
        let (started, stood_ms) = (self.started, self.stood_ms.clone());
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let monotonic = move || {
            let now = moved(start + started.elapsed(), -stood_ms.load(Ordering::Relaxed));
            now.duration_since(SystemTime::UNIX_EPOCH).unwrap()
        };
        Clock::with_monotonic(wall, monotonic)
    }
}

fn moved(time: SystemTime, by_ms: i64) -> SystemTime {
    let by = Duration::from_millis(by_ms.unsigned_abs());
    if by_ms < 0 { time - by } else { time + by }
}

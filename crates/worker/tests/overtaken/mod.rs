//! Two invocations: A is stopped at an await for longer than its claim and its lease last, B runs meanwhile, A is resumed.
//!
//! Each render says when it began: "one" is published before, A's reads "two" before the stop, B's "three", and whatever begins after B
//! has ended "four". So the content tells whether something old was published over something newer.

#[path = "../helper/writer.rs"]
#[allow(dead_code, reason = "here the foreign writer always lives")]
mod writer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use everfresh_core::clock::Clock;
use everfresh_core::metrics::{self, Metric};
use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Breaks, Item, Make, Sandbox, World, number, pause, text};

use self::writer::{Attempt, Dies, Ended, publish};
use tokio::time::Instant;

use crate::interrupted::{LEAST_AWAITS, polled, time};
use crate::notified::{PAGE, heard, telling};

/// From A's stop to B's beginning: past A's lease and its claim.
const UNTIL_B_S: u64 = 200;
/// From B's end to A's resumption: past B's claim, so that a notification that B did not send falls to A.
const AFTER_B_S: u64 = 100;

/// Whose message B has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A's, delivered again: B takes A's claim over.
    Same,
    /// Another one for the page: A keeps its claim.
    Other,
}

/// How B ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// It publishes new content.
    Commit,
    /// It publishes the content that was there.
    Unchanged,
    /// Its render fails.
    Failure,
    /// It publishes, and its notification is lost.
    Unnotified,
    /// It is killed after its claim.
    Claimed,
    /// B is a foreign writer, and publishes.
    Foreign,
}

/// What A finds when it is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Its timers have not moved; its wall clock shows how late it is.
    Timers,
    /// Nothing has moved: it believes that no time has passed.
    Clocks,
}

/// One pair of invocations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) message: Message,
    pub(crate) ends: Ends,
    pub(crate) stopped: Stopped,
    /// Whether A's render fails.
    pub(crate) a_fails: bool,
}

/// What is stored for the page.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    /// Without the mark of a pending notification, which whoever sends it may take off.
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

    /// Whether A's commit has arrived.
    fn is_committed(&self) -> bool {
        self.content == "two"
    }

    /// Whether A's render has begun, beside the one before it.
    fn is_rendering(&self) -> bool {
        self.renders > 1
    }

    /// Whether a worker holds the claim and the lease.
    fn has_rights(&self) -> bool {
        self.lock.is_some() && self.req.as_ref().is_some_and(|req| text(req, "status") == "STARTED")
    }
}

/// The outcomes, of which each message has one.
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
        let world = telling().await;
        let first = world.sandbox().await;
        world.publish(&first, PAGE, &["one"]).await;
        pause(100).await;

        world.origin.content("two");
        world.origin.takes(Duration::from_secs(2));
        world.origin.breaks(if self.a_fails { Breaks::Unreachable } else { Breaks::No });
        let key = world.enqueue(PAGE).await;
        let clock = StoppedClock::new(&world);
        let a = world.sandbox_on(Make::default(), clock.clock());
        let event = a.receive().await;
        let same_event = event.clone();
        // Its timers are set for as much longer as they will not run; its deadline is not.
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
        world.origin.breaks(Breaks::No);
        pause(AFTER_B_S).await;
        let before = Stored::of(&world, &key).await;
        let told_before = heard(&world).0;

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
        self.check_notifications(&at, &world, &stopped, &before, &told_before, acked);

        // Whatever A left, the next delivery finishes.
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
        let known = heard(&world).0;
        let unknown: Vec<_> = known.iter().filter(|version| !published.contains(version)).collect();
        // B's commit may be A's: the version between two snapshots that nobody saw.
        assert!(unknown.len() <= 1, "{at}: subscribers received versions that were never published: {unknown:?}");
        if stopped.has_rights() { Stop::WithRights } else { Stop::Otherwise }
    }

    async fn run_b(self, world: &World, b: &Sandbox, same_event: aws_lambda_events::event::sqs::SqsEvent) {
        world.origin.content(if self.ends == Ends::Unchanged { "one" } else { "three" });
        world.origin.breaks(if self.ends == Ends::Failure { Breaks::Unreachable } else { Breaks::No });
        if self.ends == Ends::Foreign {
            let attempt = Attempt { lease_s: 30, render: Duration::from_secs(2), dies: Dies::Never };
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
                // The claim, its takeover; the lease is not taken any more.
                b.inject(On::every("PutItem").after(2), Fault::Hang);
                let _ = tokio::time::timeout(Duration::from_secs(1), b.handle(event, time())).await;
            }
            Ends::Commit | Ends::Unchanged | Ends::Failure | Ends::Foreign => {
                b.handle(event, time()).await.unwrap();
            }
        }
    }

    /// I1 and I2: nothing older is published over something newer, and nothing is acked that is not covered.
    fn check_published(self, at: &str, stopped: &Stored, before: &Stored, after: &Stored, acked: bool) {
        let new_render = after.content == "four";
        assert!(after.content == before.content || new_render, "{at}: {:?} over {:?}", after.content, before.content);
        if stopped.has_rights() {
            assert_eq!(after.meta, before.meta, "{at}: META was looked up before B");
        }
        if acked {
            let covered = covers(&after.content, self.ends) || stopped.is_committed();
            assert!(covered, "{at}: acked, and {:?} is published", after.content);
        }
    }

    /// An overtaken worker changes nothing that is another's, and keeps nothing that is its own.
    fn check_rights(self, at: &str, world: &World, stopped: &Stored, before: &Stored, after: &Stored) {
        let left_by_b = !stopped.has_rights() && after.lock == before.lock;
        assert!(after.lock.is_none() || left_by_b, "{at}: A keeps the lease: {:?}", after.lock);
        let live = |req: &Item| text(req, "status") == "STARTED" && number(req, "claim_expires_ms") > world.now_ms();
        assert!(!after.req.as_ref().is_some_and(live), "{at}: A keeps its claim");
        if !stopped.has_rights() {
            return;
        }
        assert_eq!(after.health, before.health, "{at}: B has the last word on failures");
        if self.message == Message::Same && self.ends != Ends::Foreign {
            assert_eq!(after.req, before.req, "{at}: the request is B's");
        }
        let completed = |req: &Option<Item>| req.as_ref().is_some_and(|req| text(req, "status") == "COMPLETED");
        assert!(completed(&after.req) || !completed(&before.req), "{at}: completed, and not any more");
    }

    /// One message, one outcome, and the right one.
    fn check_metrics(self, at: &str, a: &Sandbox, stopped: &Stored, after: &Stored, acked: bool) {
        // A commit whose notification could not be sent is counted, and its message comes again.
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
            // Too late, and it knows; a render that was not begun yet counts as one that took too long.
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

    /// What B could not send, A sends before its message is acked, unless it has published itself.
    fn check_notifications(
        self,
        at: &str,
        world: &World,
        stopped: &Stored,
        before: &Stored,
        received: &BTreeSet<String>,
        acked: bool,
    ) {
        let now = heard(world).0;
        assert!(now.is_superset(received), "{at}");
        if acked && self.ends == Ends::Unnotified && !stopped.is_committed() {
            assert!(now.contains(&before.version()), "{at}: acked, and B's notification is still pending");
        }
    }
}

/// Where A was stopped.
enum Stop {
    /// With its claim and its lease.
    WithRights,
    /// Before it had both, or after it gave them up.
    Otherwise,
    /// Nowhere: it was over.
    Over,
}

/// Whether the content was rendered after A's message was sent, by one of our workers.
fn covers(content: &str, ends: Ends) -> bool {
    match content {
        "two" | "three" | "four" => true,
        // B rendered it again.
        "one" => ends == Ends::Unchanged,
        // A foreign row covers nobody.
        _ => false,
    }
}

/// A's clocks.
struct StoppedClock {
    aws: Clock,
    started: Instant,
    /// By how much the wall clock is ahead.
    ahead_ms: Arc<AtomicI64>,
    /// For how long the monotonic clock has stood still.
    stood_ms: Arc<AtomicI64>,
}

impl StoppedClock {
    fn new(world: &World) -> Self {
        let started = Instant::now();
        Self { aws: world.clock.clone(), started, ahead_ms: Arc::default(), stood_ms: Arc::default() }
    }

    /// How long A stands still, with time to spare for B.
    fn stop(&self) -> Duration {
        Duration::from_secs(UNTIL_B_S + AFTER_B_S + 20)
    }

    fn stop_ms(&self) -> i64 {
        i64::try_from(self.stop().as_millis()).unwrap()
    }

    /// Sets the wall clock.
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

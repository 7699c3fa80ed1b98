//! Rounds on one page: the content changes, a message reports it, and our worker and a foreign
//! writer regenerate concurrently, each crashing at random points. After each round the queue is
//! drained, and the change must be published.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Make, Sandbox, World, text};
use fastrand::Rng;

use super::writer::{Attempt, CrashPoint, Ended, publish};

const PAGE: &str = "/products/42";

/// Just past the visibility timeout of a killed worker's message.
const REDELIVERED: Duration = Duration::from_millis(401_000);

/// How our worker's invocation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Completed,
    Killed,
    /// It commits, and the ack is lost.
    Unacked,
    /// One response of DynamoDB is lost.
    ResponseLost,
}

pub(crate) struct Rounds {
    world: World,
    sandboxes: Vec<Sandbox>,
    rng: RefCell<Rng>,
    content: RefCell<String>,
    /// Our last version, unless the foreign writer has published since.
    last: RefCell<Option<String>>,
    foreign: Cell<u64>,
    foreign_at_last_check: Cell<u64>,
    ends: BTreeMap<Ended, u32>,
    turns: BTreeMap<Turn, u32>,
}

impl Rounds {
    pub(crate) async fn new(seed: u64) -> Self {
        let world = World::new().await;
        let skewed = |skew_ms| world.sandbox_with(Make { skew_ms, ..Make::default() });
        let sandboxes = vec![skewed(0), skewed(-800), skewed(800)];
        Self {
            world,
            sandboxes,
            rng: RefCell::new(Rng::with_seed(seed)),
            content: RefCell::default(),
            last: RefCell::default(),
            foreign: Cell::default(),
            foreign_at_last_check: Cell::default(),
            ends: BTreeMap::new(),
            turns: BTreeMap::new(),
        }
    }

    fn millis(&self, most: u64) -> Duration {
        Duration::from_millis(self.rng.borrow_mut().u64(0..most))
    }

    pub(crate) async fn play(&mut self, round: usize) {
        let content = format!("content {round}");
        let (ended, (turn, ids)) = tokio::join!(self.foreign_writer(), self.worker(round, &content));
        *self.ends.entry(ended).or_default() += 1;
        *self.turns.entry(turn).or_default() += 1;
        if turn != Turn::Completed {
            tokio::time::sleep(REDELIVERED).await;
        }
        let sandbox = &self.sandboxes[round % self.sandboxes.len()];
        sandbox.way.faults().clear();
        self.world.drain(sandbox, Duration::from_secs(7_200)).await;
        self.check_versions(round).await;
        self.check(round, &content, &ids).await;
        tokio::time::sleep(self.millis(9_000)).await;
    }

    /// Starts at a random time, renders for a random time, and may take a lease that is too short.
    async fn foreign_writer(&self) -> Ended {
        tokio::time::sleep(self.millis(9_000)).await;
        let attempt = {
            let mut rng = self.rng.borrow_mut();
            let points = [
                CrashPoint::AfterAcquire,
                CrashPoint::AfterRender,
                CrashPoint::AfterUpload,
                CrashPoint::Never,
                CrashPoint::Never,
                CrashPoint::Never,
            ];
            let crash = rng.choice(points).unwrap();
            Attempt { lease_s: rng.u64(4..12), render: Duration::from_millis(rng.u64(0..7_000)), crash }
        };
        let ended = publish(&self.world, PAGE, attempt, || self.content.borrow().clone()).await;
        if ended == Ended::Published {
            self.foreign.set(self.foreign.get() + 1);
        }
        ended
    }

    async fn worker(&self, round: usize, content: &str) -> (Turn, Vec<String>) {
        tokio::time::sleep(self.millis(5_000)).await;
        *self.content.borrow_mut() = content.to_owned();
        self.world.origin.content(content);
        self.world.origin.takes(self.millis(6_000));
        let mut ids = vec![self.world.enqueue(PAGE).await];
        if self.rng.borrow_mut().u32(0..4) == 0 {
            ids.push(self.world.enqueue(PAGE).await);
        }
        tokio::time::sleep(self.millis(5_000)).await;
        let turns =
            [Turn::Completed, Turn::Completed, Turn::Completed, Turn::Killed, Turn::Unacked, Turn::ResponseLost];
        let turn = self.rng.borrow_mut().choice(turns).unwrap();
        let sandbox = &self.sandboxes[(round + 1) % self.sandboxes.len()];
        match turn {
            Turn::Completed => drop(sandbox.invoke().await),
            Turn::Killed => sandbox.invoke_killed_after(self.millis(8_000)).await,
            Turn::Unacked => drop(sandbox.invoke_unacked().await),
            Turn::ResponseLost => {
                let operation = self.rng.borrow_mut().choice(["PutItem", "UpdateItem", "TransactWriteItems"]).unwrap();
                sandbox.inject(On::next(operation), Fault::LoseResponse);
                sandbox.invoke().await;
                sandbox.way.faults().clear();
            }
        }
        self.check_versions(round).await;
        (turn, ids)
    }

    /// META points at a body, and our versions increase unless the foreign writer published in
    /// between.
    async fn check_versions(&self, round: usize) {
        let Some(meta) = self.world.meta(PAGE).await else { return };
        self.world.object(&text(&meta, "s3_key")).await;
        let version = meta.get("version").map(|version| version.as_s().unwrap().clone());
        let foreign = self.foreign.get();
        let mut last = self.last.borrow_mut();
        if foreign == self.foreign_at_last_check.get()
            && let (Some(last), Some(version)) = (last.as_ref(), version.as_ref())
        {
            assert!(version >= last, "round {round}: {version} after {last}");
        }
        self.foreign_at_last_check.set(foreign);
        *last = version;
    }

    /// Our worker has rendered the change, it is published, and every message is acked.
    async fn check(&self, round: usize, content: &str, ids: &[String]) {
        let published = self.world.published(PAGE).await.unwrap();
        assert!(
            published == content || published == format!("{content} by foreign writer"),
            "round {round}: {published}"
        );
        let mut rendered = 0;
        for id in ids {
            match self.world.req(PAGE, id).await {
                Some(record) if text(&record, "status") == "COMPLETED" => {
                    let result = self.world.object(&text(&record, "result_s3_key")).await;
                    rendered += u32::from(result == content);
                }
                // Covered by the round's other message, before its claim or after its worker was
                // killed.
                other => assert_eq!(ids.len(), 2, "round {round}: {other:?}"),
            }
        }
        assert!(rendered > 0, "round {round}: our worker did not render the change");
        assert_eq!(self.world.queued_messages().await, 0, "round {round}");
    }

    pub(crate) async fn finish(self) {
        assert!(self.world.dead_letters().await.is_empty());
        eprintln!("interop: {:?}, {:?}", self.ends, self.turns);
        let all = [Ended::LeaseHeld, Ended::Crashed, Ended::Refused, Ended::Published];
        for ended in all {
            assert!(self.ends.get(&ended).is_some_and(|times| *times > 20), "{ended:?} is too rare: {:?}", self.ends);
        }
        for turn in [Turn::Completed, Turn::Killed, Turn::Unacked, Turn::ResponseLost] {
            assert!(self.turns.get(&turn).is_some_and(|times| *times > 50), "{turn:?} is too rare: {:?}", self.turns);
        }
    }
}

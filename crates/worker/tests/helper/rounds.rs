//! Rounds on one page: the content changes, a message says so, and our worker and a helper of another language are at it at the same
//! time, each dying wherever it happens to. After each round the queue is worked off, and nothing may be missing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use everfresh_local::faults::{Fault, On};
use everfresh_testing::{Make, Sandbox, World, text};
use fastrand::Rng;

use super::writer::{Attempt, Dies, Ended, publish};

const PAGE: &str = "/products/42";

/// Until a dead worker's message is visible again.
const REDELIVERED: Duration = Duration::from_millis(401_000);

/// What our worker does in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Whole,
    Killed,
    /// All is done, and the queue does not hear of it.
    Unacked,
    /// An answer of DynamoDB's gets lost.
    Deafened,
}

pub(crate) struct Rounds {
    world: World,
    sandboxes: Vec<Sandbox>,
    chance: RefCell<Rng>,
    content: RefCell<String>,
    /// The last version of ours, as long as no helper has published since.
    last: RefCell<Option<String>>,
    foreign: Cell<u64>,
    foreign_at_last_look: Cell<u64>,
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
            chance: RefCell::new(Rng::with_seed(seed)),
            content: RefCell::default(),
            last: RefCell::default(),
            foreign: Cell::default(),
            foreign_at_last_look: Cell::default(),
            ends: BTreeMap::new(),
            turns: BTreeMap::new(),
        }
    }

    fn millis(&self, most: u64) -> Duration {
        Duration::from_millis(self.chance.borrow_mut().u64(0..most))
    }

    pub(crate) async fn play(&mut self, round: usize) {
        let content = format!("content {round}");
        let (ended, (turn, ids)) = tokio::join!(self.helper(), self.worker(round, &content));
        *self.ends.entry(ended).or_default() += 1;
        *self.turns.entry(turn).or_default() += 1;
        if turn != Turn::Whole {
            tokio::time::sleep(REDELIVERED).await;
        }
        let sandbox = &self.sandboxes[round % self.sandboxes.len()];
        sandbox.way.faults().clear();
        self.world.drain(sandbox, Duration::from_secs(7_200)).await;
        self.look(round).await;
        self.check(round, &content, &ids).await;
        tokio::time::sleep(self.millis(9_000)).await;
    }

    /// The helper comes at any time, takes any time, and may have a lease that is too short for it.
    async fn helper(&self) -> Ended {
        tokio::time::sleep(self.millis(9_000)).await;
        let attempt = {
            let mut chance = self.chance.borrow_mut();
            let dies =
                [Dies::AfterAcquire, Dies::AfterRender, Dies::AfterUpload, Dies::Never, Dies::Never, Dies::Never];
            let dies = chance.choice(dies).unwrap();
            Attempt { lease_s: chance.u64(4..12), render: Duration::from_millis(chance.u64(0..7_000)), dies }
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
        if self.chance.borrow_mut().u32(0..4) == 0 {
            ids.push(self.world.enqueue(PAGE).await);
        }
        tokio::time::sleep(self.millis(5_000)).await;
        let turns = [Turn::Whole, Turn::Whole, Turn::Whole, Turn::Killed, Turn::Unacked, Turn::Deafened];
        let turn = self.chance.borrow_mut().choice(turns).unwrap();
        let sandbox = &self.sandboxes[(round + 1) % self.sandboxes.len()];
        match turn {
            Turn::Whole => drop(sandbox.turn().await),
            Turn::Killed => sandbox.turn_killed_after(self.millis(8_000)).await,
            Turn::Unacked => drop(sandbox.turn_unacked().await),
            Turn::Deafened => {
                let deaf = self.chance.borrow_mut().choice(["PutItem", "UpdateItem", "TransactWriteItems"]).unwrap();
                sandbox.inject(On::next(deaf), Fault::LoseResponse);
                sandbox.turn().await;
                sandbox.way.faults().clear();
            }
        }
        self.look(round).await;
        (turn, ids)
    }

    /// META points at a body, and a version of ours follows the one before it unless a helper published in between.
    async fn look(&self, round: usize) {
        let Some(meta) = self.world.meta(PAGE).await else { return };
        self.world.object(&text(&meta, "s3_key")).await;
        let version = meta.get("version").map(|version| version.as_s().unwrap().clone());
        let foreign = self.foreign.get();
        let mut last = self.last.borrow_mut();
        if foreign == self.foreign_at_last_look.get()
            && let (Some(last), Some(version)) = (last.as_ref(), version.as_ref())
        {
            assert!(version >= last, "round {round}: {version} after {last}");
        }
        self.foreign_at_last_look.set(foreign);
        *last = version;
    }

    /// The change is rendered by us, is what is published, and every message is acked.
    async fn check(&self, round: usize, content: &str, ids: &[String]) {
        let published = self.world.published(PAGE).await.unwrap();
        assert!(published == content || published == format!("{content} by them"), "round {round}: {published}");
        let mut rendered = 0;
        for id in ids {
            match self.world.req(PAGE, id).await {
                Some(record) if text(&record, "status") == "COMPLETED" => {
                    let result = self.world.object(&text(&record, "result_s3_key")).await;
                    rendered += u32::from(result == content);
                }
                // Granted by the other message of the round, before it was claimed or after its worker had died.
                other => assert_eq!(ids.len(), 2, "round {round}: {other:?}"),
            }
        }
        assert!(rendered > 0, "round {round}: no render of ours has seen the change");
        assert_eq!(self.world.waiting().await, 0, "round {round}");
    }

    pub(crate) async fn finish(self) {
        assert!(self.world.dead_letters().await.is_empty());
        eprintln!("interop: {:?}, {:?}", self.ends, self.turns);
        let all = [Ended::NotGranted, Ended::Died, Ended::Refused, Ended::Published];
        for ended in all {
            assert!(self.ends.get(&ended).is_some_and(|times| *times > 20), "{ended:?} hardly ever: {:?}", self.ends);
        }
        for turn in [Turn::Whole, Turn::Killed, Turn::Unacked, Turn::Deafened] {
            assert!(self.turns.get(&turn).is_some_and(|times| *times > 50), "{turn:?} hardly ever: {:?}", self.turns);
        }
    }
}

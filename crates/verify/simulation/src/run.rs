//! One run: a seed in, everything that happened out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_core::config::Config;
use everfresh_local::engines::Engines;
use everfresh_local::faults::{Faults, On};
use everfresh_local::stack;

use crate::actors;
use crate::branches;
use crate::check::{Actor, Checker, Property, Violation};
use crate::pages::{CONFIG, Pages};
use crate::profile::{Profile, burst_fault};
use crate::queues::Queues;
use crate::sabotage::Sabotage;
use crate::site::Sites;
use crate::store::Store;
use crate::wire::Wire;

/// When a simulation begins, by AWS's clock.
const START_MS: u64 = 1_763_270_000_000;

/// How long things go wrong.
pub const CHAOS: Duration = Duration::from_secs(300);

/// How long everything may take to come to rest afterwards.
const LONGEST: Duration = Duration::from_secs(48 * 3600);

/// What a run was like.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// The hash of everything that arrived anywhere, and when.
    pub trace: String,
    /// What the run was like.
    pub profile: Option<Profile>,
    /// A line per step, if asked for.
    pub lines: Vec<String>,
    /// What happened how often.
    pub figures: Figures,
}

/// What happened how often.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Runs.
    pub runs: u64,
    /// Of all runs, how few workers one had.
    pub fewest_workers: Option<u32>,
    /// Of all runs, how few messages came from producers in one.
    pub fewest_messages: Option<u32>,
    /// Requests that arrived at a service.
    pub steps: u64,
    /// Messages that a queue took.
    pub messages: u64,
    /// Versions that were published.
    pub commits: u64,
    /// Renders that began.
    pub renders: u64,
    /// Pages that readers asked for.
    pub reads: u64,
    /// Letters in the dead-letter queue at the end.
    pub dead_letters: u64,
    /// Faults by kind, fates of invocations among them.
    pub faults: BTreeMap<String, u64>,
    /// What became of messages.
    pub outcomes: BTreeMap<String, u64>,
    /// What DynamoDB refused, and over which row.
    pub cancellations: BTreeMap<String, u64>,
    /// Checks by property.
    pub checks: BTreeMap<String, u64>,
    /// Branches of the protocol.
    pub branches: BTreeMap<String, u64>,
}

impl Figures {
    /// Adds another run's.
    pub fn add(&mut self, other: &Figures) {
        self.runs += other.runs;
        self.fewest_workers = self.fewest_workers.into_iter().chain(other.fewest_workers).min();
        self.fewest_messages = self.fewest_messages.into_iter().chain(other.fewest_messages).min();
        self.steps += other.steps;
        self.messages += other.messages;
        self.commits += other.commits;
        self.renders += other.renders;
        self.reads += other.reads;
        self.dead_letters += other.dead_letters;
        let maps = [
            (&mut self.faults, &other.faults),
            (&mut self.outcomes, &other.outcomes),
            (&mut self.cancellations, &other.cancellations),
            (&mut self.checks, &other.checks),
            (&mut self.branches, &other.branches),
        ];
        for (sum, more) in maps {
            for (name, count) in more {
                *sum.entry(name.clone()).or_default() += count;
            }
        }
    }
}

/// The world that the actors share.
pub(crate) struct Sim {
    pub(crate) seed: u64,
    pub(crate) profile: Profile,
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    pub(crate) pages: Arc<Pages>,
    pub(crate) sites: Sites,
    pub(crate) queues: Queues,
    pub(crate) checker: Checker,
    pub(crate) wire: Wire,
    calm: AtomicBool,
    over: AtomicBool,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    faults: Vec<Faults>,
    happened: BTreeMap<String, u64>,
    outcomes: BTreeMap<String, u64>,
    branches: BTreeMap<String, u64>,
    reads: u64,
}

impl Sim {
    async fn new(seed: u64, sabotage: Option<Sabotage>, tell: bool) -> anyhow::Result<Self> {
        let profile = Profile::draw(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let started = tokio::time::Instant::now();
        let clock = Clock::new(move || UNIX_EPOCH + Duration::from_millis(START_MS) + started.elapsed());
        let engines = Engines::memory(clock.clone()).await?;
        let config = Config::parse(CONFIG)?;
        let pages = Arc::new(Pages::new(&config, profile.pages, &mut rng));
        let sites = Sites::new(rng.u64(..), profile.manner);
        let queues = Queues::new(clock.clone(), profile.duplicates);
        if let Some(ms) = profile.notification_outage_ms {
            engines.subscribers().outage_until(START_MS + ms);
        }
        let store = Store::new(engines.clone(), clock.clone());
        let checker = Checker::new(store, pages.clone(), sites.clone(), queues.clone())
            .with_clock_steps(profile.clocks.steps > 0);
        let wire = Wire::new(engines, queues.clone(), checker.clone(), clock.clone(), sabotage, tell).with(&profile);
        let clean = wire.way(Actor::Operator, Faults::none()).clients(clock.clone(), ClientTimeouts::WORKER);
        stack::provision_store(&clean).await?;
        let simulation = Self {
            seed,
            profile,
            clock,
            config,
            pages,
            sites,
            queues,
            checker,
            wire,
            calm: AtomicBool::new(false),
            over: AtomicBool::new(false),
            tally: Mutex::default(),
        };
        if simulation.profile.notification_outage_ms.is_some() {
            simulation.happened("notification-outage");
        }
        Ok(simulation)
    }

    /// A generator of its own for each actor, so that one actor's draws do not shift another's.
    pub(crate) fn rng(&self, actor: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000_003).wrapping_add(actor))
    }

    /// Clients of one machine with this clock, with faults while there is chaos.
    pub(crate) fn clients(&self, actor: Actor, seed: u64, clock: Clock, timeouts: ClientTimeouts) -> Clients {
        let faults = if self.is_calm() { Faults::none() } else { Faults::seeded(seed, self.profile.rates.clone()) };
        if actor == Actor::Worker && !self.is_calm() {
            let mut rng = fastrand::Rng::with_seed(seed);
            for operation in self.profile.bursts {
                // Longer than the SDK tries, now and then through a whole render.
                for skip in [rng.u64(0..4), rng.u64(4..30), rng.u64(30..100)] {
                    let most = [6, 12, 30][rng.usize(0..3)];
                    let on = On::next(operation).after(skip).times(rng.u64(3..=most));
                    faults.inject(on, burst_fault(&mut rng));
                }
            }
        }
        self.tally().faults.push(faults.clone());
        self.wire.way(actor, faults).clients(clock, timeouts)
    }

    /// Clients to which nothing happens.
    pub(crate) fn clean_clients(&self, actor: Actor) -> Clients {
        self.wire.way(actor, Faults::none()).clients(self.clock.clone(), ClientTimeouts::WORKER)
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn happened(&self, what: &str) {
        *self.tally().happened.entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn outcome(&self, name: &str, count: u64) {
        *self.tally().outcomes.entry(name.to_owned()).or_default() += count;
    }

    /// The protocol took a branch.
    fn reached(&self, branch: &str) {
        *self.tally().branches.entry(branch.to_owned()).or_default() += 1;
        self.wire.note(|| format!("branch {branch}"));
    }

    pub(crate) fn read(&self) {
        self.tally().reads += 1;
    }

    /// From now on nothing goes wrong that has not gone wrong already.
    fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.sites.heal();
        for faults in &self.tally().faults {
            faults.clear();
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, produced: u32) -> Report {
        let tally = self.tally();
        let mut faults = tally.happened.clone();
        let on_the_wire = tally.faults.iter().flat_map(|source| source.fired());
        for (kind, count) in on_the_wire.chain(self.sites.failures()).chain(self.wire.faults()) {
            *faults.entry(kind.to_owned()).or_default() += count;
        }
        let checks = self.checker.checks().into_iter().map(|(property, count)| (format!("{property:?}"), count));
        Report {
            violations: self.checker.violations(),
            trace: self.wire.trace(),
            profile: Some(self.profile.clone()),
            lines: self.wire.lines(),
            figures: Figures {
                runs: 1,
                fewest_workers: Some(self.profile.workers),
                fewest_messages: Some(produced),
                steps: self.wire.steps(),
                messages: self.queues.all().len() as u64,
                commits: self.checker.commits(),
                renders: self.sites.renders(),
                reads: tally.reads,
                dead_letters: self.queues.dead_letters().len() as u64,
                faults,
                outcomes: tally.outcomes.clone(),
                cancellations: self.wire.cancellations(),
                checks: checks.collect(),
                branches: tally.branches.clone(),
            },
        }
    }
}

/// Runs one seed from beginning to end. With `tell`, the report has a line per step.
pub fn run(seed: u64, sabotage: Option<Sabotage>, tell: bool) -> anyhow::Result<Report> {
    branches::install();
    everfresh_core::chance::make_predictable();
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let sim = Arc::new(Sim::new(seed, sabotage, tell).await?);
        let profile = &sim.profile;
        let seen_by = sim.clone();
        let _watch = branches::watch(move |branch| seen_by.reached(branch));
        let mut tasks = Vec::new();
        for index in 0..profile.workers {
            tasks.push(tokio::spawn(actors::worker(sim.clone(), u64::from(index))));
        }
        let readers = 0..profile.readers;
        let readers: Vec<_> = readers.map(|index| tokio::spawn(actors::reader(sim.clone(), index))).collect();
        let producer = tokio::spawn(actors::producer(sim.clone(), profile.messages));
        let operator = tokio::spawn(actors::operator(sim.clone()));
        let editor = tokio::spawn(actors::editor(sim.clone()));
        let foreign = tokio::spawn(actors::foreign(sim.clone()));
        let object_loss = tokio::spawn(actors::object_loss(sim.clone()));
        tokio::time::sleep(CHAOS).await;
        sim.calm_down();
        // They end with the chaos; what they have begun, they finish.
        for ending in [producer, editor, operator, foreign, object_loss] {
            ending.await?;
        }
        let produced = sim.wire.produced();
        actors::tidy_up(&sim).await;
        // Readers go on for a while, and leave before the doors are closed: each of their visits may be another message.
        for reader in readers {
            reader.await?;
        }
        come_to_rest(&sim).await;
        sim.checker.quiet();
        sim.checker.up_to_date();
        // Whoever comes next tells what a dead worker left behind.
        actors::last_call(&sim).await;
        come_to_rest(&sim).await;
        sim.over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await?;
        }
        sim.checker.quiet();
        sim.checker.everybody_knows();
        Ok(sim.report(produced))
    })
}

/// Waits until no message is left, or until it is clear that some never will be handled.
async fn come_to_rest(sim: &Sim) {
    let end = tokio::time::Instant::now() + LONGEST;
    while !sim.queues.waiting().is_empty() && tokio::time::Instant::now() < end {
        if sim.checker.violations().iter().any(|violation| violation.property != Property::I6) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

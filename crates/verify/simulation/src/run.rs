//! One run: a seed in, a report out.

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
use tokio::sync::Notify;

use crate::actors;
use crate::branches;
use crate::check::{Actor, Checker, Property, Violation};
use crate::faults::RunFault;
use crate::guards::Guard;
use crate::invocation_trace::InvocationTrace;
use crate::pages::{CONFIG, Pages};
use crate::profile::{Profile, burst_fault};
use crate::queues::Queues;
use crate::site::Sites;
use crate::store::Store;
use crate::wire::Wire;

/// AWS time at the start of a run.
const START_MS: u64 = 1_763_270_000_000;

/// The chaos phase, in which faults happen.
pub const CHAOS: Duration = Duration::from_secs(300);

/// The time to empty the queues afterwards.
const DRAIN_LIMIT: Duration = Duration::from_secs(48 * 3600);

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub violations: Vec<Violation>,
    /// The hash of all requests with their times.
    pub trace: String,
    pub profile: Option<Profile>,
    /// One line per step, only if verbose.
    pub lines: Vec<String>,
    pub figures: Figures,
}

/// Counts of one run or of several.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub runs: u64,
    /// Minimum over all runs.
    pub fewest_workers: Option<u32>,
    /// Minimum of messages from producers over all runs.
    pub fewest_messages: Option<u32>,
    /// Requests to services.
    pub steps: u64,
    pub messages: u64,
    /// Published versions.
    pub commits: u64,
    pub renders: u64,
    /// Requests of readers.
    pub reads: u64,
    /// In the dead-letter queue at the end.
    pub dead_letters: u64,
    /// Faults by name.
    pub faults: BTreeMap<String, u64>,
    /// Outcomes of messages by name.
    pub outcomes: BTreeMap<String, u64>,
    /// Refusals of DynamoDB by error and row.
    pub cancellations: BTreeMap<String, u64>,
    pub checks: BTreeMap<String, u64>,
    /// Branches of the protocol by name.
    pub branches: BTreeMap<String, u64>,
}

impl Figures {
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

/// The state that the actors share.
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
    /// A worker was frozen between upload and commit.
    pub(crate) orphaned: Notify,
    calm: AtomicBool,
    over: AtomicBool,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    /// Faults of AWS calls, one source per client.
    call_faults: Vec<Faults>,
    run_faults: BTreeMap<RunFault, u64>,
    outcomes: BTreeMap<String, u64>,
    branches: BTreeMap<String, u64>,
    reads: u64,
}

impl Sim {
    async fn new(seed: u64, without: Option<Guard>, verbose: bool) -> anyhow::Result<Self> {
        let profile = Profile::draw(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let started = tokio::time::Instant::now();
        let clock = Clock::new(move || UNIX_EPOCH + Duration::from_millis(START_MS) + started.elapsed());
        let engines = Engines::memory(clock.clone()).await?;
        let config = Config::parse(CONFIG)?;
        let pages = Arc::new(Pages::new(&config, profile.pages, &mut rng));
        let sites = Sites::new(rng.u64(..), profile.site);
        if without == Some(Guard::AgeDatesTheAnswer) {
            sites.hide_age();
        }
        let queues = Queues::new(clock.clone(), profile.duplicates);
        if let Some(ms) = profile.notification_outage_ms {
            engines.subscribers().outage_until(START_MS + ms);
        }
        let store = Store::new(engines.clone(), clock.clone());
        let checker = Checker::new(store, pages.clone(), sites.clone(), queues.clone()).with(&profile);
        let wire = Wire::new(engines, queues.clone(), checker.clone(), clock.clone(), without, verbose).with(&profile);
        let clean = wire.connect(Actor::Operator, Faults::none()).clients(clock.clone(), ClientTimeouts::WORKER);
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
            orphaned: Notify::new(),
            calm: AtomicBool::new(false),
            over: AtomicBool::new(false),
            tally: Mutex::default(),
        };
        if simulation.profile.notification_outage_ms.is_some() {
            simulation.count_fault(RunFault::NotificationOutage);
        }
        Ok(simulation)
    }

    /// A separate generator per actor, so that the draws of one actor do not shift another's.
    pub(crate) fn rng(&self, actor: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000_003).wrapping_add(actor))
    }

    /// Clients of one machine with this clock, with faults during the chaos phase.
    pub(crate) fn clients(&self, actor: Actor, seed: u64, clock: Clock, timeouts: ClientTimeouts) -> Clients {
        self.wire.connect(actor, self.faults(seed)).clients(clock, timeouts)
    }

    /// The same for a worker, also with calls that fail in bursts. `trace` gets what its requests do.
    pub(crate) fn worker_clients(&self, seed: u64, clock: Clock, trace: InvocationTrace) -> Clients {
        let faults = self.faults(seed);
        if !self.is_calm() {
            let mut rng = fastrand::Rng::with_seed(seed);
            for operation in self.profile.bursts {
                // Longer than the retries of the SDK, sometimes through a whole render.
                for skip in [rng.u64(0..4), rng.u64(4..30), rng.u64(30..100)] {
                    let most = [6, 12, 30][rng.usize(0..3)];
                    let on = On::next(operation).after(skip).times(rng.u64(3..=most));
                    faults.inject(on, burst_fault(&mut rng));
                }
            }
        }
        self.wire.connect_worker(faults, trace).clients(clock, ClientTimeouts::WORKER)
    }

    /// Faults of one machine's calls, during the chaos phase.
    pub(crate) fn faults(&self, seed: u64) -> Faults {
        let faults = if self.is_calm() { Faults::none() } else { Faults::seeded(seed, self.profile.rates.clone()) };
        self.tally().call_faults.push(faults.clone());
        faults
    }

    /// Clients with the run's clock, with faults during the chaos phase.
    pub(crate) fn faulty_clients(&self, actor: Actor, seed: u64) -> Clients {
        self.clients(actor, seed, self.clock.clone(), ClientTimeouts::WORKER)
    }

    /// Clients without faults.
    pub(crate) fn clean_clients(&self, actor: Actor) -> Clients {
        self.wire.connect(actor, Faults::none()).clients(self.clock.clone(), ClientTimeouts::WORKER)
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn count_fault(&self, fault: RunFault) {
        *self.tally().run_faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn count_outcome(&self, name: &str, count: u64) {
        *self.tally().outcomes.entry(name.to_owned()).or_default() += count;
    }

    fn count_branch(&self, branch: &str) {
        *self.tally().branches.entry(branch.to_owned()).or_default() += 1;
        self.wire.note(|| format!("branch {branch}"));
    }

    pub(crate) fn count_read(&self) {
        self.tally().reads += 1;
    }

    /// No new faults from now on.
    fn end_chaos(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.sites.stop_failing();
        for faults in &self.tally().call_faults {
            faults.clear();
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, produced: u32) -> Report {
        let tally = self.tally();
        let mut faults: BTreeMap<String, u64> = BTreeMap::new();
        let run_faults = tally.run_faults.clone().into_iter().chain(self.sites.faults()).chain(self.wire.faults());
        let run_faults = run_faults.map(|(fault, count)| (fault.name(), count));
        for (name, count) in tally.call_faults.iter().flat_map(|source| source.fired()).chain(run_faults) {
            *faults.entry(name.to_owned()).or_default() += count;
        }
        let checks = self.checker.checks().into_iter().map(|(property, count)| (property.name().to_owned(), count));
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

/// Runs one seed. With `verbose`, the report has one line per step.
pub fn run(seed: u64, without: Option<Guard>, verbose: bool) -> anyhow::Result<Report> {
    branches::install();
    everfresh_core::random::make_predictable();
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let sim = Arc::new(Sim::new(seed, without, verbose).await?);
        let profile = &sim.profile;
        let counter = sim.clone();
        let _watch = branches::watch(move |branch| counter.count_branch(branch));
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
        let maintenance = tokio::spawn(actors::maintenance(sim.clone()));
        tokio::time::sleep(CHAOS).await;
        sim.end_chaos();
        // These actors finish their current step and end.
        for ending in [producer, editor, operator, foreign, object_loss, maintenance] {
            ending.await?;
        }
        let produced = sim.wire.produced();
        actors::unpin_and_redrive(&sim).await;
        // Readers end before the queues are drained: each read may send another message.
        for reader in readers {
            reader.await?;
        }
        drain_queues(&sim).await;
        sim.checker.check_drained();
        sim.checker.check_up_to_date();
        // The next request sends the pending notification of a killed worker.
        actors::final_requests(&sim).await;
        drain_queues(&sim).await;
        actors::final_sweep(&sim).await;
        sim.over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await?;
        }
        sim.checker.check_drained();
        sim.checker.check_all_notified();
        Ok(sim.report(produced))
    })
}

/// Waits until the queues are empty, up to the limit or a violation.
async fn drain_queues(sim: &Sim) {
    let end = tokio::time::Instant::now() + DRAIN_LIMIT;
    while !sim.queues.waiting().is_empty() && tokio::time::Instant::now() < end {
        if sim.checker.violations().iter().any(|violation| violation.property != Property::I6) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

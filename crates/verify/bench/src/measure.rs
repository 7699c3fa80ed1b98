//! Measures subjects side by side: each round has every kind of request of every subject, so a noisy minute hits all of them and
//! their ratios hold.

mod kind;

use std::time::Duration;

use anyhow::Context;

use crate::package;
use crate::subject::Subject;
use kind::{Kind, Running};

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Starts of each function.
    pub spawns: usize,
    /// Requests of each kind that do not count.
    pub warm_up: usize,
    /// Rounds of each kind of request.
    pub rounds: usize,
    /// Requests in a round.
    pub requests: usize,
}

impl Effort {
    /// For figures to write down.
    pub const FULL: Self = Self { spawns: 25, warm_up: 50, rounds: 30, requests: 50 };
    /// For a look.
    pub const QUICK: Self = Self { spawns: 5, warm_up: 20, rounds: 6, requests: 25 };

    /// Requests of each kind altogether.
    pub fn requests_of_a_kind(&self) -> usize {
        self.warm_up + self.rounds * self.requests
    }
}

/// What was found about a function.
#[derive(Debug)]
pub struct Figures {
    /// Its name.
    pub name: &'static str,
    /// The binary as it is.
    pub bytes: u64,
    /// The binary as a deployment package.
    pub zip_bytes: u64,
    /// Memory in use after all requests, in the environment in which it was most.
    pub rss_bytes: u64,
    /// CPU time from the start of the process to its first question for an event.
    pub init: Samples,
    /// Each kind of request.
    pub requests: Vec<Cost>,
}

/// What was found about one kind of request.
#[derive(Debug)]
pub struct Cost {
    /// What the report calls it.
    pub label: &'static str,
    /// CPU time per request.
    pub cpu: Samples,
    /// Calls to AWS per request.
    pub calls: f64,
}

/// CPU times of the same thing.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    fn add(&mut self, sample: Duration) {
        let at = self.0.partition_point(|other| *other < sample);
        self.0.insert(at, sample);
    }

    /// The one in the middle.
    pub fn median(&self) -> Duration {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    /// The one that was disturbed least.
    pub fn min(&self) -> Duration {
        self.0.first().copied().unwrap_or_default()
    }
}

/// Measures all of `subjects`; `progress` hears what comes next.
pub async fn run(subjects: &[Subject], effort: Effort, progress: impl Fn(&str)) -> anyhow::Result<Vec<Figures>> {
    let mut functions: Vec<&Subject> = Vec::new();
    for subject in subjects {
        if functions.iter().all(|known| known.name != subject.name) {
            functions.push(subject);
        }
    }
    let mut starts = vec![Samples::default(); functions.len()];
    for spawn in 1..=effort.spawns {
        progress(&format!("start {spawn} of {}", effort.spawns));
        for (subject, start) in functions.iter().zip(&mut starts) {
            start.add(Running::start(subject).await?.cpu().await?);
        }
    }
    let mut processes = Vec::new();
    for subject in subjects {
        processes.push(Running::start(subject).await?);
    }
    let mut kinds = Vec::new();
    for process in &processes {
        kinds.extend(process.subject.requests.iter().map(|request| Kind::new(process, request)));
    }
    progress("requests that do not count");
    for kind in &mut kinds {
        kind.invoke(effort.warm_up).await?;
    }
    for round in 1..=effort.rounds {
        progress(&format!("round {round} of {}", effort.rounds));
        for kind in &mut kinds {
            kind.measure(effort.requests).await?;
        }
    }
    for kind in &kinds {
        kind.check(effort).await?;
    }
    let mut figures = Vec::new();
    for (subject, init) in functions.into_iter().zip(starts) {
        let mut rss_bytes = 0;
        for process in processes.iter().filter(|process| process.subject.name == subject.name) {
            process.api.wait_for_poll().await.context(subject.name)?;
            rss_bytes = rss_bytes.max(process.function.rss_bytes()?);
        }
        figures.push(Figures {
            name: subject.name,
            bytes: package::bytes(&subject.binary)?,
            zip_bytes: package::zip_bytes(&subject.binary)?,
            rss_bytes,
            init,
            requests: kinds.iter().filter(|kind| kind.of(subject)).map(|kind| kind.cost(effort)).collect(),
        });
    }
    Ok(figures)
}

//! Measures subjects side by side: each round has every kind of request of every subject, so noise
//! affects all of them and their ratios hold.

mod kind;

use std::time::Duration;

use anyhow::Context;

use crate::package;
use crate::subject::Subject;
use kind::{Kind, Running};

/// The number of starts, rounds and requests.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub spawns: usize,
    /// Requests of each kind that are not measured.
    pub warm_up: usize,
    /// Rounds of each kind of request.
    pub rounds: usize,
    /// Requests in a round.
    pub requests: usize,
}

impl Effort {
    /// For figures to publish.
    pub const FULL: Self = Self { spawns: 25, warm_up: 50, rounds: 30, requests: 50 };
    /// For a quick check.
    pub const QUICK: Self = Self { spawns: 5, warm_up: 20, rounds: 6, requests: 25 };

    /// All requests of one kind, warm-up included.
    pub fn requests_of_a_kind(&self) -> usize {
        self.warm_up + self.rounds * self.requests
    }
}

/// The measurements of one function.
#[derive(Debug)]
pub struct Figures {
    pub name: &'static str,
    /// Size of the binary.
    pub bytes: u64,
    /// Size of the deployment package.
    pub zip_bytes: u64,
    /// Resident memory after all requests, the maximum over all environments.
    pub rss_bytes: u64,
    /// CPU time from the start of the process to its first poll for an event.
    pub init: Samples,
    pub requests: Vec<Cost>,
}

/// The measurements of one kind of request.
#[derive(Debug)]
pub struct Cost {
    pub label: &'static str,
    /// CPU time per request.
    pub cpu: Samples,
    /// Calls to AWS per request.
    pub calls: f64,
}

/// CPU times, sorted.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    fn add(&mut self, sample: Duration) {
        let at = self.0.partition_point(|other| *other < sample);
        self.0.insert(at, sample);
    }

    pub fn median(&self) -> Duration {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    /// The least disturbed sample: noise only adds.
    pub fn min(&self) -> Duration {
        self.0.first().copied().unwrap_or_default()
    }
}

/// Measures all `subjects`; `progress` is called with the name of each phase.
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
    progress("warm-up");
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

//! Measures subjects side by side: each round is one of every subject, so a noisy minute hits all of them and their ratios hold.

use std::time::Duration;

use anyhow::{Context, bail};

use crate::function::Function;
use crate::package;
use crate::runtime_api::RuntimeApi;
use crate::subject::{Request, Subject};

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
    pub const FULL: Self = Self { spawns: 15, warm_up: 50, rounds: 7, requests: 200 };
    /// For a look.
    pub const QUICK: Self = Self { spawns: 5, warm_up: 20, rounds: 3, requests: 50 };
}

/// What was found about a subject.
#[derive(Debug)]
pub struct Figures {
    /// The subject's name.
    pub name: String,
    /// The binary as it is.
    pub bytes: u64,
    /// The binary as a deployment package.
    pub zip_bytes: u64,
    /// Memory in use after all requests.
    pub rss_bytes: u64,
    /// CPU time from the start of the process to its first question for an event.
    pub init: Samples,
    /// CPU time per request, by kind.
    pub requests: Vec<(String, Samples)>,
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
    let mut figures = Vec::new();
    for subject in subjects {
        figures.push(Figures {
            name: subject.name.clone(),
            bytes: package::bytes(&subject.binary)?,
            zip_bytes: package::zip_bytes(&subject.binary)?,
            rss_bytes: 0,
            init: Samples::default(),
            requests: Vec::new(),
        });
    }
    progress("starts");
    for _ in 0..effort.spawns {
        for (subject, figures) in subjects.iter().zip(&mut figures) {
            let running = Running::start(subject).await?;
            figures.init.add(running.cpu().await?);
        }
    }
    let mut running = Vec::new();
    for subject in subjects {
        running.push(Running::start(subject).await?);
    }
    // The first kind of every subject, then the second: whoever has fewer is done earlier.
    for kind in 0..subjects.iter().map(|subject| subject.requests.len()).max().unwrap_or(0) {
        let mut running: Vec<_> = running.iter().zip(&mut figures).collect();
        running.retain(|(running, _)| running.subject.requests.len() > kind);
        for (running, figures) in &mut running {
            let request = &running.subject.requests[kind];
            progress(&format!("{}: {}", figures.name, request.label));
            running.invoke(request, effort.warm_up).await?;
            figures.requests.push((request.label.clone(), Samples::default()));
        }
        for _ in 0..effort.rounds {
            for (running, figures) in &mut running {
                let before = running.cpu().await?;
                running.invoke(&running.subject.requests[kind], effort.requests).await?;
                let spent = running.cpu().await?.saturating_sub(before);
                figures.requests[kind].1.add(spent.div_f64(effort.requests as f64));
            }
        }
    }
    for (running, figures) in running.iter().zip(&mut figures) {
        figures.rss_bytes = running.function.rss_bytes()?;
    }
    Ok(figures)
}

/// A subject's process. The function comes first: it must be gone before its emulator is.
struct Running<'a> {
    function: Function,
    api: RuntimeApi,
    subject: &'a Subject,
}

impl<'a> Running<'a> {
    async fn start(subject: &'a Subject) -> anyhow::Result<Self> {
        let api = RuntimeApi::start().await?;
        let environment = subject.environment.iter().map(|(name, value)| (name, value));
        let function = Function::spawn(&api, &subject.binary, environment).context(subject.name.clone())?;
        Ok(Self { function, api, subject })
    }

    /// CPU time so far, of a function that has gone to sleep. It is not asleep yet when its question for an event arrives.
    async fn cpu(&self) -> anyhow::Result<Duration> {
        self.api.wait_for_poll().await.with_context(|| self.subject.name.clone())?;
        let mut before = self.function.cpu()?;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now = self.function.cpu()?;
            if now == before && self.function.state()? == 'S' {
                break;
            }
            before = now;
        }
        Ok(before)
    }

    async fn invoke(&self, request: &Request, times: usize) -> anyhow::Result<()> {
        let place = || format!("{}: {}", self.subject.name, request.label);
        for event in request.events.iter().cycle().take(times) {
            let answer = self.api.invoke(event.clone()).await.with_context(place)?;
            if !(request.is_right)(&answer) {
                bail!("{}: unexpected answer {}", place(), String::from_utf8_lossy(&answer));
            }
        }
        Ok(())
    }
}

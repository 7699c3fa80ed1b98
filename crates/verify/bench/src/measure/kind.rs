//! The measurement of one kind of request.

use std::iter::Cycle;
use std::slice::Iter;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;

use super::{Cost, Effort, Samples};
use crate::function::Function;
use crate::runtime_api::RuntimeApi;
use crate::subject::{Request, Subject};

/// A kind of request and the process that handles it.
pub(super) struct Kind<'a> {
    process: &'a Running<'a>,
    request: &'a Request,
    events: Cycle<Iter<'a, Bytes>>,
    cpu: Samples,
    calls: u64,
}

impl<'a> Kind<'a> {
    pub(super) fn new(process: &'a Running<'a>, request: &'a Request) -> Self {
        Self { process, request, events: request.events.iter().cycle(), cpu: Samples::default(), calls: 0 }
    }

    pub(super) fn of(&self, subject: &Subject) -> bool {
        self.process.subject.name == subject.name
    }

    pub(super) async fn measure(&mut self, times: usize) -> anyhow::Result<()> {
        let (cpu, calls) = (self.process.cpu().await?, self.backend_calls());
        self.invoke(times).await?;
        let spent = self.process.cpu().await?.saturating_sub(cpu);
        self.cpu.add(spent.div_f64(times as f64));
        self.calls += self.backend_calls() - calls;
        Ok(())
    }

    pub(super) async fn invoke(&mut self, times: usize) -> anyhow::Result<()> {
        for event in self.events.by_ref().take(times) {
            let invoked = self.process.api.invoke(event.clone()).await;
            let answer = invoked.with_context(|| place(self.process, self.request))?;
            if !(self.request.is_expected)(&answer) {
                let place = place(self.process, self.request);
                bail!("{place}: unexpected response {}", String::from_utf8_lossy(&answer));
            }
        }
        Ok(())
    }

    fn backend_calls(&self) -> u64 {
        self.process.subject.backend.as_ref().map_or(0, |backend| backend.calls())
    }

    pub(super) fn cost(&self, effort: Effort) -> Cost {
        let calls = self.calls as f64 / (effort.rounds * effort.requests) as f64;
        Cost { label: self.request.label, cpu: self.cpu.clone(), calls }
    }

    /// Checks the number of AWS calls and messages. A few more calls are accepted: periodic reads,
    /// a retry.
    pub(super) async fn check(&self, effort: Effort) -> anyhow::Result<()> {
        let place = place(self.process, self.request);
        let (expected, calls) = (self.request.calls as f64, self.cost(effort).calls);
        if !(expected..expected + 0.5).contains(&calls) {
            bail!("{place}: {calls:.2} calls per request instead of {expected}");
        }
        if let Some(backend) = self.process.subject.backend.as_ref().filter(|_| self.request.enqueues) {
            // The last response is sent before its message.
            self.process.api.wait_for_poll().await.with_context(|| place.clone())?;
            let (sent, queued) = (effort.requests_of_a_kind() as u64, backend.queued().await?);
            if queued.abs_diff(sent) > sent / 50 {
                bail!("{place}: {queued} messages in the queue after {sent} requests");
            }
        }
        Ok(())
    }
}

fn place(process: &Running<'_>, request: &Request) -> String {
    format!("{}: {}", process.subject.name, request.label)
}

/// The process of a subject. Field order matters: the function is dropped before its emulator.
pub(super) struct Running<'a> {
    pub(super) function: Function,
    pub(super) api: RuntimeApi,
    pub(super) subject: &'a Subject,
}

impl<'a> Running<'a> {
    pub(super) async fn start(subject: &'a Subject) -> anyhow::Result<Self> {
        let api = RuntimeApi::start().await?;
        let environment = subject.environment.iter().map(|(name, value)| (name, value));
        let function = Function::spawn(&api, &subject.binary, environment).context(subject.name)?;
        Ok(Self { function, api, subject })
    }

    /// CPU time so far, read once the process sleeps: it still runs when its poll arrives.
    pub(super) async fn cpu(&self) -> anyhow::Result<Duration> {
        self.api.wait_for_poll().await.context(self.subject.name)?;
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
}

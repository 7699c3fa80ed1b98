//! One sandbox: an instance of the worker with its own faults and clock, and the event source that
//! invokes it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_core::config::Ladder;
use everfresh_core::domain::page_key::KeyLayout;
use everfresh_core::ledger::Ledger;
use everfresh_core::metrics::{Metric, Metrics};
use everfresh_core::notifier::Notifier;
use everfresh_core::regenerate::{self, Regenerator};
use everfresh_core::render::Renderer;
use everfresh_local::event_source::EventSource;
use everfresh_local::faults::{Fault, Faults, On};
use everfresh_local::in_process::InProcess;
use everfresh_local::stack;
use everfresh_worker::Worker;
use everfresh_worker::handler::BatchError;
use futures::future::BoxFuture;

use crate::{World, ladder};

/// One sandbox: an instance of the worker, and the event source that invokes it.
pub struct Sandbox {
    pub worker: Arc<Worker>,
    /// Its connection to the services: injects faults and counts calls.
    pub way: InProcess,
    /// Clients over this connection.
    pub clients: Clients,
    totals: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    source: EventSource,
    /// The remaining time that an invocation sees.
    timeout: Duration,
}

/// Options of a sandbox.
#[derive(Clone, Copy, Debug)]
pub struct Make {
    /// Its clock minus AWS time.
    pub skew_ms: i64,
    pub deploy: u64,
    pub ladder: Ladder,
    pub max_attempts: u32,
    pub layout: KeyLayout,
}

impl Default for Make {
    fn default() -> Self {
        Self { skew_ms: 0, deploy: 1, ladder: ladder(), max_attempts: 5, layout: KeyLayout::default() }
    }
}

impl Sandbox {
    /// A sandbox in `world` with this clock.
    pub fn new(world: &World, make: Make, clock: Clock) -> Self {
        let way = InProcess::new(world.engines.clone(), Faults::none());
        let clients = way.clients(clock, ClientTimeouts::WORKER);
        let ledger = Ledger::new(&clients, &world.stack.table, make.layout);
        let artifacts = Artifacts::new(&clients, &world.stack.bucket);
        let settings = regenerate::Settings {
            ladder: make.ladder,
            deploy: make.deploy,
            max_attempts: make.max_attempts,
            max_body_bytes: 100_000,
        };
        let renderer: Arc<dyn Renderer> = Arc::new(world.origin.clone());
        let regenerator = Regenerator::new(ledger, artifacts, renderer, settings)
            .with_notifier(Notifier::new(&clients, &world.notifier));
        let worker = Worker::new(world.config.clone(), regenerator, &clients, world.stack.clone(), 10);
        // Lambda polls with its own client, without the faults of the function.
        let source = EventSource {
            sqs: world.clean.sqs.clone(),
            queue_url: world.stack.queue.clone(),
            queue_arn: stack::arn(&world.stack.queue),
            batch_size: 10,
            window: Duration::ZERO,
            timeout: Duration::from_millis(make.ladder.function_timeout_ms),
            concurrency: 1,
        };
        let timeout = source.timeout;
        Self { worker: Arc::new(worker), way, clients, totals: Arc::default(), source, timeout }
    }

    /// One record per invocation.
    pub fn one_by_one(mut self) -> Self {
        self.source.batch_size = 1;
        self
    }

    /// One invocation with the visible messages. Returns their number.
    pub async fn invoke(&self) -> usize {
        self.source.poll_once(self.handler()).await
    }

    /// An invocation that does its work and crashes before its response.
    pub async fn invoke_unacked(&self) -> usize {
        let handle = self.handler();
        let lost = move |event, time| {
            let work = handle(event, time);
            async move { work.await.and(Err::<SqsBatchResponse, _>("killed before the ack".to_owned())) }
        };
        self.source.poll_once(lost).await
    }

    /// An invocation that is killed after `time`. Requests that it has sent still arrive.
    pub async fn invoke_killed_after(&self, time: Duration) {
        let source = EventSource { timeout: time, ..self.source.clone() };
        source.poll_once(self.handler()).await;
    }

    fn handler(&self) -> impl Fn(SqsEvent, Duration) -> BoxFuture<'static, Result<SqsBatchResponse, String>> + use<> {
        let (worker, totals) = (self.worker.clone(), self.totals.clone());
        let timeout = self.timeout;
        move |event, _| {
            let (worker, totals) = (worker.clone(), totals.clone());
            Box::pin(async move {
                let (response, metrics) = worker.handle(event, timeout).await.map_err(|e| e.to_string())?;
                add(&mut totals.lock().unwrap(), &metrics);
                Ok(response)
            })
        }
    }

    /// Receives the visible messages without handling them. They are redelivered after the
    /// visibility timeout.
    pub async fn receive(&self) -> SqsEvent {
        let taken = Arc::new(Mutex::new(SqsEvent::default()));
        let keep = taken.clone();
        let handler = move |event: SqsEvent, _: Duration| {
            *keep.lock().unwrap() = event;
            futures::future::ready(Err::<SqsBatchResponse, _>("not handled"))
        };
        self.source.poll_once(handler).await;
        taken.lock().unwrap().clone()
    }

    /// Handles an event with this remaining time. Returns the ids of the batch item failures.
    pub async fn handle(&self, event: SqsEvent, time: Duration) -> Result<Vec<String>, BatchError> {
        let (response, metrics) = self.worker.handle(event, time).await?;
        add(&mut self.totals.lock().unwrap(), &metrics);
        Ok(response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect())
    }

    /// Injects a fault into calls of the function.
    pub fn inject(&self, on: On, fault: Fault) {
        self.way.faults().inject(on, fault);
    }

    /// The total of a metric over all invocations.
    pub fn total(&self, metric: Metric) -> u64 {
        self.totals.lock().unwrap().get(metric.name).copied().unwrap_or(0)
    }

    /// The AWS operations called so far.
    pub fn operations(&self) -> Vec<String> {
        self.way.calls().into_iter().map(|call| call.operation).collect()
    }
}

fn add(totals: &mut BTreeMap<&'static str, u64>, metrics: &Metrics) {
    use everfresh_core::metrics::*;
    for metric in [
        RECEIVED,
        COMMITTED,
        BYPASSED,
        WITHDRAWN,
        WITHDRAWALS_REFUSED,
        UNCHANGED,
        ALREADY_COVERED,
        REPLAYED,
        BUSY,
        LOCK_CONTENTION,
        CONFIGURATION_SKEW,
        NOTIFICATIONS_PENDING,
        TOO_CLOSE,
        SUPERSEDED,
        PINNED,
        FAILED,
        REJECTED,
        KEY_CONFLICTS,
        UNKNOWN_VERSION,
        DUPLICATES_PREVENTED,
    ] {
        *totals.entry(metric.name).or_default() += metrics.total(metric);
    }
}

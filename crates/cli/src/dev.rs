//! `everfresh dev`: the engines, the queue loop, the worker and the serving side in one process, with nothing from outside it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use everfresh_core::clients::{Clients, Patience};
use everfresh_core::clock::Clock;
use everfresh_core::stack::Stack;
use everfresh_enqueue::{Message, Queues, Reason, Sender};
use everfresh_local::data_dir::DataDir;
use everfresh_local::engines::Engines;
use everfresh_local::event_source::EventSource;
use everfresh_local::faults::Faults;
use everfresh_local::gateway::Port;
use everfresh_local::in_process::InProcess;
use everfresh_local::{ACCESS_KEY, REGION, SECRET_KEY, stack};
use everfresh_worker::handler::BatchError;
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;
use everfresh_worker::{Settings, Worker, build};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::args::{DevArgs, TargetArgs};
use crate::output::{note, say};
use crate::target::Endpoints;
use crate::{config, demo, readers};

/// The function's time-out here; the queues' visibility time-out follows from it as it does in a deployment.
const TIME_OUT: Duration = Duration::from_secs(60);
const VISIBILITY_SECONDS: u32 = 6 * 60;

const TTL_SWEEP: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: DevArgs, target: &TargetArgs) -> anyhow::Result<()> {
    if let Some(name) = &target.stack {
        bail!("`dev` runs on this machine only: leave --stack {name} away");
    }
    let dir = DataDir::open(&target.data, args.fresh)?;
    let port = Port::bind(args.aws_port).with_context(|| {
        format!("cannot listen on 127.0.0.1:{}: choose another port with --aws-port", args.aws_port)
    })?;
    let front_door = Port::bind(args.port).with_context(|| {
        format!("cannot listen on 127.0.0.1:{}: choose another port for readers with --port", args.port)
    })?;
    let engines = Engines::open(&dir, port.number()).await?;
    let clients = InProcess::new(engines.clone(), Faults::none()).clients(Clock::system(), Patience::WORKER);
    let stack = stack::provision(&clients, VISIBILITY_SECONDS).await?;
    let config = match (&target.config, &args.origin) {
        (Some(file), _) => file.clone(),
        (None, Some(origin)) => demo::for_origin(&dir, origin)?,
        (None, None) => demo::lay_out(&dir)?,
    };
    let config = std::path::absolute(&config).with_context(|| format!("the place of {}", config.display()))?;
    let worker = Arc::new(worker(&config, &clients, &stack)?);
    let gateway = port.serve(engines.clone()).context("starting the gateway")?;
    let reading = InProcess::new(engines.clone(), Faults::none()).clients(Clock::system(), Patience::READER);
    let readers = readers::open(front_door, &config::read(&config)?, &reading, &stack)?;
    let endpoints = Endpoints {
        aws: gateway.url(),
        pages: readers.url(),
        region: REGION.to_owned(),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        stack: stack.clone(),
        config,
    };
    // Before anybody is told that it runs: whoever is may ask it to stop at once.
    let mut end = EndSignals::listen().context("listening for Ctrl-C")?;
    publish(&dir, &endpoints)?;
    announce(&endpoints, dir.path(), target.json)?;

    let (stop, stopped) = watch::channel(false);
    let main = event_source(&clients, &stack.queue);
    let low_priority = event_source(&clients, &stack.low_priority_queue);
    let invoke = move |event, time_out| handle(worker.clone(), event, time_out);
    let loops = tokio::spawn(async move {
        tokio::join!(main.run(invoke.clone(), stopped.clone()), low_priority.run(invoke, stopped));
    });
    if target.config.is_none() && args.origin.is_none() {
        prewarm(&clients, &stack).await?;
    }
    tokio::select! {
        () = end.next() => {}
        () = engines.sweep_ttl_every(TTL_SWEEP) => {}
    }
    // What is under way ends well; what waits is in the data folder.
    note!("stopping as soon as what is under way is done; Ctrl-C again ends it at once");
    stop.send_replace(true);
    tokio::select! {
        ended = loops => ended.context("the queue loop"),
        () = end.next() => bail!("ended before what was under way was done: it is delivered again after the next start"),
    }
}

async fn handle(worker: Arc<Worker>, event: SqsEvent, time_out: Duration) -> Result<SqsBatchResponse, BatchError> {
    let (response, _metrics) = worker.handle(event, time_out).await?;
    Ok(response)
}

/// The worker as a deployment has it, its settings read and checked the same way.
fn worker(config: &Path, clients: &Clients, stack: &Stack) -> anyhow::Result<Worker> {
    let settings = Settings::read(|variable| {
        let time_out_ms = TIME_OUT.as_millis();
        Some(match variable {
            "EVERFRESH_CONFIG" => config.display().to_string(),
            "FACETHEORY_CACHE_TABLE_NAME" => stack.table.clone(),
            "EVERFRESH_BUCKET" => stack.bucket.clone(),
            "EVERFRESH_QUEUE_URL" => stack.queue.clone(),
            "EVERFRESH_LOW_PRIORITY_QUEUE_URL" => stack.low_priority_queue.clone(),
            "EVERFRESH_DEAD_LETTER_QUEUE_URL" => stack.dead_letter_queue.clone(),
            "EVERFRESH_FUNCTION_TIMEOUT_MS" => time_out_ms.to_string(),
            "EVERFRESH_RENDER_DEADLINE_MS" => (time_out_ms - 10_000).to_string(),
            "EVERFRESH_CLAIM_EXPIRY_MS" => (time_out_ms + 5_000).to_string(),
            "EVERFRESH_VISIBILITY_MS" => (VISIBILITY_SECONDS * 1000).to_string(),
            _ => return None,
        })
    })?;
    let folder = config.parent().unwrap_or(Path::new("."));
    let renderers = Renderers::new(folder, Clock::system(), TemplateProcess::own()?).with_loopback();
    let loaded = config::load(config)?;
    loaded.check_origins(true).with_context(|| config.display().to_string())?;
    Ok(build::worker(&settings, loaded, clients, Arc::new(renderers))?)
}

/// Asks for the demo's pages, so that there is something to see.
async fn prewarm(clients: &Clients, stack: &Stack) -> anyhow::Result<()> {
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let sender = Sender::new(clients.sqs.clone(), queues).producer("everfresh-dev", env!("CARGO_PKG_VERSION"));
    for path in demo::PAGES {
        let mut message = Message::path("demo", path);
        message.reason = Reason::Prewarm;
        sender.send(&message).await?;
    }
    Ok(())
}

fn event_source(clients: &Clients, queue_url: &str) -> EventSource {
    EventSource {
        sqs: clients.sqs.clone(),
        queue_url: queue_url.to_owned(),
        queue_arn: stack::arn(queue_url),
        batch_size: 10,
        window: Duration::ZERO,
        time_out: TIME_OUT,
        concurrency: 2,
    }
}

/// Written whole or not at all: another command may be reading.
fn publish(dir: &DataDir, endpoints: &Endpoints) -> anyhow::Result<()> {
    let file = DataDir::endpoints_file(dir.path());
    let draft = dir.file("endpoints.json.new");
    let write = || {
        fs::write(&draft, serde_json::to_vec_pretty(endpoints)?)?;
        fs::rename(&draft, &file)?;
        anyhow::Ok(())
    };
    write().with_context(|| format!("writing {}", file.display()))
}

fn announce(endpoints: &Endpoints, data: &Path, json: bool) -> anyhow::Result<()> {
    if json {
        say!("{}", serde_json::to_string(endpoints)?)?;
        return Ok(());
    }
    let Stack { table, bucket, queue, .. } = &endpoints.stack;
    say!("Everfresh is running on this machine. Ctrl-C stops it; its data stays in {}.", data.display())?;
    say!("")?;
    say!("  pages              {}", endpoints.pages)?;
    say!("  DynamoDB, S3, SQS  {}", endpoints.aws)?;
    say!("  credentials        {ACCESS_KEY} / {SECRET_KEY}, region {REGION}")?;
    say!("  table, bucket      {table}, {bucket}")?;
    say!("  queue              {queue}")?;
    say!("  configuration      {}", endpoints.config.display())?;
    say!("")?;
    say!("In another terminal: everfresh enqueue PATH, everfresh page show PATH, everfresh status")?;
    Ok(())
}

/// Ctrl-C and the polite kill.
struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl EndSignals {
    /// From the moment of the call on, none is missed.
    fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Ends with the next one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

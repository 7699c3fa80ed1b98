//! `everfresh dev`: local DynamoDB, S3 and SQS, the queue loop, the worker and the HTTP server in
//! one process, without external services.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use everfresh_core::artifacts::Artifacts;
use everfresh_core::clients::{ClientTimeouts, Clients, Network, aws_sdk_config};
use everfresh_core::clock::Clock;
use everfresh_core::config::{Config, Ladder, Render, Sends};
use everfresh_core::ledger::Ledger;
use everfresh_core::stack::Stack;
use everfresh_enqueue::{Message, Queues, Reason, Sender};
use everfresh_local::data_dir::DataDir;
use everfresh_local::engines::Engines;
use everfresh_local::event_source::EventSource;
use everfresh_local::faults::Faults;
use everfresh_local::gateway::Port;
use everfresh_local::in_process::InProcess;
use everfresh_local::{ACCESS_KEY, REGION, SECRET_KEY, stack};
use everfresh_maintenance::Maintenance;
use everfresh_worker::handler::BatchError;
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;
use everfresh_worker::{Worker, startup};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::args::{DevArgs, TargetArgs};
use crate::output::{note, say};
use crate::settings::Settings;
use crate::target::Endpoints;
use crate::{config, demo, readers};

/// Concurrent invocations per queue. A render that hangs occupies one until its deadline, and other
/// pages must not wait for it.
const CONCURRENCY: usize = 10;

const TTL_SWEEP: Duration = Duration::from_secs(60);

/// How often the maintenance function's work is done.
const MAINTENANCE: Duration = Duration::from_secs(600);

pub(crate) async fn run(args: DevArgs, target: &TargetArgs) -> anyhow::Result<()> {
    if let Some(name) = &target.stack {
        bail!("`dev` runs on this machine only: remove --stack {name}");
    }
    let mut settings = Settings::from_env()?;
    let dir = DataDir::open(&target.data, args.fresh)?;
    let aws_port = Port::bind(args.aws_port).with_context(|| {
        format!("cannot listen on 127.0.0.1:{}: choose another port with --aws-port", args.aws_port)
    })?;
    let pages_port = Port::bind(args.port).with_context(|| {
        format!("cannot listen on 127.0.0.1:{}: choose another port for pages with --port", args.port)
    })?;
    let engines = Engines::open(&dir, aws_port.number()).await?;
    let clients = InProcess::new(engines.clone(), Faults::none()).clients(Clock::system(), ClientTimeouts::WORKER);
    let visibility = u32::try_from(settings.worker.regenerate.ladder.visibility_ms.div_ceil(1000));
    let stack = stack::provision(&clients, visibility.context("EVERFRESH_VISIBILITY_MS is too long")?).await?;
    let config = config_file(&args, target, &settings, &dir)?;
    let is_demo = config.is_none();
    let config = config.map_or_else(|| demo::write_demo(&dir), Ok)?;
    let config = std::path::absolute(&config).with_context(|| format!("resolving the path {}", config.display()))?;
    settings.provide(&stack, config.display().to_string());
    for variable in &settings.ignored {
        note!("{variable} is ignored: `dev` creates its own table, bucket and queues");
    }
    let worker = Arc::new(worker(&settings, &config, pages_port.number(), &clients).await?);
    let maintenance = maintenance(&settings, &config, &clients)?;
    let gateway = aws_port.serve(engines.clone()).context("starting the gateway of DynamoDB, S3 and SQS")?;
    let reading = InProcess::new(engines.clone(), Faults::none()).clients(Clock::system(), ClientTimeouts::READER);
    let readers = readers::open(pages_port, &config::read(&config)?, &reading, settings.serving.clone()).await?;
    let endpoints = Endpoints {
        aws: gateway.url(),
        pages: readers.url(),
        region: REGION.to_owned(),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        stack: stack.clone(),
        config,
        single_tenant: settings.worker.layout.single_tenant,
        raw_keys: settings.worker.layout.raw_keys,
        deploy: settings.worker.regenerate.deploy,
        epsilon_ms: settings.worker.regenerate.ladder.epsilon_ms,
        ladder: settings.worker.regenerate.ladder,
    };
    // Before the endpoints are published: a script may signal as soon as it sees them.
    let mut shutdown = ShutdownSignals::listen().context("listening for Ctrl-C")?;
    dir.write_endpoints(&serde_json::to_vec_pretty(&endpoints)?)?;
    print_endpoints(&endpoints, dir.path(), target.json)?;

    let (stop, stopped) = watch::channel(false);
    let ladder = settings.worker.regenerate.ladder;
    let main = event_source(&clients, &stack.queue, &ladder);
    let low_priority = event_source(&clients, &stack.low_priority_queue, &ladder);
    let invoke = move |event, timeout| handle(worker.clone(), event, timeout);
    let loops = tokio::spawn(async move {
        tokio::join!(main.run(invoke.clone(), stopped.clone()), low_priority.run(invoke, stopped));
    });
    if is_demo {
        prewarm(&clients, &stack).await?;
    }
    tokio::select! {
        () = shutdown.next() => {}
        () = engines.sweep_ttl_every(TTL_SWEEP) => {}
        () = maintain(&maintenance) => {}
    }
    // Running invocations finish; waiting messages stay in the data folder.
    note!("stopping after the running renders; press Ctrl-C again to stop at once");
    stop.send_replace(true);
    tokio::select! {
        ended = loops => ended.context("the queue loop"),
        () = shutdown.next() => bail!("stopped before the running renders ended: their messages are delivered again after the next start"),
    }
}

async fn handle(worker: Arc<Worker>, event: SqsEvent, timeout: Duration) -> Result<SqsBatchResponse, BatchError> {
    let (response, _metrics) = worker.handle(event, timeout).await?;
    Ok(response)
}

/// The configuration named by --config, --origin or EVERFRESH_CONFIG; `None` means the demo's.
fn config_file(
    args: &DevArgs,
    target: &TargetArgs,
    settings: &Settings,
    dir: &DataDir,
) -> anyhow::Result<Option<PathBuf>> {
    Ok(match (&target.config, &args.origin, &settings.config) {
        (Some(file), _, _) => Some(file.clone()),
        (None, Some(origin), _) => Some(demo::for_origin(dir, origin)?),
        (None, None, Some(location)) if location.starts_with("s3://") => {
            bail!("EVERFRESH_CONFIG is {location}, but `dev` reads only files: name one with --config FILE")
        }
        (None, None, Some(file)) => Some(PathBuf::from(file)),
        (None, None, None) => None,
    })
}

/// The worker as deployed, except that loopback origins are allowed, and that pages of this
/// machine's own hosts are rendered for the port where they are read.
async fn worker(settings: &Settings, config: &Path, port: u16, clients: &Clients) -> anyhow::Result<Worker> {
    let folder = config.parent().unwrap_or(Path::new("."));
    let renderers = Renderers::new(folder, Clock::system(), TemplateProcess::own()?).with_loopback();
    let mut loaded = config::load(config)?.served_at(port);
    config::read_secrets(&mut loaded, Sends::Renders).await?;
    loaded.check_origins(true).with_context(|| config.display().to_string())?;
    let renderers = if invokes_functions(&loaded) { with_functions(renderers).await } else { renderers };
    Ok(startup::worker(&settings.worker, loaded, clients, Arc::new(renderers))?)
}

fn maintenance(settings: &Settings, config: &Path, clients: &Clients) -> anyhow::Result<Maintenance> {
    let Stack { table, bucket, .. } = &settings.worker.stack;
    let ledger = Ledger::new(clients, table, settings.worker.layout);
    Ok(Maintenance::new(config::load(config)?, ledger, Artifacts::new(clients, bucket)))
}

/// Sweeps for ever. The log has the errors, and the next sweep tries again.
async fn maintain(maintenance: &Maintenance) {
    loop {
        tokio::time::sleep(MAINTENANCE).await;
        maintenance.run(MAINTENANCE).await;
    }
}

fn invokes_functions(config: &Config) -> bool {
    config.tenants().any(|tenant| matches!(tenant.render, Render::Lambda(_)))
}

/// Functions are not part of local mode: they are invoked in AWS, or at AWS_ENDPOINT_URL_LAMBDA.
/// Only for configurations that need it, because the SDK may search the network for a region.
async fn with_functions(renderers: Renderers) -> Renderers {
    let aws = Clients::aws(&aws_sdk_config(ClientTimeouts::WORKER, Network::Workstation).await);
    renderers.with_lambda(&aws)
}

/// Enqueues the demo's pages, so that they are ready for the first reader.
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

fn event_source(clients: &Clients, queue_url: &str, ladder: &Ladder) -> EventSource {
    EventSource {
        sqs: clients.sqs.clone(),
        queue_url: queue_url.to_owned(),
        queue_arn: stack::arn(queue_url),
        batch_size: 10,
        window: Duration::from_millis(ladder.batching_window_ms),
        timeout: Duration::from_millis(ladder.function_timeout_ms),
        concurrency: CONCURRENCY,
    }
}

fn print_endpoints(endpoints: &Endpoints, data: &Path, json: bool) -> anyhow::Result<()> {
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

/// SIGINT (Ctrl-C) and SIGTERM.
struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    /// No signal is missed from this call on.
    fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

//! The worker's Lambda function: builds the worker once per sandbox, then hands it every batch. Started with another argument by itself,
//! it is a template process.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsEvent;
use everfresh_core::clients::{ClientTimeouts, Clients, Network, aws_sdk_config};
use everfresh_core::config::Config;
use everfresh_core::{clock::Clock, logs};
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;
use everfresh_worker::{Settings, Worker, build};
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};

fn main() -> ExitCode {
    match TemplateProcess::entered() {
        Some(ended) => ended,
        None => work(),
    }
}

#[tokio::main]
async fn work() -> ExitCode {
    logs::init(logs::Format::detect(), "info");
    logs::ended("the worker", run().await)
}

async fn run() -> Result<(), Error> {
    let (worker, settings) = start().await?;
    let (worker, settings) = (&worker, &settings);
    let handle = |event: LambdaEvent<SqsEvent>| async move {
        let time_left = time_left(&event.context, settings);
        let (response, metrics) = worker.handle(event.payload, time_left).await?;
        // One line of the embedded metric format. If nobody reads it, nothing else is lost.
        let _ =
            writeln!(std::io::stdout(), "{}", metrics.line("worker", &settings.stack_name, Clock::system().now_ms()));
        Ok::<_, Error>(response)
    };
    lambda_runtime::run(service_fn(handle)).await
}

async fn start() -> Result<(Worker, Settings), Error> {
    let settings = Settings::from_env()?;
    let clients = Clients::aws(&aws_sdk_config(ClientTimeouts::WORKER, Network::Lambda).await);
    let config = Config::load(&settings.config, settings.layout, &clients).await?;
    build::check_templates(&config, &settings.config)?;
    let folder = Path::new(&settings.config).parent().unwrap_or(Path::new("."));
    let renderer = Arc::new(Renderers::new(folder, Clock::system(), TemplateProcess::own()?));
    let worker = build::worker(&settings, config, &clients, renderer)?;
    Ok((worker, settings))
}

/// What is left of the invocation. A local runtime's deadline is not always a time of day; then the function's own time-out counts.
fn time_left(context: &Context, settings: &Settings) -> Duration {
    let time_out = settings.regenerate.ladder.function_timeout_ms;
    let left = context.deadline.saturating_sub(Clock::system().now_ms());
    Duration::from_millis(if left == 0 || left > time_out { time_out } else { left })
}

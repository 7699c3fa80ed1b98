//! The worker's Lambda function: builds the worker once per sandbox, then passes it every batch.
//! The executable also starts itself, with an argument, as a template process.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsEvent;
use everfresh_core::clients::{ClientTimeouts, Clients, Network, aws_sdk_config};
use everfresh_core::config::{Config, Sends};
use everfresh_core::{clock::Clock, logs};
use everfresh_worker::render::Renderers;
use everfresh_worker::render::templates::TemplateProcess;
use everfresh_worker::{Settings, Worker, startup};
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};

fn main() -> ExitCode {
    match TemplateProcess::run_if_requested() {
        Some(exit_code) => exit_code,
        None => work(),
    }
}

#[tokio::main]
async fn work() -> ExitCode {
    logs::init(logs::Format::detect(), "info");
    logs::exit_code("the worker", run().await)
}

async fn run() -> Result<(), Error> {
    let (worker, settings) = start().await?;
    let (worker, settings) = (&worker, &settings);
    let handle = |event: LambdaEvent<SqsEvent>| async move {
        let time_left = time_left(&event.context, settings);
        let (response, metrics) = worker.handle(event.payload, time_left).await?;
        // One line of the embedded metric format. A failed write loses this line only.
        let _ =
            writeln!(std::io::stdout(), "{}", metrics.line("worker", &settings.stack_name, Clock::system().now_ms()));
        Ok::<_, Error>(response)
    };
    lambda_runtime::run(service_fn(handle)).await
}

async fn start() -> Result<(Worker, Settings), Error> {
    let settings = Settings::from_env()?;
    let clients = Clients::aws(&aws_sdk_config(ClientTimeouts::WORKER, Network::Lambda).await);
    let config = Config::load_with_secrets(&settings.config, settings.layout, &clients, Sends::Renders).await?;
    startup::check_templates(&config, &settings.config)?;
    let folder = Path::new(&settings.config).parent().unwrap_or(Path::new("."));
    let renderers = Renderers::new(folder, Clock::system(), TemplateProcess::own()?).with_lambda(&clients);
    let worker = startup::worker(&settings, config, &clients, Arc::new(renderers))?;
    Ok((worker, settings))
}

/// Time left in the invocation. A local runtime's deadline is not always a wall-clock time; then
/// the function's own timeout applies.
fn time_left(context: &Context, settings: &Settings) -> Duration {
    let timeout = settings.regenerate.ladder.function_timeout_ms;
    let left = context.deadline.saturating_sub(Clock::system().now_ms());
    Duration::from_millis(if left == 0 || left > timeout { timeout } else { left })
}

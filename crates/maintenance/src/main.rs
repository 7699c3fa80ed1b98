//! The maintenance Lambda function: a schedule invokes it, with any event.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use everfresh_core::clients::{ClientTimeouts, Clients, Network, aws_sdk_config};
use everfresh_core::{clock::Clock, logs};
use everfresh_maintenance::{Settings, startup};
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};
use serde_json::Value;

// It waits for AWS nearly all the time.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    logs::init(logs::Format::detect(), "info");
    logs::exit_code("the maintenance function", run().await)
}

async fn run() -> Result<(), Error> {
    let settings = Settings::from_env()?;
    let clients = Clients::aws(&aws_sdk_config(ClientTimeouts::WORKER, Network::Lambda).await);
    let maintenance = startup::maintenance(&settings, &clients).await?;
    let (maintenance, settings) = (&maintenance, &settings);
    let handle = |event: LambdaEvent<Value>| async move {
        let report = maintenance.run(time_left(&event.context, settings)).await;
        let line = report.metrics().line("maintenance", &settings.stack_name, Clock::system().now_ms());
        // One line of the embedded metric format. A failed write loses this line only.
        let _ = writeln!(std::io::stdout(), "{line}");
        Ok::<_, Error>(report.response()?)
    };
    lambda_runtime::run(service_fn(handle)).await
}

/// Time left in the invocation. A local runtime's deadline is not always a wall-clock time; then
/// the function's own timeout applies.
fn time_left(context: &Context, settings: &Settings) -> Duration {
    let timeout = settings.function_timeout_ms;
    let left = context.deadline.saturating_sub(Clock::system().now_ms());
    Duration::from_millis(if left == 0 || left > timeout { timeout } else { left })
}

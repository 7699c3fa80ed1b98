//! Log output: JSON lines where a machine reads them, readable lines where a person does.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line, for CloudWatch.
    Json,
    /// One readable line, for a terminal. Written to standard error, so that `--json` output stays clean.
    Readable,
}

impl Format {
    /// JSON inside Lambda, readable elsewhere.
    pub fn detect() -> Self {
        match std::env::var_os("AWS_LAMBDA_FUNCTION_NAME") {
            Some(_) => Self::Json,
            None => Self::Readable,
        }
    }
}

/// How a function's process ends. `what` is its name for people. The reason is one log line, whatever the error shows of a file:
/// Lambda tells nobody but the log why a function did not start.
pub fn ended<E: std::fmt::Display>(what: &str, result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.to_string().replace('\n', " ");
            tracing::error!("{what} cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Installs the process's logger. `RUST_LOG` overrides `default_filter`. A second call changes nothing.
pub fn init(format: Format, default_filter: &str) {
    match format {
        Format::Readable => init_readable(default_filter, std::io::stderr),
        Format::Json => {
            let builder = tracing_subscriber::fmt().with_env_filter(filter(default_filter)).json();
            let builder = builder.flatten_event(true).with_current_span(true).with_span_list(false).with_ansi(false);
            // A logger that is already there (tests, an embedding program) is as good as ours.
            let _ = builder.finish().try_init();
        }
    }
}

/// As [`init`] does it for a person, through a writer that stands before standard error. It gets each line by one call.
pub fn init_readable<W: Write + 'static>(default_filter: &str, writer: fn() -> W) {
    let builder = tracing_subscriber::fmt().with_env_filter(filter(default_filter)).with_writer(writer);
    let builder = builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).compact();
    let _ = builder.finish().try_init();
}

fn filter(default_filter: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default_filter))
}

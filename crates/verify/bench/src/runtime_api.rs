//! An emulator of the Lambda Runtime API: one sandbox, one event at a time, optionally frozen
//! between events.
//!
//! It implements `https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html` and Lambda's
//! limits: an invocation past its timeout ends the process, a response above 6 MB is refused.

mod sandbox;
mod server;
mod shared;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) use shared::Shared;

/// The time until the first poll of a function. Lambda allows 10 s; a busy machine with debug
/// builds needs more.
const INIT_LIMIT: Duration = Duration::from_secs(60);

/// Whether the process runs between invocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freeze {
    /// The process keeps running, as under other emulators.
    #[default]
    Never,
    /// The process is stopped while it polls and no event is queued, as Lambda does: background
    /// tasks stand still, and connections go stale.
    BetweenInvocations,
}

/// Why an invocation has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The function reported an error.
    #[error("the function failed: {0}")]
    Function(Failure),
    /// The function reported an initialization error.
    #[error("the function cannot start: {0}")]
    Init(Failure),
    /// The process has ended.
    #[error("the function ended ({status}){}{logs}", if .logs.is_empty() { "" } else { ": " })]
    Ended {
        /// Exit code or signal.
        status: String,
        /// The last lines of its output.
        logs: String,
    },
    /// No response in time. The process is killed.
    #[error("the function did not {doing} within {limit:?}")]
    TimedOut {
        /// The missing action.
        doing: &'static str,
        limit: Duration,
    },
    /// The response exceeds Lambda's limit.
    #[error("the response has more than {} bytes", server::MAX_RESPONSE)]
    TooLarge,
    #[error("no function has been started")]
    NoFunction,
}

/// The error report of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    /// In Rust, the name of a type.
    pub error_type: String,
    pub error_message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.error_message)
    }
}

/// A running emulator. It ends on drop.
#[derive(Debug)]
pub struct RuntimeApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl RuntimeApi {
    /// Listens on a free loopback port and serves on the caller's runtime.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let server = tokio::spawn(server::accept(listener, shared.clone()));
        Ok(Self { address, shared, server })
    }

    /// The value of `AWS_LAMBDA_RUNTIME_API`: host and port.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Applies from now on. [`Freeze::Never`] resumes a frozen process.
    pub fn set_freeze(&self, freeze: Freeze) {
        self.shared.set_freeze(freeze);
    }

    /// The function timeout from now on. The default is 10 s.
    pub fn set_timeout(&self, timeout: Duration) {
        self.shared.set_timeout(timeout);
    }

    /// Resumes the process, delivers `event` after the responses to earlier events, and returns the
    /// response.
    pub async fn invoke(&self, event: impl Into<Bytes>) -> Result<Bytes, InvokeError> {
        let (id, response) = self.shared.enqueue(event.into())?;
        tokio::select! {
            // The sender is dropped only with the emulator.
            response = response => response.unwrap_or(Err(InvokeError::NoFunction)),
            timed_out = self.shared.timed_out(&id, INIT_LIMIT) => {
                self.shared.kill(timed_out.clone());
                Err(timed_out)
            }
        }
    }

    /// Polls of the process for an event so far.
    pub fn polls(&self) -> u64 {
        self.shared.polls()
    }

    /// Connections to the emulator so far: one per process if it keeps its connection.
    pub fn connections(&self) -> u64 {
        self.shared.connections()
    }

    /// Waits until the process polls and no event is queued. If it is to be frozen, the signal has
    /// been sent. The response to an event comes before the next poll: without this wait, the next
    /// event follows without a freeze.
    pub async fn wait_for_poll(&self) -> Result<(), InvokeError> {
        let limit = INIT_LIMIT;
        tokio::time::timeout(limit, self.shared.idle())
            .await
            .unwrap_or(Err(InvokeError::TimedOut { doing: "poll for an event", limit }))
    }

    /// Resumes a frozen process without an event.
    pub fn resume(&self) {
        self.shared.resume();
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

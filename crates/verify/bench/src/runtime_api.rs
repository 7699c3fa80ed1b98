//! Our own Lambda Runtime API: one sandbox, one event at a time, and frozen between them if so wished.
//!
//! It does what `https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html` says about the side below the function, and what
//! Lambda does to a function that fails: an invocation past its time-out ends the process, an answer above 6 MB is refused.

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

/// How long a function may take to ask for its first event. Lambda gives 10 s; a busy machine with debug builds needs more.
const INIT_LIMIT: Duration = Duration::from_secs(60);

/// Whether the process runs while it has nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freeze {
    /// It runs on, as under other emulators.
    #[default]
    Never,
    /// It is stopped whenever it asks for an event and there is none, as Lambda does: what it does in the background stands still,
    /// and its connections grow old unnoticed.
    BetweenInvocations,
}

/// Why an invocation has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The function says that it failed.
    #[error("the function failed: {0}")]
    Function(Failure),
    /// The function says that it cannot start.
    #[error("the function cannot start: {0}")]
    Init(Failure),
    /// The process has ended, with the last lines it wrote.
    #[error("the function ended ({status}){}{logs}", if .logs.is_empty() { "" } else { ": " })]
    Ended {
        /// How it ended.
        status: String,
        /// Its last lines.
        logs: String,
    },
    /// No answer in time. The process is killed for it.
    #[error("the function did not {doing} within {limit:?}")]
    TimedOut {
        /// What it did not do.
        doing: &'static str,
        /// The time it had.
        limit: Duration,
    },
    /// The answer is larger than Lambda takes.
    #[error("the answer has more than {} bytes", server::MAX_ANSWER)]
    TooLarge,
    /// There is no process to invoke.
    #[error("no function has been started")]
    NoFunction,
}

/// What a function reports when it fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    /// The kind of error: in Rust, the name of a type.
    pub error_type: String,
    /// What to tell people.
    pub error_message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.error_message)
    }
}

/// The running emulator. It ends when this is dropped.
#[derive(Debug)]
pub struct RuntimeApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl RuntimeApi {
    /// Listens on a free loopback port and answers on the caller's runtime.
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

    /// From now on, freeze like this. A process that is frozen runs again with [`Freeze::Never`].
    pub fn set_freeze(&self, freeze: Freeze) {
        self.shared.set_freeze(freeze);
    }

    /// From now on, an event must be answered within this time. 10 s unless told.
    pub fn set_time_out(&self, time_out: Duration) {
        self.shared.set_time_out(time_out);
    }

    /// Hands over `event` once those before it are answered, to a process that is running again, and returns the answer.
    pub async fn invoke(&self, event: impl Into<Bytes>) -> Result<Bytes, InvokeError> {
        let (id, answer) = self.shared.enqueue(event.into())?;
        tokio::select! {
            // The sender is dropped only with the emulator.
            answer = answer => answer.unwrap_or(Err(InvokeError::NoFunction)),
            late = self.shared.late(&id, INIT_LIMIT) => {
                self.shared.give_up(late.clone());
                Err(late)
            }
        }
    }

    /// How often the process has asked for an event.
    pub fn polls(&self) -> u64 {
        self.shared.polls()
    }

    /// How many connections have been made to the emulator: one per process, if it keeps its connection.
    pub fn connections(&self) -> u64 {
        self.shared.connections()
    }

    /// Waits until the process asks for an event while there is none: it has started, and has nothing to do. If it is to be
    /// frozen, it has been told. An answer comes before the next question: without this wait, events follow without a freeze.
    pub async fn wait_for_poll(&self) -> Result<(), InvokeError> {
        let limit = INIT_LIMIT;
        tokio::time::timeout(limit, self.shared.idle())
            .await
            .unwrap_or(Err(InvokeError::TimedOut { doing: "ask for an event", limit }))
    }

    /// Lets a frozen process run, without an event.
    pub fn thaw(&self) {
        self.shared.thaw();
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

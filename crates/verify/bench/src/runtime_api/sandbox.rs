//! The state of the sandbox.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use super::{Freeze, InvokeError};

#[derive(Debug)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) body: Bytes,
    pub(super) timeout: Duration,
}

/// Receives the response to an event.
pub(super) type Responder = oneshot::Sender<Result<Bytes, InvokeError>>;

#[derive(Debug)]
pub(super) struct Sandbox {
    /// The process, or why there is none.
    pub(super) process: Result<Pid, InvokeError>,
    /// Counts processes. A pending poll of an ended process must not receive an event.
    pub(super) generation: u64,
    pub(super) freeze: Freeze,
    frozen: bool,
    pub(super) timeout: Duration,
    pub(super) connections: u64,
    pub(super) polls: u64,
    /// Whether this process has polled yet.
    pub(super) started: bool,
    pub(super) pending_polls: usize,
    pub(super) queue: VecDeque<(Event, Responder)>,
    pub(super) delivered: HashMap<String, Responder>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            process: Err(InvokeError::NoFunction),
            generation: 0,
            freeze: Freeze::Never,
            frozen: false,
            timeout: Duration::from_secs(10),
            connections: 0,
            polls: 0,
            started: false,
            pending_polls: 0,
            queue: VecDeque::new(),
            delivered: HashMap::new(),
        }
    }
}

impl Sandbox {
    pub(super) fn is_idle(&self) -> bool {
        self.pending_polls > 0 && self.queue.is_empty() && self.delivered.is_empty()
    }

    pub(super) fn freeze_if_idle(&mut self) {
        if self.freeze == Freeze::BetweenInvocations && self.is_idle() && !self.frozen {
            self.signal(Signal::STOP);
            self.frozen = true;
        }
    }

    pub(super) fn resume(&mut self) {
        if self.frozen {
            self.signal(Signal::CONT);
            self.frozen = false;
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Ok(pid) = self.process
            && let Err(error) = kill_process(pid, signal)
        {
            // The process has ended by itself; its watcher reports it.
            tracing::debug!(%error, ?pid, ?signal, "signal not delivered");
        }
    }

    /// Resumes the process and returns the next event.
    pub(super) fn deliver(&mut self, generation: u64) -> Option<Event> {
        if generation != self.generation {
            return None;
        }
        let (event, responder) = self.queue.pop_front()?;
        self.resume();
        self.delivered.insert(event.id.clone(), responder);
        Some(event)
    }

    /// Detaches the process and fails every pending invocation with `why`.
    pub(super) fn end(&mut self, why: InvokeError) {
        let queued = self.queue.drain(..).map(|(_, responder)| responder);
        for responder in self.delivered.drain().map(|(_, responder)| responder).chain(queued) {
            // The invocation may have been cancelled.
            let _ = responder.send(Err(why.clone()));
        }
        self.process = Err(why);
        self.generation += 1;
        self.frozen = false;
        self.started = false;
        self.pending_polls = 0;
    }
}

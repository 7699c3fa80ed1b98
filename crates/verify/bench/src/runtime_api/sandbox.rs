//! What the emulator knows of its sandbox, and what changes it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use super::{Freeze, InvokeError};

/// An event on its way to the function.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) body: Bytes,
    pub(super) time_out: Duration,
}

/// Where the answer to an event goes.
pub(super) type Answer = oneshot::Sender<Result<Bytes, InvokeError>>;

#[derive(Debug)]
pub(super) struct Sandbox {
    /// The process, or why there is none.
    pub(super) process: Result<Pid, InvokeError>,
    /// Counts processes. A poll of one that has ended may still be in line, and must not get an event.
    pub(super) generation: u64,
    pub(super) freeze: Freeze,
    frozen: bool,
    pub(super) time_out: Duration,
    pub(super) connections: u64,
    pub(super) polls: u64,
    /// Whether this process has ever asked for an event.
    pub(super) started: bool,
    /// Polls that wait now.
    pub(super) asking: usize,
    pub(super) queue: VecDeque<(Event, Answer)>,
    pub(super) handed_over: HashMap<String, Answer>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            process: Err(InvokeError::NoFunction),
            generation: 0,
            freeze: Freeze::Never,
            frozen: false,
            time_out: Duration::from_secs(10),
            connections: 0,
            polls: 0,
            started: false,
            asking: 0,
            queue: VecDeque::new(),
            handed_over: HashMap::new(),
        }
    }
}

impl Sandbox {
    pub(super) fn is_idle(&self) -> bool {
        self.asking > 0 && self.queue.is_empty() && self.handed_over.is_empty()
    }

    pub(super) fn freeze_if_idle(&mut self) {
        if self.freeze == Freeze::BetweenInvocations && self.is_idle() && !self.frozen {
            self.signal(Signal::STOP);
            self.frozen = true;
        }
    }

    pub(super) fn thaw(&mut self) {
        if self.frozen {
            self.signal(Signal::CONT);
            self.frozen = false;
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Ok(pid) = self.process
            && let Err(error) = kill_process(pid, signal)
        {
            // It has ended by itself; whoever watches it will say so.
            tracing::debug!(%error, ?pid, ?signal, "a signal did not arrive");
        }
    }

    /// The next event, for a process that runs again by then.
    pub(super) fn hand_over(&mut self, generation: u64) -> Option<Event> {
        if generation != self.generation {
            return None;
        }
        let (event, answer) = self.queue.pop_front()?;
        self.thaw();
        self.handed_over.insert(event.id.clone(), answer);
        Some(event)
    }

    /// Forgets the process and tells everybody who waits for it. The first reason is the one that stays.
    pub(super) fn end(&mut self, why: InvokeError) {
        let queued = self.queue.drain(..).map(|(_, answer)| answer);
        for answer in self.handed_over.drain().map(|(_, answer)| answer).chain(queued) {
            // Nobody waits any more: then nobody needs to know.
            let _ = answer.send(Err(why.clone()));
        }
        self.process = Err(why);
        self.generation += 1;
        self.frozen = false;
        self.started = false;
        self.asking = 0;
    }
}

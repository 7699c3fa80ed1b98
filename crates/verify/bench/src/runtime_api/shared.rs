//! The sandbox under one lock, and waiting for its changes: a poll, an event and a signal never pass each other.

use std::io;
use std::process::Child;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::sandbox::{Event, Sandbox};
use super::{Freeze, InvokeError};

#[derive(Debug, Default)]
pub(crate) struct Shared(watch::Sender<Sandbox>);

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut Sandbox) -> T) -> T {
        let mut result = None;
        self.0.send_modify(|sandbox| result = Some(change(sandbox)));
        #[expect(clippy::expect_used, reason = "send_modify calls its closure once")]
        result.expect("the closure was called")
    }

    /// Spawns the sandbox's process. Under the lock, so that no poll of it comes before it is known.
    pub(crate) fn attach(&self, spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Pid)> {
        self.change(|sandbox| {
            sandbox.end(InvokeError::NoFunction);
            let child = spawn()?;
            let pid = Pid::from_child(&child);
            sandbox.process = Ok(pid);
            Ok((child, pid))
        })
    }

    /// The process has ended, or is about to be.
    pub(crate) fn ended(&self, pid: Pid, why: InvokeError) {
        self.change(|sandbox| {
            if sandbox.process == Ok(pid) {
                sandbox.end(why);
            }
        });
    }

    /// The process says that it cannot start.
    pub(super) fn init_failed(&self, why: InvokeError) {
        self.change(|sandbox| sandbox.end(why));
    }

    /// Nothing more can be expected of the process: it is killed, and whoever waits learns why.
    pub(super) fn give_up(&self, why: InvokeError) {
        self.change(|sandbox| {
            sandbox.signal(Signal::KILL);
            sandbox.end(why);
        });
    }

    pub(super) fn set_freeze(&self, freeze: Freeze) {
        self.change(|sandbox| {
            sandbox.freeze = freeze;
            match freeze {
                Freeze::Never => sandbox.thaw(),
                Freeze::BetweenInvocations => sandbox.freeze_if_idle(),
            }
        });
    }

    pub(super) fn set_time_out(&self, time_out: Duration) {
        self.change(|sandbox| sandbox.time_out = time_out);
    }

    pub(super) fn thaw(&self) {
        self.change(Sandbox::thaw);
    }

    pub(super) fn polls(&self) -> u64 {
        self.0.borrow().polls
    }

    pub(super) fn connections(&self) -> u64 {
        self.0.borrow().connections
    }

    pub(super) fn connected(&self) {
        self.change(|sandbox| sandbox.connections += 1);
    }

    /// Puts an event in line.
    pub(super) fn enqueue(
        &self,
        body: Bytes,
    ) -> Result<(String, oneshot::Receiver<Result<Bytes, InvokeError>>), InvokeError> {
        self.change(|sandbox| {
            sandbox.process.clone()?;
            let (answer, receiver) = oneshot::channel();
            let id = Uuid::new_v4().to_string();
            sandbox.queue.push_back((Event { id: id.clone(), body, time_out: sandbox.time_out }, answer));
            Ok((id, receiver))
        })
    }

    /// Waits until an event's time has run out. While others are before it, its time has not begun.
    pub(super) async fn late(&self, id: &str, init_limit: Duration) -> InvokeError {
        let limit = self.0.borrow().time_out;
        let mut changes = self.0.subscribe();
        if tokio::time::timeout(init_limit, changes.wait_for(|sandbox| sandbox.started)).await.is_err() {
            return InvokeError::TimedOut { doing: "start", limit: init_limit };
        }
        let _ = changes.wait_for(|sandbox| sandbox.handed_over.contains_key(id)).await;
        tokio::time::sleep(limit).await;
        InvokeError::TimedOut { doing: "answer", limit }
    }

    /// Waits for a process with nothing to do.
    pub(super) async fn idle(&self) -> Result<(), InvokeError> {
        let mut changes = self.0.subscribe();
        match changes.wait_for(|sandbox| sandbox.is_idle() || sandbox.process.is_err()).await {
            Ok(sandbox) => sandbox.process.clone().map(|_| ()),
            // Only without a sender, and `self` is one.
            Err(_) => Err(InvokeError::NoFunction),
        }
    }

    /// The function asks for an event. `None` if its process has ended meanwhile.
    pub(super) async fn next(&self) -> Option<Event> {
        let mut changes = self.0.subscribe();
        let asking = Asking::begin(self);
        loop {
            if let Some(event) = self.change(|sandbox| sandbox.hand_over(asking.generation)) {
                return Some(event);
            }
            let gone = |sandbox: &Sandbox| sandbox.generation != asking.generation;
            let change = changes.wait_for(|sandbox| gone(sandbox) || !sandbox.queue.is_empty()).await.ok()?;
            if gone(&change) {
                return None;
            }
        }
    }

    /// The function's answer to an event. `false` if it has no such event (any more).
    pub(super) fn answer(&self, id: &str, answer: Result<Bytes, InvokeError>) -> bool {
        let waiting = self.change(|sandbox| sandbox.handed_over.remove(id));
        // Whoever asked may have lost patience; for the function that is no difference.
        waiting.map(|waiting| waiting.send(answer)).is_some()
    }
}

/// A poll that waits, until its connection ends.
struct Asking<'a> {
    shared: &'a Shared,
    generation: u64,
}

impl<'a> Asking<'a> {
    fn begin(shared: &'a Shared) -> Self {
        let generation = shared.change(|sandbox| {
            sandbox.polls += 1;
            sandbox.started = true;
            sandbox.asking += 1;
            sandbox.freeze_if_idle();
            sandbox.generation
        });
        Self { shared, generation }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.shared.change(|sandbox| {
            if sandbox.generation == self.generation {
                sandbox.asking -= 1;
            }
        });
    }
}

//! The sandbox under one lock, so that polls, events and signals are ordered, and waiting for its
//! changes.

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

    /// Spawns the process of the sandbox, under the lock: no poll of it arrives before it is
    /// registered.
    pub(crate) fn attach(&self, spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Pid)> {
        self.change(|sandbox| {
            sandbox.end(InvokeError::NoFunction);
            let child = spawn()?;
            let pid = Pid::from_child(&child);
            sandbox.process = Ok(pid);
            Ok((child, pid))
        })
    }

    /// The process has ended, or will be killed.
    pub(crate) fn ended(&self, pid: Pid, why: InvokeError) {
        self.change(|sandbox| {
            if sandbox.process == Ok(pid) {
                sandbox.end(why);
            }
        });
    }

    /// The process reported an initialization error.
    pub(super) fn init_failed(&self, why: InvokeError) {
        self.change(|sandbox| sandbox.end(why));
    }

    /// Kills the process and fails every pending invocation with `why`.
    pub(super) fn kill(&self, why: InvokeError) {
        self.change(|sandbox| {
            sandbox.signal(Signal::KILL);
            sandbox.end(why);
        });
    }

    pub(super) fn set_freeze(&self, freeze: Freeze) {
        self.change(|sandbox| {
            sandbox.freeze = freeze;
            match freeze {
                Freeze::Never => sandbox.resume(),
                Freeze::BetweenInvocations => sandbox.freeze_if_idle(),
            }
        });
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        self.change(|sandbox| sandbox.timeout = timeout);
    }

    pub(super) fn resume(&self) {
        self.change(Sandbox::resume);
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

    pub(super) fn enqueue(
        &self,
        body: Bytes,
    ) -> Result<(String, oneshot::Receiver<Result<Bytes, InvokeError>>), InvokeError> {
        self.change(|sandbox| {
            sandbox.process.clone()?;
            let (responder, receiver) = oneshot::channel();
            let id = Uuid::new_v4().to_string();
            sandbox.queue.push_back((Event { id: id.clone(), body, timeout: sandbox.timeout }, responder));
            Ok((id, receiver))
        })
    }

    /// Waits until an event has timed out. Its time begins when it is delivered.
    pub(super) async fn timed_out(&self, id: &str, init_limit: Duration) -> InvokeError {
        let limit = self.0.borrow().timeout;
        let mut changes = self.0.subscribe();
        if tokio::time::timeout(init_limit, changes.wait_for(|sandbox| sandbox.started)).await.is_err() {
            return InvokeError::TimedOut { doing: "start", limit: init_limit };
        }
        let _ = changes.wait_for(|sandbox| sandbox.delivered.contains_key(id)).await;
        tokio::time::sleep(limit).await;
        InvokeError::TimedOut { doing: "respond", limit }
    }

    /// Waits until the process polls and no event is queued.
    pub(super) async fn idle(&self) -> Result<(), InvokeError> {
        let mut changes = self.0.subscribe();
        match changes.wait_for(|sandbox| sandbox.is_idle() || sandbox.process.is_err()).await {
            Ok(sandbox) => sandbox.process.clone().map(|_| ()),
            // The sender is `self`.
            Err(_) => Err(InvokeError::NoFunction),
        }
    }

    /// A poll of the function. `None` if its process has ended meanwhile.
    pub(super) async fn next(&self) -> Option<Event> {
        let mut changes = self.0.subscribe();
        let poll = PendingPoll::begin(self);
        loop {
            if let Some(event) = self.change(|sandbox| sandbox.deliver(poll.generation)) {
                return Some(event);
            }
            let gone = |sandbox: &Sandbox| sandbox.generation != poll.generation;
            let change = changes.wait_for(|sandbox| gone(sandbox) || !sandbox.queue.is_empty()).await.ok()?;
            if gone(&change) {
                return None;
            }
        }
    }

    /// The response to an event. `false` if no such event is pending.
    pub(super) fn respond(&self, id: &str, answer: Result<Bytes, InvokeError>) -> bool {
        let waiting = self.change(|sandbox| sandbox.delivered.remove(id));
        // The invocation may have been cancelled; the function gets the same status.
        waiting.map(|waiting| waiting.send(answer)).is_some()
    }
}

/// A pending poll. It ends with its connection.
struct PendingPoll<'a> {
    shared: &'a Shared,
    generation: u64,
}

impl<'a> PendingPoll<'a> {
    fn begin(shared: &'a Shared) -> Self {
        let generation = shared.change(|sandbox| {
            sandbox.polls += 1;
            sandbox.started = true;
            sandbox.pending_polls += 1;
            sandbox.freeze_if_idle();
            sandbox.generation
        });
        Self { shared, generation }
    }
}

impl Drop for PendingPoll<'_> {
    fn drop(&mut self) {
        self.shared.change(|sandbox| {
            if sandbox.generation == self.generation {
                sandbox.pending_polls -= 1;
            }
        });
    }
}

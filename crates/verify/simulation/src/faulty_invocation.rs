//! Invocations that are killed or frozen.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::faults::RunFault;
use crate::invocation_trace::InvocationTrace;

/// When the fault happens: at the first poll after this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A number of polls: at any await, mostly among AWS calls, which are many.
    Polls(u32),
    /// A time since the start: mostly in the longest step.
    Time(Duration),
    /// The upload of a body: before its response is read.
    Uploaded,
}

/// What stops during a freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Timers run on: on resume every passed timeout fires at once.
    Nothing,
    /// No timeout passes during the freeze. The wall clock runs on.
    Timers,
    /// Timers and wall clock stop.
    Clocks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    pub time: Duration,
    pub stopped: Stopped,
}

/// A moment of an invocation, reported to its observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before each poll.
    Polled,
    /// At the first await.
    Begun,
    /// The fault happens.
    Faulted,
    /// The freeze is over.
    Resumed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvocationFault {
    None,
    /// The process is killed.
    KilledAfter(When),
    FrozenAfter(When, Freeze),
    /// The invocation completes, but its response is lost.
    ResponseLost,
}

impl InvocationFault {
    pub fn freeze(self) -> Option<Freeze> {
        match self {
            InvocationFault::FrozenAfter(_, freeze) => Some(freeze),
            InvocationFault::None | InvocationFault::ResponseLost | InvocationFault::KilledAfter(_) => None,
        }
    }

    /// The fault in the report.
    pub fn counted_as(self) -> Option<RunFault> {
        match self {
            InvocationFault::None => None,
            InvocationFault::KilledAfter(_) => Some(RunFault::Kill),
            InvocationFault::FrozenAfter(When::Uploaded, _) => Some(RunFault::FreezeAfterUpload),
            InvocationFault::FrozenAfter(_, freeze) => Some(match freeze.stopped {
                Stopped::Nothing => RunFault::Freeze,
                Stopped::Timers => RunFault::FreezeStopsTimers,
                Stopped::Clocks => RunFault::FreezeStopsClocks,
            }),
            InvocationFault::ResponseLost => Some(RunFault::LostAck),
        }
    }
}

/// A future with a fault.
pub struct FaultyInvocation<F, S> {
    work: Option<Pin<Box<F>>>,
    fault: InvocationFault,
    /// Called at each [`Moment`]: an invocation may end before its fault.
    on_moment: S,
    began: Instant,
    polls: u32,
    frozen: Option<Pin<Box<Sleep>>>,
    trace: InvocationTrace,
}

impl<F: Future, S: FnMut(Moment) + Unpin> FaultyInvocation<F, S> {
    pub fn new(work: F, fault: InvocationFault, on_moment: S) -> Self {
        let trace = InvocationTrace::default();
        Self { work: Some(Box::pin(work)), fault, on_moment, began: Instant::now(), polls: 0, frozen: None, trace }
    }

    /// With a trace of its requests, for [`When::Uploaded`].
    pub fn traced(self, trace: InvocationTrace) -> Self {
        Self { trace, ..self }
    }

    fn has_come(&self, when: When) -> bool {
        match when {
            When::Polls(polls) => self.polls > polls,
            When::Time(time) => self.began.elapsed() >= time,
            When::Uploaded => self.trace.has_uploaded(),
        }
    }
}

impl<F: Future, S: FnMut(Moment) + Unpin> Future for FaultyInvocation<F, S> {
    /// `None` if it was killed.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(frozen) = &mut self.frozen {
            match frozen.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => {
                    self.frozen = None;
                    (self.on_moment)(Moment::Resumed);
                }
            }
        }
        self.polls += 1;
        match self.fault {
            InvocationFault::KilledAfter(when) if self.has_come(when) => {
                (self.on_moment)(Moment::Faulted);
                self.work = None;
                return Poll::Ready(None);
            }
            InvocationFault::FrozenAfter(when, freeze) if self.has_come(when) => {
                (self.on_moment)(Moment::Faulted);
                self.fault = InvocationFault::None;
                let mut sleep = Box::pin(tokio::time::sleep(freeze.time));
                // Registers the waker. The work is not polled during the freeze, also if it is
                // woken.
                if sleep.as_mut().poll(context).is_pending() {
                    self.frozen = Some(sleep);
                    return Poll::Pending;
                }
            }
            InvocationFault::None
            | InvocationFault::ResponseLost
            | InvocationFault::KilledAfter(_)
            | InvocationFault::FrozenAfter(..) => {}
        }
        (self.on_moment)(Moment::Polled);
        match &mut self.work {
            None => Poll::Ready(None),
            Some(work) => {
                let polled = work.as_mut().poll(context).map(Some);
                if self.polls == 1 {
                    (self.on_moment)(Moment::Begun);
                }
                polled
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn steps(count: u64) -> u64 {
        for _ in 0..count {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn invocation_completes_is_killed_or_resumes_after_freeze() {
        assert_eq!(FaultyInvocation::new(steps(5), InvocationFault::None, |_| {}).await, Some(5));
        let began = Instant::now();
        assert_eq!(FaultyInvocation::new(steps(5), InvocationFault::KilledAfter(When::Polls(3)), |_| {}).await, None);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        let began = Instant::now();
        let mut moments = Vec::new();
        let freeze = Freeze { time: Duration::from_secs(600), stopped: Stopped::Nothing };
        let fault = InvocationFault::FrozenAfter(When::Time(Duration::from_secs(2)), freeze);
        let frozen = FaultyInvocation::new(steps(5), fault, |moment| {
            moments.extend((moment != Moment::Polled).then_some(moment))
        })
        .await;
        assert_eq!((frozen, moments), (Some(5), vec![Moment::Begun, Moment::Faulted, Moment::Resumed]));
        assert!(began.elapsed() >= Duration::from_secs(603), "{:?}", began.elapsed());
    }
}

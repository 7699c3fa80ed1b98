//! Invocations that end before they are over, or stop in the middle for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// When it befalls an invocation: at the first poll that comes after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So many polls: anywhere between two awaits, and mostly among its calls, for there are many.
    Polls(u32),
    /// So much time: mostly in the middle of what takes long.
    Time(Duration),
}

/// What a frozen sandbox finds when it is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its timers have run on: every time-out that has passed fires at once.
    Nothing,
    /// Its timers have not: none of its time-outs is over. Its wall clock shows how late it is.
    Timers,
    /// Neither has its wall clock. It believes that no time has passed.
    Clocks,
}

/// A freeze: for how long, and what stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// How long it lasts.
    pub time: Duration,
    /// What has not moved meanwhile.
    pub stopped: Stopped,
}

/// What is told of an invocation while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It is about to be polled.
    Polled,
    /// It stands at its first await.
    Begun,
    /// Its fault has struck.
    Struck,
    /// It was frozen, and goes on.
    Resumed,
}

/// What befalls an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvocationFault {
    /// Nothing.
    Lives,
    /// The process is gone.
    DiesAfter(When),
    /// The sandbox is frozen for this long.
    FreezesAfter(When, Freeze),
    /// It does its work, and Lambda never hears of it.
    Unheard,
}

impl InvocationFault {
    /// The freeze that comes, if one does.
    pub fn freeze(self) -> Option<Freeze> {
        match self {
            InvocationFault::FreezesAfter(_, freeze) => Some(freeze),
            InvocationFault::Lives | InvocationFault::Unheard | InvocationFault::DiesAfter(_) => None,
        }
    }

    /// What it is called in the figures.
    pub fn name(self) -> &'static str {
        match self {
            InvocationFault::Lives => "life",
            InvocationFault::DiesAfter(_) => "kill",
            InvocationFault::FreezesAfter(_, Freeze { stopped: Stopped::Nothing, .. }) => "freeze",
            InvocationFault::FreezesAfter(_, Freeze { stopped: Stopped::Timers, .. }) => "freeze-stops-timers",
            InvocationFault::FreezesAfter(_, Freeze { stopped: Stopped::Clocks, .. }) => "freeze-stops-clocks",
            InvocationFault::Unheard => "lost-ack",
        }
    }
}

/// A future with a fault.
pub struct FaultyInvocation<F, S> {
    work: Option<Pin<Box<F>>>,
    fault: InvocationFault,
    /// Told of each moment: an invocation may be over before its fault strikes.
    told: S,
    began: Instant,
    polls: u32,
    frozen: Option<Pin<Box<Sleep>>>,
}

impl<F: Future, S: FnMut(Moment) + Unpin> FaultyInvocation<F, S> {
    /// `work`, to which `fault` happens; `told` hears of it.
    pub fn new(work: F, fault: InvocationFault, told: S) -> Self {
        Self { work: Some(Box::pin(work)), fault, told, began: Instant::now(), polls: 0, frozen: None }
    }

    fn has_come(&self, when: When) -> bool {
        match when {
            When::Polls(polls) => self.polls > polls,
            When::Time(time) => self.began.elapsed() >= time,
        }
    }
}

impl<F: Future, S: FnMut(Moment) + Unpin> Future for FaultyInvocation<F, S> {
    /// None if it died.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(frozen) = &mut self.frozen {
            match frozen.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => {
                    self.frozen = None;
                    (self.told)(Moment::Resumed);
                }
            }
        }
        self.polls += 1;
        match self.fault {
            InvocationFault::DiesAfter(when) if self.has_come(when) => {
                (self.told)(Moment::Struck);
                self.work = None;
                return Poll::Ready(None);
            }
            InvocationFault::FreezesAfter(when, freeze) if self.has_come(when) => {
                (self.told)(Moment::Struck);
                self.fault = InvocationFault::Lives;
                let mut sleep = Box::pin(tokio::time::sleep(freeze.time));
                // Registers the wake-up; the work is not polled meanwhile, whatever wakes it.
                if sleep.as_mut().poll(context).is_pending() {
                    self.frozen = Some(sleep);
                    return Poll::Pending;
                }
            }
            InvocationFault::Lives
            | InvocationFault::Unheard
            | InvocationFault::DiesAfter(_)
            | InvocationFault::FreezesAfter(..) => {}
        }
        (self.told)(Moment::Polled);
        match &mut self.work {
            None => Poll::Ready(None),
            Some(work) => {
                let polled = work.as_mut().poll(context).map(Some);
                if self.polls == 1 {
                    (self.told)(Moment::Begun);
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
    async fn an_invocation_lives_dies_between_awaits_or_sleeps_and_goes_on() {
        assert_eq!(FaultyInvocation::new(steps(5), InvocationFault::Lives, |_| {}).await, Some(5));
        let began = Instant::now();
        assert_eq!(FaultyInvocation::new(steps(5), InvocationFault::DiesAfter(When::Polls(3)), |_| {}).await, None);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        let began = Instant::now();
        let mut moments = Vec::new();
        let freeze = Freeze { time: Duration::from_secs(600), stopped: Stopped::Nothing };
        let fault = InvocationFault::FreezesAfter(When::Time(Duration::from_secs(2)), freeze);
        let frozen = FaultyInvocation::new(steps(5), fault, |moment| {
            moments.extend((moment != Moment::Polled).then_some(moment))
        })
        .await;
        assert_eq!((frozen, moments), (Some(5), vec![Moment::Begun, Moment::Struck, Moment::Resumed]));
        assert!(began.elapsed() >= Duration::from_secs(603), "{:?}", began.elapsed());
    }
}

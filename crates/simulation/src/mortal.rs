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

/// What befalls an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Lives,
    /// The process is gone.
    DiesAfter(When),
    /// The sandbox is frozen for this long.
    FreezesAfter(When, Duration),
    /// It does its work, and Lambda never hears of it.
    Unheard,
}

impl Fate {
    /// What it is called in the figures.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Lives => "life",
            Fate::DiesAfter(_) => "kill",
            Fate::FreezesAfter(..) => "freeze",
            Fate::Unheard => "lost-ack",
        }
    }
}

/// A future with a fate.
pub struct Mortal<F, S> {
    work: Option<Pin<Box<F>>>,
    fate: Fate,
    /// Told when it happens: an invocation may be over before.
    struck: S,
    began: Instant,
    polls: u32,
    frozen: Option<Pin<Box<Sleep>>>,
}

impl<F: Future, S: FnMut() + Unpin> Mortal<F, S> {
    /// `work`, to which `fate` happens; `struck` is told when it does.
    pub fn new(work: F, fate: Fate, struck: S) -> Self {
        Self { work: Some(Box::pin(work)), fate, struck, began: Instant::now(), polls: 0, frozen: None }
    }

    fn has_come(&self, when: When) -> bool {
        match when {
            When::Polls(polls) => self.polls > polls,
            When::Time(time) => self.began.elapsed() >= time,
        }
    }
}

impl<F: Future, S: FnMut() + Unpin> Future for Mortal<F, S> {
    /// None if it died.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(frozen) = &mut self.frozen {
            match frozen.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.frozen = None,
            }
        }
        self.polls += 1;
        match self.fate {
            Fate::DiesAfter(when) if self.has_come(when) => {
                (self.struck)();
                self.work = None;
                return Poll::Ready(None);
            }
            Fate::FreezesAfter(when, time) if self.has_come(when) => {
                (self.struck)();
                self.fate = Fate::Lives;
                let mut sleep = Box::pin(tokio::time::sleep(time));
                // Registers the wake-up; the work is not polled meanwhile, whatever wakes it.
                if sleep.as_mut().poll(context).is_pending() {
                    self.frozen = Some(sleep);
                    return Poll::Pending;
                }
            }
            Fate::Lives | Fate::Unheard | Fate::DiesAfter(_) | Fate::FreezesAfter(..) => {}
        }
        match &mut self.work {
            None => Poll::Ready(None),
            Some(work) => work.as_mut().poll(context).map(Some),
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
        assert_eq!(Mortal::new(steps(5), Fate::Lives, || {}).await, Some(5));
        let began = Instant::now();
        assert_eq!(Mortal::new(steps(5), Fate::DiesAfter(When::Polls(3)), || {}).await, None);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        let began = Instant::now();
        let mut struck = 0;
        let frozen = Mortal::new(
            steps(5),
            Fate::FreezesAfter(When::Time(Duration::from_secs(2)), Duration::from_secs(600)),
            || struck += 1,
        )
        .await;
        assert_eq!((frozen, struck), (Some(5), 1));
        assert!(began.elapsed() >= Duration::from_secs(603), "{:?}", began.elapsed());
    }
}

//! Invocations that end before they are over, or stop in the middle for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// What befalls an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Lives,
    /// The process is gone after so many polls: somewhere between two awaits.
    DiesAfter(u32),
    /// The sandbox is frozen after so many polls, for this long.
    FreezesAfter(u32, Duration),
    /// It does its work, and Lambda never hears of it.
    Unheard,
}

/// A future with a fate.
pub struct Mortal<F> {
    work: Option<Pin<Box<F>>>,
    fate: Fate,
    polls: u32,
    frozen: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Mortal<F> {
    /// `work`, to which `fate` happens.
    pub fn new(work: F, fate: Fate) -> Self {
        Self { work: Some(Box::pin(work)), fate, polls: 0, frozen: None }
    }
}

impl<F: Future> Future for Mortal<F> {
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
            Fate::DiesAfter(polls) if self.polls > polls => {
                self.work = None;
                return Poll::Ready(None);
            }
            Fate::FreezesAfter(polls, time) if self.polls > polls => {
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
    use tokio::time::Instant;

    async fn steps(count: u64) -> u64 {
        for _ in 0..count {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn an_invocation_lives_dies_between_awaits_or_sleeps_and_goes_on() {
        assert_eq!(Mortal::new(steps(5), Fate::Lives).await, Some(5));
        let began = Instant::now();
        assert_eq!(Mortal::new(steps(5), Fate::DiesAfter(3)).await, None);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        let began = Instant::now();
        let frozen = Mortal::new(steps(5), Fate::FreezesAfter(2, Duration::from_secs(600))).await;
        assert_eq!(frozen, Some(5));
        assert!(began.elapsed() >= Duration::from_secs(603), "{:?}", began.elapsed());
    }
}

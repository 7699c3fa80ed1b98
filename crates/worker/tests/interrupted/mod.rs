//! Invocations that stand still at an await.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use everfresh_testing::ladder;

/// Its five calls and the render: with fewer awaits it was not interrupted where it matters.
pub(crate) const LEAST_AWAITS: u32 = 6;

/// Polls so often. None if there is more to do: it stands at an await, and goes no further.
pub(crate) async fn polled<F: Future + Unpin>(work: &mut F, mut polls: u32) -> Option<F::Output> {
    poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        Pin::new(&mut *work).poll(context).map(Some)
    })
    .await
}

/// How long an invocation may run.
pub(crate) fn time() -> Duration {
    Duration::from_millis(ladder().function_timeout_ms)
}

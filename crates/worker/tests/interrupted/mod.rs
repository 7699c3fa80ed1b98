//! Invocations that are stopped at an await.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use everfresh_testing::ladder;

/// The five AWS calls and the render. Fewer awaits mean that the interruption missed the protocol.
pub(crate) const LEAST_AWAITS: u32 = 6;

/// Polls `polls` times. `None` if the future is still pending; it then makes no progress.
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

/// The duration of an invocation.
pub(crate) fn time() -> Duration {
    Duration::from_millis(ladder().function_timeout_ms)
}

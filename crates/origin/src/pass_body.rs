//! The body of a passed response, streamed.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, timeout};

use crate::connection::Connection;
use crate::pool::PoolSlot;

/// An origin that has answered before it has read the whole request may never read the rest.
const QUIET_END: Duration = Duration::from_secs(1);

/// The body of a passed response. Read no faster than it is polled.
///
/// After its end the connection is pooled, if nothing more has arrived on it. Dropped before its
/// end, or failed, it closes the connection. It never has trailers.
pub struct PassBody {
    incoming: Incoming,
    deadline: Pin<Box<Sleep>>,
    /// `None` after the end.
    connection: Option<(Connection, PoolSlot)>,
}

/// Why a passed response ended early.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("the origin's response broke off")]
    Broken(#[source] hyper::Error),
    #[error("the origin's response did not end in time")]
    TimedOut,
}

impl PassBody {
    /// Without a `connection` the exchange has already ended.
    pub(crate) fn new(incoming: Incoming, deadline: Sleep, connection: Option<(Connection, PoolSlot)>) -> Self {
        let mut body = Self { incoming, deadline: Box::pin(deadline), connection };
        if body.incoming.is_end_stream() {
            body.end();
        }
        body
    }

    /// Pools the connection once it is quiet.
    fn end(&mut self) {
        let Some((mut connection, slot)) = self.connection.take() else { return };
        tokio::spawn(async move {
            if let Ok(Ok(true)) = timeout(QUIET_END, connection.end_exchange()).await {
                slot.put(connection);
            }
        });
    }

    fn fail(&mut self, error: PassError) -> Poll<Option<Result<Frame<Bytes>, PassError>>> {
        self.connection = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for PassBody {
    type Data = Bytes;
    type Error = PassError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, PassError>>> {
        if self.connection.is_none() {
            return Poll::Ready(None);
        }
        if self.deadline.as_mut().poll(context).is_ready() {
            return self.fail(PassError::TimedOut);
        }
        loop {
            match ready!(Pin::new(&mut self.incoming).poll_frame(context)) {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    // A server stops polling at the end of a body with a length.
                    if self.incoming.is_end_stream() {
                        self.end();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return self.fail(PassError::Broken(error)),
                None => {
                    self.end();
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.connection.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl fmt::Debug for PassBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PassBody").field("ended", &self.is_end_stream()).finish_non_exhaustive()
    }
}

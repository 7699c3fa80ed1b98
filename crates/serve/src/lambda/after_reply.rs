//! Work between the reply and the next event.
//!
//! Lambda freezes a sandbox when its function polls for the next event: a spawned task stops there,
//! in the middle of a call, and may never resume. This layer wraps the runtime's own service, which
//! posts the reply; it does the rest afterwards, and only then lets the runtime poll again.

use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::enqueue::Enqueue;
use crate::server::Server;

/// The regenerations that the current invocation enqueues after its reply.
#[derive(Clone, Debug, Default)]
pub struct PendingEnqueues(Arc<Mutex<Vec<Enqueue>>>);

impl PendingEnqueues {
    pub fn push(&self, enqueues: Vec<Enqueue>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(enqueues);
    }

    fn take(&self) -> Vec<Enqueue> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// After each reply, sends the pending enqueues, completes deferred reads and writes the metrics.
#[derive(Clone, Debug)]
pub struct AfterReply {
    pub server: Arc<Server>,
    pub pending: PendingEnqueues,
}

impl<S> Layer<S> for AfterReply {
    type Service = AfterReplyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AfterReplyService { inner, layer: self.clone() }
    }
}

#[derive(Clone, Debug)]
pub struct AfterReplyService<S> {
    inner: S,
    layer: AfterReply,
}

impl<S, Invocation> Service<Invocation> for AfterReplyService<S>
where
    S: Service<Invocation, Response: Send, Error: Send, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, invocation: Invocation) -> Self::Future {
        let replied = self.inner.call(invocation);
        let AfterReply { server, pending } = self.layer.clone();
        Box::pin(async move {
            let posted = replied.await;
            // Also if the reply could not be posted: the page is stale either way.
            server.finish(pending.take()).await;
            // Last, so that it includes this invocation's enqueues: the next one may be hours away.
            if let Some(line) = server.metrics_line(server.now_ms()) {
                // One line of the embedded metric format. Only metrics are lost if this fails.
                let _ = writeln!(std::io::stdout(), "{line}");
            }
            posted
        })
    }
}

//! Work between the reply and the next event.
//!
//! Lambda freezes a sandbox when its function asks for the next event: a task that was merely spawned stops there, in the middle of
//! a request, and may never go on. This layer stands around the runtime's own service, which posts the reply; when that is done it
//! does the rest, and only then lets the runtime ask for more.

use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::serve::Server;
use crate::wish::Enqueue;

/// What the invocation under way leaves to be done after its reply.
#[derive(Clone, Debug, Default)]
pub struct Rest(Arc<Mutex<Vec<Enqueue>>>);

impl Rest {
    /// Leaves a wish for after the reply.
    pub fn leave(&self, wish: Option<Enqueue>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(wish);
    }

    fn take(&self) -> Vec<Enqueue> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The layer: after each reply, does what was left, and tells the metrics.
#[derive(Clone, Debug)]
pub struct AfterReply {
    /// Who sends.
    pub server: Arc<Server>,
    /// What the handler leaves.
    pub rest: Rest,
}

impl Server {
    /// Does what a visit leaves for after its reply: asks for what it wishes for, and ends the reads that its reader did not wait for.
    /// Wait for it before the instance rests. A panic in it ends it, and nothing else: the next reader of the page asks again.
    pub async fn finish(&self, wishes: impl IntoIterator<Item = Enqueue>) {
        let ask = async {
            for wish in wishes {
                self.ask(wish).await;
            }
        };
        self.unless_it_panics("the work after a reply", async { tokio::join!(ask, self.pages.finish()) }).await;
    }
}

impl<S> Layer<S> for AfterReply {
    type Service = AfterReplyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AfterReplyService { inner, layer: self.clone() }
    }
}

/// The runtime's service with the rest of the work behind it.
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
        let AfterReply { server, rest } = self.layer.clone();
        Box::pin(async move {
            let posted = replied.await;
            // Also if the reply could not be posted: the page is stale either way.
            server.finish(rest.take()).await;
            // Last, so that it tells of this invocation's wishes too: the next invocation may be hours away.
            if let Some(line) = server.metrics_line(server.now_ms()) {
                // One line of the embedded metric format. If nobody reads it, nothing else is lost.
                let _ = writeln!(std::io::stdout(), "{line}");
            }
            posted
        })
    }
}

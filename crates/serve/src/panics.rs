//! A panic is a defect of Everfresh. It costs the request that met it, and nothing else.
//!
//! Nothing that outlives a request is left half done: every lock is used after a panic as it is, and a shared read that panicked is
//! forgotten, so that the next reader starts another.

use std::panic::AssertUnwindSafe;

use everfresh_core::metrics;
use futures::FutureExt;

use crate::serve::Server;

impl Server {
    /// What `work` gives; none if it panicked, which is then logged and counted. The panic's own words are on stderr: they may repeat what
    /// a reader sent, so they are not repeated here.
    pub(crate) async fn unless_it_panics<T>(&self, what: &'static str, work: impl Future<Output = T>) -> Option<T> {
        let result = AssertUnwindSafe(work).catch_unwind().await;
        if result.is_err() {
            self.count(metrics::PANICS);
            tracing::error!(what, "{what} panicked; the message on stderr before this one says where");
        }
        result.ok()
    }
}

//! Connections are made while the sandbox starts, when nobody waits and CPU is free.

use std::time::Duration;

use crate::serve::Server;

const LONGEST: Duration = Duration::from_secs(3);

impl Server {
    /// Opens connections to the table and the bucket. What fails here is tried again when it is needed.
    pub async fn warm_up(&self) {
        let calls = async { tokio::join!(self.pages.warm_up(self.first_tenant()), self.bodies.warm_up()) };
        if tokio::time::timeout(LONGEST, calls).await.is_err() {
            tracing::warn!("table or bucket did not answer while the function started");
        }
    }
}

//! Results of operator commands, and the freshness that readers see.

use everfresh_core::domain::freshness::{Freshness, Policy, freshness};
use everfresh_core::domain::invalidations::Invalidations;
use everfresh_core::domain::version::Version;
use everfresh_core::ledger::Operation;

use crate::{Sandbox, World, pause, text};

/// The clock error that freshness allows for.
pub const EPSILON_MS: u64 = 2_000;

/// The version that the operation published. Panics if there is none.
pub fn done(operation: Operation) -> Version {
    match operation {
        Operation::Done(version) => version,
        Operation::Busy { .. } | Operation::Superseded | Operation::NotFound => panic!("{operation:?}"),
    }
}

impl World {
    /// Publishes a page with these contents, ten seconds apart.
    pub async fn publish(&self, sandbox: &Sandbox, path: &str, contents: &[&str]) -> Vec<Version> {
        let mut versions = Vec::new();
        for content in contents {
            self.origin.content(content);
            self.enqueue(path).await;
            sandbox.invoke().await;
            versions.push(text(&self.meta(path).await.unwrap(), "version").parse().unwrap());
            pause(10).await;
        }
        versions
    }

    /// The freshness of the page by its own rows, without invalidations of prefixes and tags.
    pub async fn freshness(&self, path: &str) -> Freshness {
        let state = self.ledger().lookup(&self.page(path)).await.unwrap();
        let policy = Policy { deploy: 1, max_stale_seconds: None, epsilon_ms: EPSILON_MS };
        freshness(state.meta.as_ref(), &state.health, &Invalidations::default(), &policy, self.now_ms())
    }
}

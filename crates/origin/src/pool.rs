//! Connections that are kept, each for one tenant and one origin.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::page_key::Tenant;

use crate::connection::Connection;

/// Shorter than the five seconds after which the most hasty servers close an idle connection: a request that meets the closing
/// connection on its way is a failed attempt.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// All origins together. A sandbox may have 1,024 files open, and each connection is two of them.
const MAX_CONNECTIONS: usize = 50;

/// For whom a connection is kept. An answer that strays cannot reach another tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolKey {
    pub(crate) tenant: Tenant,
    pub(crate) origin: HttpOrigin,
}

#[derive(Debug)]
struct Idle {
    key: PoolKey,
    connection: Connection,
    since: Instant,
}

impl Idle {
    fn is_alive(&self) -> bool {
        self.since.elapsed() < MAX_IDLE && self.connection.is_silent()
    }
}

/// Kept connections, the one that was used last at the end.
#[derive(Debug)]
pub(crate) struct Pool {
    quiet: Duration,
    idle: Mutex<Vec<Idle>>,
}

impl Pool {
    pub(crate) fn new(quiet: Duration) -> Self {
        Self { quiet, idle: Mutex::default() }
    }

    /// The connection that was used last, of those that have been quiet for long enough: it is the likeliest to stay open.
    pub(crate) fn take(&self, key: &PoolKey) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(Idle::is_alive);
        let at = idle.iter().rposition(|idle| idle.key == *key && idle.since.elapsed() >= self.quiet)?;
        Some(idle.remove(at).connection)
    }

    /// Keeps a connection whose exchange has ended.
    pub(crate) fn put(&self, key: PoolKey, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(Idle::is_alive);
        if idle.len() == MAX_CONNECTIONS {
            idle.remove(0);
        }
        idle.push(Idle { key, connection, since: Instant::now() });
    }
}

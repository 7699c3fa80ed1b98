//! Idle connections, each for one tenant and one origin.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everfresh_core::config::HttpOrigin;
use everfresh_core::domain::page_key::Tenant;

use crate::connection::Connection;
use crate::limits::Permit;

/// Shorter than the idle timeout of common servers, of which the shortest is five seconds: a
/// request that crosses the close of its connection is a failed attempt.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// Of all origins together. A Lambda sandbox may have 1,024 open files, and a connection needs two.
const MAX_CONNECTIONS: usize = 50;

/// Connections are never shared between tenants, so a stray response cannot reach another tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) tenant: Tenant,
    pub(crate) origin: HttpOrigin,
}

/// Where a connection goes after its exchange.
#[derive(Debug)]
pub(crate) struct PoolSlot {
    pub(crate) pool: Arc<Pool>,
    pub(crate) key: PoolKey,
    /// Held until the end of a fetch, and until the head of a pass.
    pub(crate) permit: Option<Permit>,
}

impl PoolSlot {
    /// Pools a connection whose exchange has ended, if the origin's connections are reused.
    pub(crate) fn put(self, connection: Connection) {
        if self.key.origin.keep_alive {
            self.pool.put(self.key, connection);
        }
        // Only now: the next request finds the connection.
        drop(self.permit);
    }
}

#[derive(Debug)]
struct Idle {
    key: PoolKey,
    connection: Connection,
    since: Instant,
}

impl Idle {
    fn is_reusable(&self) -> bool {
        self.since.elapsed() < MAX_IDLE && self.connection.is_reusable()
    }
}

/// Idle connections, the most recently used last.
#[derive(Debug)]
pub(crate) struct Pool {
    min_idle: Duration,
    idle: Mutex<Vec<Idle>>,
}

impl Pool {
    pub(crate) fn new(min_idle: Duration) -> Self {
        Self { min_idle, idle: Mutex::default() }
    }

    /// The most recently used connection of those that have been idle for long enough: it is the
    /// most likely to stay open.
    pub(crate) fn take(&self, key: &PoolKey) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(Idle::is_reusable);
        let at = idle.iter().rposition(|idle| idle.key == *key && idle.since.elapsed() >= self.min_idle)?;
        Some(idle.remove(at).connection)
    }

    fn put(&self, key: PoolKey, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(Idle::is_reusable);
        if idle.len() == MAX_CONNECTIONS {
            idle.remove(0);
        }
        idle.push(Idle { key, connection, since: Instant::now() });
    }
}

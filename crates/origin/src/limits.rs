//! What one tenant's requests to one origin share: how many run at a time, and a circuit breaker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use everfresh_core::render::RenderFailure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::breaker::CircuitBreaker;
use crate::error::OriginError;
use crate::pool::PoolKey;

/// Of more, those without a request are forgotten.
const MAX_ORIGINS: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Limits {
    origins: Mutex<HashMap<PoolKey, Arc<OriginLimits>>>,
}

#[derive(Debug)]
pub(crate) struct OriginLimits {
    permits: Arc<Semaphore>,
    pub(crate) breaker: CircuitBreaker,
}

impl Limits {
    pub(crate) fn of(&self, key: &PoolKey) -> Arc<OriginLimits> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limits) = origins.get(key) {
            return limits.clone();
        }
        if origins.len() >= MAX_ORIGINS {
            origins.retain(|_, limits| Arc::strong_count(limits) > 1);
        }
        let permits = Arc::new(Semaphore::new(key.origin.concurrency.get() as usize));
        let limits = Arc::new(OriginLimits { permits, breaker: CircuitBreaker::default() });
        origins.insert(key.clone(), limits.clone());
        limits
    }
}

impl OriginLimits {
    /// Waits until a request may be sent. While the breaker is open it fails at once.
    pub(crate) async fn enter(&self, key: &PoolKey) -> Result<OwnedSemaphorePermit, RenderFailure> {
        self.breaker.check(Instant::now()).map_err(|refused| OriginError::circuit(&key.origin, refused))?;
        // The semaphore is never closed.
        self.permits.clone().acquire_owned().await.map_err(|_closed| RenderFailure::TimedOut)
    }
}

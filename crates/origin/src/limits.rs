//! What one tenant's requests to one origin share: how many run at a time, and a circuit breaker.
//!
//! A pass gives its permit back with the head of the response: an event stream or a slow download
//! keeps no other visitor waiting. One path has a part of the permits, so that a page that hangs
//! leaves the rest to the others.

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

/// Of one origin. Of more, those without a request are forgotten.
const MAX_PATHS: usize = 1000;

/// The part of an origin's permits that passes of one path may hold, at least one.
const SHARE_OF_A_PATH: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Limits {
    origins: Mutex<HashMap<PoolKey, Arc<OriginLimits>>>,
}

#[derive(Debug)]
pub(crate) struct OriginLimits {
    permits: Arc<Semaphore>,
    paths: Mutex<HashMap<String, Arc<Semaphore>>>,
    pub(crate) breaker: CircuitBreaker,
}

/// One request's place among those that run at a time. Dropping it lets another one in.
#[derive(Debug)]
pub(crate) struct Permit {
    _origin: OwnedSemaphorePermit,
    _path: Option<OwnedSemaphorePermit>,
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
        let limits = Arc::new(OriginLimits { permits, paths: Mutex::default(), breaker: CircuitBreaker::default() });
        origins.insert(key.clone(), limits.clone());
        limits
    }
}

impl OriginLimits {
    /// Waits until a request may be sent, of a pass within the share of its `path`. While the
    /// breaker is open it fails at once.
    pub(crate) async fn enter(&self, key: &PoolKey, path: Option<&str>) -> Result<Permit, RenderFailure> {
        self.breaker.check(Instant::now()).map_err(|refused| OriginError::circuit(&key.origin, refused))?;
        // The path's first: a request that waits for it holds no permit of the origin.
        let of_path = match path {
            Some(path) => Some(acquire(self.share_of(path, key)).await?),
            None => None,
        };
        Ok(Permit { _origin: acquire(self.permits.clone()).await?, _path: of_path })
    }

    fn share_of(&self, path: &str, key: &PoolKey) -> Arc<Semaphore> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = paths.get(path) {
            return share.clone();
        }
        if paths.len() >= MAX_PATHS {
            paths.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = (key.origin.concurrency.get() as usize).div_ceil(SHARE_OF_A_PATH);
        let share = Arc::new(Semaphore::new(share));
        paths.insert(path.to_owned(), share.clone());
        share
    }
}

async fn acquire(permits: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, RenderFailure> {
    // The semaphores are never closed.
    permits.acquire_owned().await.map_err(|_closed| RenderFailure::TimedOut)
}

//! The invalidations that apply to a page, with a cache of the tenants' epochs: an epoch is read at
//! most once a second per sandbox, and the page's own watermarks only if the epoch is newer than
//! the page.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::{Ledger, LedgerError};
use crate::domain::freshness::{Policy, needs_watermarks};
use crate::domain::invalidations::Invalidations;
use crate::domain::page::Meta;
use crate::domain::page_key::{PageKey, Tenant};

const FRESH_MS: u64 = 1_000;

/// Local time of the read in milliseconds, and the epoch.
type Read = (u64, Option<u64>);

/// The tenants' epochs, as this sandbox last read them. Worker and serving function both use it, so
/// that they see the same invalidations.
#[derive(Debug, Default)]
pub struct Epochs {
    known: Mutex<HashMap<Tenant, Read>>,
}

impl Epochs {
    /// The watermarks of tags and prefixes that apply to the published version of a page.
    pub async fn invalidations(
        &self,
        ledger: &Ledger,
        page: &PageKey,
        meta: &Meta,
        policy: &Policy,
    ) -> Result<Invalidations, LedgerError> {
        let epoch_ms = self.of(ledger, page.tenant()).await?;
        if !needs_watermarks(meta, epoch_ms, policy, ledger.time().now_ms()) {
            return Ok(Invalidations { epoch_ms, ..Invalidations::default() });
        }
        ledger.invalidations(page, &meta.tags, epoch_ms).await
    }

    /// The tenant's epoch, at most a second old.
    async fn of(&self, ledger: &Ledger, tenant: &Tenant) -> Result<Option<u64>, LedgerError> {
        let now_ms = ledger.time().local_now_ms();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).copied();
        match known {
            // A clock that jumped back must not keep it for ever.
            Some((read_ms, epoch_ms)) if now_ms.abs_diff(read_ms) < FRESH_MS => Ok(epoch_ms),
            Some(_) | None => {
                let epoch_ms = ledger.epoch(tenant).await?;
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(tenant.clone(), (now_ms, epoch_ms));
                Ok(epoch_ms)
            }
        }
    }
}

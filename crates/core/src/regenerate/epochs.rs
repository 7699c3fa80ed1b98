//! The tenants' epochs, read at most once a second per sandbox.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::domain::page_key::Tenant;
use crate::ledger::{Ledger, LedgerError};

const FRESH_MS: u64 = 1_000;

/// When it was read, and what it was.
type Read = (u64, Option<u64>);

#[derive(Debug, Default)]
pub(super) struct Epochs {
    known: Mutex<HashMap<Tenant, Read>>,
}

impl Epochs {
    /// The tenant's epoch, at most a second old.
    pub(super) async fn of(&self, ledger: &Ledger, tenant: &Tenant) -> Result<Option<u64>, LedgerError> {
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

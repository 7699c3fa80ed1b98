//! What operators switch for a whole deployment or tenant: the pause. And how far a sweep has come.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::Ledger;
use super::errors::{LedgerError, failed};
use super::expressions::{PK, SK, name};
use super::rows::{n, s};
use crate::domain::keys::{CONTROL, PAUSE, pause_sk, sweep_sk};
use crate::domain::page_key::Tenant;

/// Since when regeneration is paused, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Of all tenants.
    pub all: Option<u64>,
    pub tenants: BTreeMap<Tenant, u64>,
}

impl Pauses {
    /// Since when this tenant is paused, by itself or with all others.
    pub fn of(&self, tenant: &Tenant) -> Option<u64> {
        let own = self.tenants.get(tenant).copied();
        self.all.into_iter().chain(own).min()
    }
}

impl Ledger {
    /// Pauses regeneration of one tenant, or of all: requests wait, and readers get what is
    /// published.
    pub async fn pause(&self, tenant: Option<&Tenant>) -> Result<(), LedgerError> {
        let put = self.dynamodb.put_item().table_name(&self.table).item(PK, s(CONTROL)).item(SK, s(sk(tenant)));
        let put = put.item(name::PAUSED_AT_MS, n(self.now_ms())).send().await;
        put.map(drop).map_err(|error| failed("writing the pause in CONTROL", error))
    }

    /// Ends that pause. One of all tenants does not end with one tenant's, nor the other way round.
    pub async fn resume(&self, tenant: Option<&Tenant>) -> Result<(), LedgerError> {
        let delete = self.dynamodb.delete_item().table_name(&self.table).key(PK, s(CONTROL)).key(SK, s(sk(tenant)));
        delete.send().await.map(drop).map_err(|error| failed("deleting the pause in CONTROL", error))
    }

    /// Every pause.
    pub async fn pauses(&self) -> Result<Pauses, LedgerError> {
        let mut pauses = Pauses::default();
        let mut after = None;
        loop {
            let (items, next) = self.rows_of("reading the pauses in CONTROL", CONTROL, PAUSE, true, after).await?;
            for item in items {
                let at_ms =
                    item.get(name::PAUSED_AT_MS).and_then(|at| at.as_n().ok()?.parse().ok()).unwrap_or_default();
                let Some(sk) = item.get(SK).and_then(|sk| sk.as_s().ok()) else { continue };
                match sk.strip_prefix(PAUSE).map(|rest| rest.strip_prefix('#')) {
                    Some(Some(tenant)) => {
                        if let Ok(tenant) = Tenant::parse(tenant) {
                            pauses.tenants.insert(tenant, at_ms);
                        }
                    }
                    Some(None) => pauses.all = Some(at_ms),
                    None => {}
                }
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(pauses),
            }
        }
    }

    /// The object key after which a sweep of the tenant continues.
    pub async fn sweep_cursor(&self, tenant: &Tenant) -> Result<Option<String>, LedgerError> {
        let item = self.item("reading the sweep's cursor in CONTROL", CONTROL, &sweep_sk(tenant)).await?;
        Ok(item.and_then(|item| item.get(name::CURSOR)?.as_s().ok().cloned()))
    }

    /// Remembers it; none after the last object.
    pub async fn set_sweep_cursor(&self, tenant: &Tenant, cursor: Option<&str>) -> Result<(), LedgerError> {
        let (doing, sk) = ("writing the sweep's cursor in CONTROL", sweep_sk(tenant));
        let table = &self.table;
        match cursor {
            Some(cursor) => {
                let put = self.dynamodb.put_item().table_name(table).item(PK, s(CONTROL)).item(SK, s(sk));
                put.item(name::CURSOR, s(cursor)).send().await.map(drop).map_err(|error| failed(doing, error))
            }
            None => {
                let delete = self.dynamodb.delete_item().table_name(table).key(PK, s(CONTROL)).key(SK, s(sk));
                delete.send().await.map(drop).map_err(|error| failed(doing, error))
            }
        }
    }
}

fn sk(tenant: Option<&Tenant>) -> String {
    tenant.map_or_else(|| PAUSE.to_owned(), pause_sk)
}

/// How old a sandbox's knowledge of the pauses may be. A pause takes effect within this time.
pub const PAUSE_DELAY_MS: u64 = 10_000;

/// The pauses, as this sandbox last read them.
#[derive(Debug, Default)]
pub(crate) struct KnownPauses {
    known: Mutex<Option<(u64, Pauses)>>,
}

impl KnownPauses {
    /// Since when the tenant is paused. One read per sandbox and [`PAUSE_DELAY_MS`].
    pub(crate) async fn of(&self, ledger: &Ledger, tenant: &Tenant) -> Result<Option<u64>, LedgerError> {
        let now_ms = ledger.time().local_now_ms();
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            // A clock that jumped back must not keep it for ever.
            if let Some((_, pauses)) = known.as_ref().filter(|(read_ms, _)| now_ms.abs_diff(*read_ms) < PAUSE_DELAY_MS)
            {
                return Ok(pauses.of(tenant));
            }
        }
        let pauses = ledger.pauses().await?;
        let paused_since = pauses.of(tenant);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((now_ms, pauses));
        Ok(paused_since)
    }
}

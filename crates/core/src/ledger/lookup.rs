//! lookup: everything about a page in one read, consistent for the worker.

use super::errors::{LedgerError, failed, in_row};
use super::expressions::{LOOKUP, PK, SK};
use super::meta_condition::UnreadableMeta;
use super::rows::{self, Item, RowError, s};
use super::{Claim, Ledger};
use crate::domain::health::Health;
use crate::domain::keys::{HEALTH, LOCK, META, req_sk};
use crate::domain::page::{LockRow, Meta, ReqRow};
use crate::domain::page_key::{MAX_SORT_KEY_BYTES, PageHash, PageKey, Tenant};
use crate::domain::request::{Handle, IdempotencyKey};

/// For errors: the rows that a lookup reads.
const READING_PAGE: &str = "reading HEALTH, LOCK and META";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageState {
    pub meta: Option<Meta>,
    /// In place of `meta`, a foreign row that cannot be read.
    pub unreadable: Option<UnreadableMeta>,
    /// The lease, held or expired.
    pub lock: Option<LockRow>,
    pub health: Health,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Worker,
    /// To a reader the lease only means that a render is under way, so one that cannot be parsed
    /// counts as none.
    Reader,
}

impl Ledger {
    /// Reads HEALTH, LOCK and META of the page, consistently.
    pub async fn lookup(&self, page: &PageKey) -> Result<PageState, LedgerError> {
        self.read_page(self.pk(page), For::Worker, true).await
    }

    /// As [`Ledger::lookup`], for a page known by the hash of a handle only. None in a table with raw
    /// keys.
    pub async fn lookup_by_hash(&self, tenant: &Tenant, hash: PageHash) -> Result<Option<PageState>, LedgerError> {
        match hash.pk(tenant, self.layout) {
            Some(pk) => self.read_page(pk, For::Reader, true).await.map(Some),
            None => Ok(None),
        }
    }

    /// As [`Ledger::lookup`], eventually consistent and at half the price: a reader may get a
    /// version that was published a moment ago either way. A lease that cannot be parsed counts as
    /// none.
    pub async fn lookup_for_reader(&self, page: &PageKey) -> Result<PageState, LedgerError> {
        self.read_page(self.pk(page), For::Reader, false).await
    }

    /// As [`Ledger::lookup_for_reader`], consistent: for a reader that waits for the next version.
    pub async fn lookup_for_waiting_reader(&self, page: &PageKey) -> Result<PageState, LedgerError> {
        self.read_page(self.pk(page), For::Reader, true).await
    }

    async fn read_page(&self, pk: String, purpose: For, consistent: bool) -> Result<PageState, LedgerError> {
        let doing = READING_PAGE;
        let query = self
            .dynamodb
            .query()
            .table_name(&self.table)
            .consistent_read(consistent)
            .key_condition_expression(LOOKUP)
            .expression_attribute_values(":pk", s(&pk))
            .expression_attribute_values(":health", s(HEALTH))
            .expression_attribute_values(":meta", s(META));
        let found = query.send().await.map_err(|error| failed(doing, error))?;
        let items = match found.last_evaluated_key {
            None => found.items.unwrap_or_default(),
            Some(_) => self.page_rows(&pk).await?,
        };
        let mut state = PageState::default();
        for item in &items {
            let read = match item.get(SK).and_then(|sk| sk.as_s().ok()).map(String::as_str) {
                Some(META) => self.read_meta(&pk, item, purpose, &mut state).await?,
                Some(LOCK) => match (rows::lock(item), purpose) {
                    (Err(_), For::Reader) => Ok(()),
                    (lock, For::Worker | For::Reader) => lock.map(|lock| state.lock = Some(lock)),
                },
                Some(HEALTH) => rows::health(item).map(|health| state.health = health),
                // A foreign row that sorts between ours.
                Some(_) | None => Ok(()),
            };
            read.map_err(in_row(doing))?;
        }
        Ok(state)
    }

    /// The page's rows by their keys. More than a megabyte of foreign rows between them ends a
    /// query before META.
    async fn page_rows(&self, pk: &str) -> Result<Vec<Item>, LedgerError> {
        let mut items = Vec::new();
        // META last, as in the query: HEALTH and LOCK are never newer than META.
        for sk in [HEALTH, LOCK, META] {
            items.extend(self.item(READING_PAGE, pk, sk).await?);
        }
        Ok(items)
    }

    async fn read_meta(
        &self,
        pk: &str,
        item: &Item,
        purpose: For,
        state: &mut PageState,
    ) -> Result<Result<(), RowError>, LedgerError> {
        let read = match rows::points_at(item) {
            None => rows::meta(item),
            Some(sk) => {
                // A text that cannot be a sort key names no row, and DynamoDB would refuse to read
                // it.
                let pointed = match sk.len() {
                    1..=MAX_SORT_KEY_BYTES => self.item(READING_PAGE, pk, sk).await?,
                    _ => None,
                };
                rows::pointed_meta(item, pointed.as_ref())
            }
        };
        Ok(match read {
            Ok(Meta { version: Some(version), .. }) if version.is_last() && purpose == For::Worker => {
                Err(RowError::LastVersion { version, row: META.to_owned() })
            }
            Ok(meta) => {
                state.meta = Some(meta);
                Ok(())
            }
            Err(error) => {
                state.unreadable = UnreadableMeta::of(item, &error);
                if state.unreadable.is_some() { Ok(()) } else { Err(error) }
            }
        })
    }

    /// Reads the record of one request, consistently.
    pub async fn request(&self, page: &PageKey, key: &IdempotencyKey) -> Result<Option<ReqRow>, LedgerError> {
        self.record(&self.pk(page), &req_sk(key)).await
    }

    /// Reads the record that a public handle names, consistently. None in a table with raw keys.
    pub async fn request_by_handle(&self, tenant: &Tenant, handle: &Handle) -> Result<Option<ReqRow>, LedgerError> {
        let (pk, key) = match handle {
            Handle::Page { page, key } => (page.pk(tenant, self.layout), key),
            Handle::Inval { key } => (Some(tenant.inval_pk()), key),
        };
        match pk {
            Some(pk) => self.record(&pk, &req_sk(key)).await,
            None => Ok(None),
        }
    }

    /// Reads the claim's record, consistently: after a lost response it decides.
    pub(super) async fn claimed(&self, claim: &Claim) -> Result<Option<ReqRow>, LedgerError> {
        self.record(&claim.pk, &claim.sk).await
    }

    pub(super) async fn record(&self, pk: &str, sk: &str) -> Result<Option<ReqRow>, LedgerError> {
        let doing = "reading REQ";
        let item = self.item(doing, pk, sk).await?;
        item.map(|item| rows::req(&item)).transpose().map_err(in_row(doing))
    }

    pub(super) async fn item(
        &self,
        doing: &'static str,
        pk: &str,
        sk: &str,
    ) -> Result<Option<rows::Item>, LedgerError> {
        let get = self.dynamodb.get_item().table_name(&self.table).consistent_read(true);
        let found = get.key(PK, s(pk)).key(SK, s(sk)).send().await.map_err(|error| failed(doing, error))?;
        Ok(found.item)
    }
}

//! lookup: everything about a page in one read, consistent for whoever decides by it.

use super::errors::{LedgerError, failed};
use super::expressions::{LOOKUP, PK, SK};
use super::rows::{self, Item, RowError, s};
use super::seen::UnreadableMeta;
use super::{Claim, Ledger};
use crate::domain::health::Health;
use crate::domain::keys::{HEALTH, LOCK, META, req_sk};
use crate::domain::page::{LockRow, Meta, ReqRow};
use crate::domain::page_key::{MAX_SORT_KEY_BYTES, PageKey, Tenant};
use crate::domain::request::{Handle, IdempotencyKey};

/// A page's rows at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageState {
    /// The published version, if there is one.
    pub meta: Option<Meta>,
    /// In its place, a foreign row that cannot be read.
    pub unreadable: Option<UnreadableMeta>,
    /// The lease, held or run out.
    pub lock: Option<LockRow>,
    /// Failures, pin and watermark.
    pub health: Health,
}

/// Whom a page is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// Who renders and publishes, by what the lease says.
    Worker,
    /// Who only shows it. The lease tells a reader that somebody is at it, nothing more: one that cannot be read is none.
    Reader,
}

impl Ledger {
    /// Reads HEALTH, LOCK and META of the page, consistently.
    pub async fn lookup(&self, page: &PageKey) -> Result<PageState, LedgerError> {
        self.read_page(page, For::Worker, true).await
    }

    /// The same for half the price and perhaps a moment old: for readers, who get what was published a moment ago either way. A
    /// lease that cannot be read counts as none.
    pub async fn lookup_for_reader(&self, page: &PageKey) -> Result<PageState, LedgerError> {
        self.read_page(page, For::Reader, false).await
    }

    /// The same, consistently: for a reader who waits for what is being published.
    pub async fn lookup_for_waiting_reader(&self, page: &PageKey) -> Result<PageState, LedgerError> {
        self.read_page(page, For::Reader, true).await
    }

    async fn read_page(&self, page: &PageKey, whom: For, consistent: bool) -> Result<PageState, LedgerError> {
        let doing = "lookup";
        let pk = self.pk(page);
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
                Some(META) => self.read_meta(&pk, item, whom, &mut state).await?,
                Some(LOCK) => match (rows::lock(item), whom) {
                    (Err(_), For::Reader) => Ok(()),
                    (lock, For::Worker | For::Reader) => lock.map(|lock| state.lock = Some(lock)),
                },
                Some(HEALTH) => rows::health(item).map(|health| state.health = health),
                // A row of somebody else's that sorts between ours.
                Some(_) | None => Ok(()),
            };
            read.map_err(in_row(doing))?;
        }
        Ok(state)
    }

    /// The page's rows by their keys. More than a megabyte of foreign rows between them ends a query before META.
    async fn page_rows(&self, pk: &str) -> Result<Vec<Item>, LedgerError> {
        let mut items = Vec::new();
        // META last, as in the query: what HEALTH and LOCK say is never newer than what is published.
        for sk in [HEALTH, LOCK, META] {
            items.extend(self.item("lookup", pk, sk).await?);
        }
        Ok(items)
    }

    async fn read_meta(
        &self,
        pk: &str,
        item: &Item,
        whom: For,
        state: &mut PageState,
    ) -> Result<Result<(), RowError>, LedgerError> {
        let read = match rows::points_at(item) {
            None => rows::meta(item),
            Some(sk) => {
                // What cannot be a sort key is the name of no row, and the table would refuse to look.
                let pointed = match sk.len() {
                    1..=MAX_SORT_KEY_BYTES => self.item("lookup", pk, sk).await?,
                    _ => None,
                };
                rows::pointed_meta(item, pointed.as_ref())
            }
        };
        Ok(match read {
            Ok(Meta { version: Some(version), .. }) if version.is_last() && whom == For::Worker => {
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

    /// Reads the record that a public handle names, consistently. None also where the table's keys are not hashes.
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

    /// Reads what became of a claim, consistently: after a lost answer, this is the truth.
    pub(super) async fn claimed(&self, claim: &Claim) -> Result<Option<ReqRow>, LedgerError> {
        self.record(&claim.pk, &claim.sk).await
    }

    pub(super) async fn record(&self, pk: &str, sk: &str) -> Result<Option<ReqRow>, LedgerError> {
        let item = self.item("reading a record", pk, sk).await?;
        item.map(|item| rows::req(&item)).transpose().map_err(in_row("reading a record"))
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

pub(super) fn in_row(doing: &'static str) -> impl Fn(RowError) -> LedgerError {
    move |source| LedgerError::Row { doing, source }
}

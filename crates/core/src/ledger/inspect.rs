//! What operators read: a tenant's pages, and a page's versions and requests.
//!
//! Each read is one page of a query, so that any number of rows passes through a bounded amount of
//! memory.

use aws_sdk_dynamodb::operation::query::QueryOutput;

use super::Ledger;
use super::errors::{LedgerError, failed};
use super::expressions::{BEGINS_WITH, IN_PARTITION, LISTED, LISTED_AFTER, LISTED_BELOW, LISTING, PK, SK, name};
use super::rows::{self, Item, s};
use crate::domain::keys::{REQUEST, VERSION};
use crate::domain::page::{ReqRow, VersionRow};
use crate::domain::page_key::{CanonicalPath, PageKey, Tenant};
use crate::domain::request::IdempotencyKey;

/// Where a listing continues. Opaque, and valid for the same listing only.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor(Item);

/// Some rows, and where the rest begins.
#[derive(Clone, Debug)]
pub struct Batch<T> {
    pub rows: Vec<T>,
    pub next: Option<Cursor>,
}

/// Pages of one read where the caller does not say.
const AT_ONCE: i32 = 500;

const LISTING_PAGES: &str = "listing pages by the index `listing`";
const LISTING_VERSIONS: &str = "listing kept versions";
const LISTING_REQUESTS: &str = "listing the records of requests";

impl Ledger {
    /// The tenant's pages whose path begins with `prefix`, in the order of their paths; at most
    /// `limit` of them. A foreign row has neither tenant nor path, so it is not listed until
    /// Everfresh has published the page once.
    pub async fn list_pages(
        &self,
        tenant: &Tenant,
        prefix: &str,
        after: Option<Cursor>,
        limit: i32,
    ) -> Result<Batch<PageKey>, LedgerError> {
        let query = self
            .dynamodb
            .query()
            .table_name(&self.table)
            .index_name(LISTING)
            .key_condition_expression(if prefix.is_empty() { LISTED } else { LISTED_BELOW })
            .expression_attribute_names("#tenant", name::TENANT)
            .expression_attribute_values(":tenant", s(tenant.as_str()))
            .set_exclusive_start_key(after.map(|cursor| cursor.0))
            .limit(limit);
        let query = match prefix {
            "" => query,
            _ => query.expression_attribute_names("#path", name::PATH).expression_attribute_values(":path", s(prefix)),
        };
        let found = query.send().await.map_err(|error| failed(LISTING_PAGES, error))?;
        Ok(listed(tenant, found))
    }

    /// As [`Ledger::list_pages`], from the path after `path` on.
    pub async fn list_pages_after(&self, tenant: &Tenant, path: Option<&str>) -> Result<Batch<PageKey>, LedgerError> {
        let query = self
            .dynamodb
            .query()
            .table_name(&self.table)
            .index_name(LISTING)
            .key_condition_expression(LISTED_AFTER)
            .expression_attribute_names("#tenant", name::TENANT)
            .expression_attribute_names("#path", name::PATH)
            .expression_attribute_values(":tenant", s(tenant.as_str()))
            // Every path begins with a slash.
            .expression_attribute_values(":path", s(path.unwrap_or(".")))
            .limit(AT_ONCE);
        let found = query.send().await.map_err(|error| failed(LISTING_PAGES, error))?;
        Ok(listed(tenant, found))
    }

    /// The page's kept versions, the newest first. Foreign version rows are left out.
    pub async fn versions(&self, page: &PageKey, after: Option<Cursor>) -> Result<Batch<VersionRow>, LedgerError> {
        let (items, next) = self.rows_of(LISTING_VERSIONS, &self.pk(page), VERSION, false, after).await?;
        Ok(Batch { rows: items.iter().filter_map(|item| rows::version(item).ok()).collect(), next })
    }

    /// The records of the page's requests, in the order of their keys.
    pub async fn requests(
        &self,
        page: &PageKey,
        after: Option<Cursor>,
    ) -> Result<Batch<(IdempotencyKey, ReqRow)>, LedgerError> {
        let (items, next) = self.rows_of(LISTING_REQUESTS, &self.pk(page), REQUEST, true, after).await?;
        let read = |item: &Item| {
            let key = item.get(SK)?.as_s().ok()?.strip_prefix(REQUEST)?;
            Some((IdempotencyKey::parse(key).ok()?, rows::req(item).ok()?))
        };
        Ok(Batch { rows: items.iter().filter_map(read).collect(), next })
    }

    /// Rows of a partition whose sort key begins with `prefix`, all for an empty one, consistently.
    pub(super) async fn rows_of(
        &self,
        doing: &'static str,
        pk: &str,
        prefix: &str,
        ascending: bool,
        after: Option<Cursor>,
    ) -> Result<(Vec<Item>, Option<Cursor>), LedgerError> {
        let query = self
            .dynamodb
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .key_condition_expression(if prefix.is_empty() { IN_PARTITION } else { BEGINS_WITH })
            .expression_attribute_values(":pk", s(pk))
            .scan_index_forward(ascending)
            .set_exclusive_start_key(after.map(|cursor| cursor.0));
        // DynamoDB takes no empty sort key.
        let query = match prefix {
            "" => query,
            _ => query.expression_attribute_values(":prefix", s(prefix)),
        };
        let found = query.send().await.map_err(|error| failed(doing, error))?;
        debug_assert!(found.items().iter().all(|item| item.contains_key(PK)));
        Ok((found.items.unwrap_or_default(), found.last_evaluated_key.map(Cursor)))
    }
}

fn listed(tenant: &Tenant, found: QueryOutput) -> Batch<PageKey> {
    let path = |item: &Item| CanonicalPath::stored(item.get(name::PATH)?.as_s().ok()?);
    let pages = found.items.unwrap_or_default();
    let rows = pages.iter().filter_map(path).map(|path| PageKey::new(tenant.clone(), path)).collect();
    Batch { rows, next: found.last_evaluated_key.map(Cursor) }
}

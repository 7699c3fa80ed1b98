//! sweep: removes rows that a page no longer needs, under the page's lease.
//!
//! A page is addressed by its partition here: an orphaned object names its page by the hash, and
//! that page may have no row which knows its path.

use aws_sdk_dynamodb::types::{ConditionCheck, TransactWriteItem};

use super::Ledger;
use super::acquire::Taken;
use super::errors::{LedgerError, in_row};
use super::expressions::{LEASE_HELD, META_IS_EXPIRED, NOT_PINNED, PK, SK, name};
use super::inspect::Cursor;
use super::rows::{self, Item, n, s};
use super::transaction::{Transaction, delete_operation};
use crate::aws_error::AwsError;
use crate::domain::health::Health;
use crate::domain::keys::{HEALTH, LOCK, META, REQUEST};
use crate::domain::lease::{LeaseToken, TTL_BUFFER_S};
use crate::domain::page::{LockRow, Meta, VersionRow};
use crate::domain::page_key::CanonicalPath;
use crate::domain::seconds;
use crate::domain::version::Version;
use crate::random;

/// The lease of a partition. Held by maintenance; to a worker it is a lease like any other.
#[derive(Debug)]
pub struct PartitionLease {
    pk: String,
    row: LockRow,
}

impl PartitionLease {
    /// Whether it is held for at least `ms` more.
    pub fn lasts_ms(&self, now_ms: u64, ms: u64) -> bool {
        seconds::to_ms(self.row.lease_expires_at) > now_ms.saturating_add(ms)
    }
}

/// Every row of a page but LOCK and the records of requests.
#[derive(Clone, Debug, Default)]
pub struct PageRows {
    pub meta: Option<Meta>,
    /// META is there and cannot be read: the page is left alone.
    pub unreadable: bool,
    /// From META: maintenance knows only the hash.
    pub path: Option<CanonicalPath>,
    pub health: Health,
    pub versions: Vec<VersionRow>,
    /// `s3_key` of every other row.
    pub foreign_keys: Vec<String>,
}

/// DynamoDB takes a hundred operations in a transaction; one is the check of the lease.
const ROWS_AT_ONCE: usize = 90;

impl Ledger {
    /// Reads every row of the partition, consistently.
    pub async fn page_rows_of(&self, pk: &str) -> Result<PageRows, LedgerError> {
        let doing = "reading a page's rows";
        let mut read = PageRows::default();
        let mut after: Option<Cursor> = None;
        loop {
            let (items, next) = self.rows_of(doing, pk, "", true, after).await?;
            for item in &items {
                read.add(item);
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(read),
            }
        }
    }

    /// Takes the lease of a partition. None while a worker or an operator holds it.
    pub async fn acquire_partition(&self, pk: &str, length_ms: u64) -> Result<Option<PartitionLease>, LedgerError> {
        let now_ms = self.now_ms();
        let lease_expires_at = seconds::ceil(now_ms.saturating_add(length_ms));
        let row = LockRow {
            lease_token: LeaseToken::new(random::token()).as_str().to_owned(),
            lease_expires_at,
            ttl: Some(lease_expires_at.saturating_add(TTL_BUFFER_S)),
        };
        Ok(match self.take_lock(pk, &row, now_ms).await? {
            Taken::Mine => Some(PartitionLease { pk: pk.to_owned(), row }),
            Taken::Held { .. } => None,
        })
    }

    pub async fn release_partition(&self, lease: PartitionLease) -> Result<(), LedgerError> {
        self.delete_lock(&lease.pk, &lease.row.lease_token).await.map(drop)
    }

    /// Deletes META and HEALTH of a page that has expired, on condition that META is still this
    /// version, that nothing of it is pending, and that the page was not pinned. Rows of kept
    /// versions go with them, as many as one transaction takes: with raw keys no sweep would find
    /// them without META. Returns how many of those rows were deleted; none if META was not.
    pub async fn expire_page(
        &self,
        lease: &PartitionLease,
        version: &Version,
        kept: &[Version],
    ) -> Result<Option<usize>, LedgerError> {
        let meta = self
            .delete(&lease.pk, META, META_IS_EXPIRED)
            .expression_attribute_names("#version", name::VERSION)
            .expression_attribute_values(":version", s(version.to_string()));
        let health = self.delete(&lease.pk, HEALTH, NOT_PINNED);
        let mut operations = vec![self.still_leased(lease)?, delete_operation(meta)?, delete_operation(health)?];
        let with_it = &kept[..kept.len().min(ROWS_AT_ONCE)];
        for version in with_it {
            operations.push(self.delete_version(lease, version)?);
        }
        let done = self.transact_if("deleting META and HEALTH of an expired page", operations).await?;
        Ok(matches!(done, Transaction::Applied).then_some(with_it.len()))
    }

    /// Deletes rows of kept versions. Returns false if the lease was lost in between.
    pub async fn delete_versions(&self, lease: &PartitionLease, versions: &[Version]) -> Result<bool, LedgerError> {
        for some in versions.chunks(ROWS_AT_ONCE) {
            let mut operations = vec![self.still_leased(lease)?];
            for version in some {
                operations.push(self.delete_version(lease, version)?);
            }
            let done = self.transact_if("deleting kept versions", operations).await?;
            if matches!(done, Transaction::ConditionsFailed(_)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn delete_version(&self, lease: &PartitionLease, version: &Version) -> Result<TransactWriteItem, LedgerError> {
        let delete = aws_sdk_dynamodb::types::Delete::builder()
            .table_name(&self.table)
            .key(PK, s(&lease.pk))
            .key(SK, s(version.sk()));
        delete_operation(delete)
    }

    fn still_leased(&self, lease: &PartitionLease) -> Result<TransactWriteItem, LedgerError> {
        let check = ConditionCheck::builder()
            .table_name(&self.table)
            .key(PK, s(&lease.pk))
            .key(SK, s(LOCK))
            .condition_expression(LEASE_HELD)
            .expression_attribute_values(":token", s(&lease.row.lease_token))
            .expression_attribute_values(":now", n(seconds::floor(self.now_ms())))
            .build()
            .map_err(|error| LedgerError::Refused { doing: "building a transaction", source: AwsError::new(error) })?;
        Ok(TransactWriteItem::builder().condition_check(check).build())
    }
}

impl PageRows {
    fn add(&mut self, item: &Item) {
        let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
        let sk = text(SK).map(String::as_str).unwrap_or_default();
        let foreign_key = text(name::S3_KEY).cloned();
        match sk {
            META => {
                self.path = text(name::PATH).and_then(|path| CanonicalPath::stored(path));
                match rows::meta(item) {
                    // A pointer's body is the foreign version row's, which is read as such.
                    Ok(meta) => self.meta = Some(Meta { pointer: rows::points_at(item).is_some(), ..meta }),
                    Err(_) => self.unreadable = true,
                }
            }
            HEALTH => match rows::health(item).map_err(in_row("reading HEALTH")) {
                Ok(health) => self.health = health,
                Err(_) => self.unreadable = true,
            },
            LOCK => {}
            _ if sk.starts_with(REQUEST) => {}
            _ if Version::of_sk(sk).is_some() => match rows::version(item) {
                Ok(row) => self.versions.push(row),
                // Of a newer Everfresh: kept, and what it points at too.
                Err(_) => self.foreign_keys.extend(foreign_key),
            },
            _ => self.foreign_keys.extend(foreign_key),
        }
    }
}

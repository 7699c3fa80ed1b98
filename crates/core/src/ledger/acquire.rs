//! acquire, renew, release: the expiring, exclusive right to publish a page's next version.

use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;

use super::Ledger;
use super::conditional::Write;
use super::errors::{LedgerError, in_row};
use super::expressions::{LEASE_FREE, LEASE_MINE, PK, PROLONG, SK, name};
use super::rows::{self, n, s};
use crate::branches::{Branch, reached};
use crate::domain::keys::LOCK;
use crate::domain::lease::{Lease, LeaseToken};
use crate::domain::page::LockRow;
use crate::domain::page_key::PageKey;
use crate::domain::seconds;
use crate::random;

#[derive(Debug)]
pub enum Acquire {
    Granted(Lease),
    /// Another worker holds it until `until_ms`, unless it renews.
    Held {
        until_ms: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    Renewed,
    /// The lease was taken over or deleted.
    Lost,
}

/// What became of a write of LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Mine,
    Held { until_ms: u64 },
}

impl Ledger {
    /// Takes the page's lease for `length_ms`, if it is free. Idempotent: if the response to the
    /// first write is lost, the row is recognised by its token.
    pub async fn acquire(&self, page: &PageKey, length_ms: u64) -> Result<Acquire, LedgerError> {
        let now_ms = self.now_ms();
        let lease = Lease::new(page.clone(), LeaseToken::new(random::token()), now_ms, length_ms);
        Ok(match self.take_lock(&self.pk(page), &lease.row(), now_ms).await? {
            Taken::Mine => Acquire::Granted(lease),
            Taken::Held { until_ms } => Acquire::Held { until_ms },
        })
    }

    /// Writes the row if there is none, or one that has expired.
    pub(super) async fn take_lock(&self, pk: &str, row: &LockRow, now_ms: u64) -> Result<Taken, LedgerError> {
        let doing = "acquiring the lease in LOCK";
        let put = self
            .dynamodb
            .put_item()
            .table_name(&self.table)
            .item(PK, s(pk))
            .item(SK, s(LOCK))
            .item(name::LEASE_TOKEN, s(&row.lease_token))
            .item(name::LEASE_EXPIRES_AT, n(row.lease_expires_at))
            .item(name::TTL, n(row.ttl.unwrap_or(row.lease_expires_at)))
            .condition_expression(LEASE_FREE)
            .expression_attribute_values(":now", n(seconds::floor(now_ms)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match Write::of(doing, put.send().await) {
            Ok(Write::Applied) => Ok(Taken::Mine),
            Ok(Write::ConditionFailed(item)) => {
                let held = item.as_ref().map(rows::lock).transpose().map_err(in_row(doing))?;
                let mine = held.as_ref().is_some_and(|held| held.lease_token == row.lease_token);
                reached(if mine { Branch::LeaseRecognised } else { Branch::LeaseHeld });
                match held {
                    Some(_) if mine => Ok(Taken::Mine),
                    Some(held) => Ok(Taken::Held { until_ms: seconds::to_ms(held.lease_expires_at) }),
                    // Deleted between write and response: the next delivery finds it free.
                    None => Ok(Taken::Held { until_ms: now_ms }),
                }
            }
            // Another worker's commit is deleting the row at this moment.
            Ok(Write::Conflict(_)) => {
                reached(Branch::LeaseConflict);
                Ok(Taken::Held { until_ms: now_ms })
            }
            // None of the SDK's attempts was answered. The write may have been applied all the
            // same.
            Err(error) => match self.lock_row(pk).await {
                Ok(Some(held)) if held.lease_token == row.lease_token => {
                    reached(Branch::LeaseUnknownThenMine);
                    Ok(Taken::Mine)
                }
                Ok(_) => {
                    reached(Branch::LeaseUnknownThenNot);
                    Err(error)
                }
                Err(unread) => {
                    reached(Branch::LeaseUnknownUnread);
                    Err(unread)
                }
            },
        }
    }

    async fn lock_row(&self, pk: &str) -> Result<Option<LockRow>, LedgerError> {
        let doing = "reading the lease in LOCK";
        let item = self.item(doing, pk, LOCK).await?;
        item.map(|item| rows::lock(&item)).transpose().map_err(in_row(doing))
    }

    /// Prolongs the lease, expired or not, as long as its row still has our token.
    pub async fn renew(&self, lease: &mut Lease, length_ms: u64) -> Result<Renewal, LedgerError> {
        lease.renew(self.now_ms(), length_ms);
        let row = lease.row();
        let update = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .key(PK, s(self.pk(lease.page())))
            .key(SK, s(LOCK))
            .update_expression(PROLONG)
            .condition_expression(LEASE_MINE)
            .expression_attribute_names("#ttl", name::TTL)
            .expression_attribute_values(":token", s(&row.lease_token))
            .expression_attribute_values(":until", n(row.lease_expires_at))
            .expression_attribute_values(":ttl", n(row.ttl.unwrap_or(row.lease_expires_at)));
        let renewed = Write::of("renewing the lease in LOCK", update.send().await)?.applied()?;
        Ok(if renewed { Renewal::Renewed } else { Renewal::Lost })
    }

    /// Deletes the lease, unless another worker has taken it over.
    pub async fn release(&self, lease: Lease) -> Result<(), LedgerError> {
        self.delete_lock(&self.pk(lease.page()), lease.token().as_str()).await.map(drop)
    }

    /// Ends the lease that an operator has seen in a page's state, even while a worker holds it.
    /// That worker publishes nothing more: its commit is refused, and its request retried. Returns
    /// false if that lease is gone.
    pub async fn end_lease(&self, page: &PageKey, seen: &LockRow) -> Result<bool, LedgerError> {
        self.delete_lock(&self.pk(page), &seen.lease_token).await
    }

    /// Deletes LOCK if it has this token. Returns whether it had.
    pub(super) async fn delete_lock(&self, pk: &str, token: &str) -> Result<bool, LedgerError> {
        let delete = self
            .dynamodb
            .delete_item()
            .table_name(&self.table)
            .key(PK, s(pk))
            .key(SK, s(LOCK))
            .condition_expression(LEASE_MINE)
            .expression_attribute_values(":token", s(token));
        Write::of("releasing the lease in LOCK", delete.send().await)?.applied()
    }
}

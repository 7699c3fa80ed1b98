//! acquire, renew, release: the expiring, exclusive right to publish a page's next version.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;

use super::Ledger;
use super::errors::{LedgerError, failed};
use super::expressions::{LEASE_FREE, LEASE_MINE, PK, PROLONG, SK, name};
use super::lookup::in_row;
use super::rows::{self, n, s};
use crate::branches::{Branch, reached};
use crate::chance;
use crate::domain::keys::LOCK;
use crate::domain::lease::{Lease, LeaseToken};
use crate::domain::page::LockRow;
use crate::domain::page_key::PageKey;
use crate::domain::seconds;

/// How an attempt to take the lease ended.
#[derive(Debug)]
pub enum Acquire {
    /// It is ours.
    Granted(Lease),
    /// Somebody holds it.
    Held {
        /// When it runs out unless renewed.
        until_ms: u64,
    },
}

/// How a renewal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It lasts longer now.
    Renewed,
    /// It is somebody else's, or gone.
    Lost,
}

impl Ledger {
    /// Takes the page's lease for `length_ms`, if it is free. Idempotent: if the answer to the first write is lost, the row is
    /// recognised by its token.
    pub async fn acquire(&self, page: &PageKey, length_ms: u64) -> Result<Acquire, LedgerError> {
        let doing = "acquire";
        let now_ms = self.now_ms();
        let lease = Lease::new(page.clone(), LeaseToken::new(chance::token()), now_ms, length_ms);
        let row = lease.row();
        let put = self
            .dynamodb
            .put_item()
            .table_name(&self.table)
            .item(PK, s(self.pk(page)))
            .item(SK, s(LOCK))
            .item(name::LEASE_TOKEN, s(&row.lease_token))
            .item(name::LEASE_EXPIRES_AT, n(row.lease_expires_at))
            .item(name::TTL, n(row.ttl.unwrap_or(row.lease_expires_at)))
            .condition_expression(LEASE_FREE)
            .expression_attribute_values(":now", n(seconds::floor(now_ms)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match put.send().await {
            Ok(_) => Ok(Acquire::Granted(lease)),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refusal)) => {
                    let held = refusal.item().map(rows::lock).transpose().map_err(in_row(doing))?;
                    let mine = held.as_ref().is_some_and(|held| held.lease_token == row.lease_token);
                    reached(if mine { Branch::LeaseRecognised } else { Branch::LeaseHeld });
                    match held {
                        Some(_) if mine => Ok(Acquire::Granted(lease)),
                        Some(held) => Ok(Acquire::Held { until_ms: seconds::to_ms(held.lease_expires_at) }),
                        // It vanished between write and answer: the next delivery finds it free.
                        None => Ok(Acquire::Held { until_ms: now_ms }),
                    }
                }
                // Another worker's commit is at the row in this very moment.
                Some(refusal) if refusal.meta().code() == Some("TransactionConflictException") => {
                    reached(Branch::LeaseConflict);
                    Ok(Acquire::Held { until_ms: now_ms })
                }
                // No answer to any of the SDK's attempts. The write may have been applied all the same.
                Some(_) | None => match self.lock_row(page).await? {
                    Some(held) if held.lease_token == row.lease_token => {
                        reached(Branch::LeaseUnknownThenMine);
                        Ok(Acquire::Granted(lease))
                    }
                    Some(_) | None => {
                        reached(Branch::LeaseUnknownThenNot);
                        Err(failed(doing, error))
                    }
                },
            },
        }
    }

    async fn lock_row(&self, page: &PageKey) -> Result<Option<LockRow>, LedgerError> {
        let doing = "reading a lease";
        let item = self.item(doing, &self.pk(page), LOCK).await?;
        item.map(|item| rows::lock(&item)).transpose().map_err(in_row(doing))
    }

    /// Prolongs the lease, run out or not, as long as nobody else took it: its row still carries our token.
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
        match update.send().await {
            Ok(_) => Ok(Renewal::Renewed),
            Err(error) => match error.as_service_error() {
                Some(refusal) if refusal.is_conditional_check_failed_exception() => Ok(Renewal::Lost),
                Some(_) | None => Err(failed("renewing a lease", error)),
            },
        }
    }

    /// Gives the lease up. Somebody else's is left alone.
    pub async fn release(&self, lease: Lease) -> Result<(), LedgerError> {
        let delete = self
            .dynamodb
            .delete_item()
            .table_name(&self.table)
            .key(PK, s(self.pk(lease.page())))
            .key(SK, s(LOCK))
            .condition_expression(LEASE_MINE)
            .expression_attribute_values(":token", s(lease.token().as_str()));
        match delete.send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.as_service_error() {
                Some(refusal) if refusal.is_conditional_check_failed_exception() => Ok(()),
                Some(_) | None => Err(failed("releasing a lease", error)),
            },
        }
    }
}

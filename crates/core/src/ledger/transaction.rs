//! Transactions: sent until the result is known.

use std::time::Duration;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::builders::{DeleteBuilder, PutBuilder, UpdateBuilder};
use aws_sdk_dynamodb::types::{Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};

use super::Ledger;
use super::errors::{Cancelled, LedgerError, Reason, cancelled, unfinished};
use super::expressions::{PK, SK};
use super::rows::s;
use crate::aws_error::AwsError;
use crate::random;

/// How often a transaction is sent because another one was in its way. The SDK does not retry a
/// cancelled transaction.
const TRIES: u32 = 6;

/// How a transaction ended that DynamoDB has answered.
#[derive(Debug)]
pub(super) enum Transaction {
    Applied,
    /// At least one condition did not hold. One reason per operation, in order.
    ConditionsFailed(Vec<Reason>),
}

impl Ledger {
    /// Sends the operations as one transaction. Every try is the same request byte for byte under
    /// the same token, so that DynamoDB applies it at most once.
    pub(super) async fn transact(&self, operations: Vec<TransactWriteItem>) -> Result<(), Cancelled> {
        let token = format!("{:032x}", random::token());
        let mut pause_ms = 20;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let sent = self
                .dynamodb
                .transact_write_items()
                .client_request_token(&token)
                .set_transact_items(Some(operations.clone()))
                .send()
                .await;
            let refusal = match sent {
                Ok(_) => return Ok(()),
                Err(error) => cancelled(error),
            };
            match refusal {
                Cancelled::Passing(_) if attempt < TRIES => {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(pause_ms / 2..=pause_ms))).await;
                    pause_ms *= 2;
                }
                Cancelled::Passing(_) | Cancelled::Conditions(_) | Cancelled::Unknown(_) | Cancelled::Refused(_) => {
                    return Err(refusal);
                }
            }
        }
    }

    /// As [`Ledger::transact`], for a caller to which only failed conditions are an outcome.
    pub(super) async fn transact_if(
        &self,
        doing: &'static str,
        operations: Vec<TransactWriteItem>,
    ) -> Result<Transaction, LedgerError> {
        match self.transact(operations).await {
            Ok(()) => Ok(Transaction::Applied),
            Err(Cancelled::Conditions(reasons)) => Ok(Transaction::ConditionsFailed(reasons)),
            Err(other) => Err(unfinished(doing, other)),
        }
    }

    pub(super) fn put(&self, pk: &str, sk: &str, condition: &str) -> PutBuilder {
        Put::builder()
            .table_name(&self.table)
            .item(PK, s(pk))
            .item(SK, s(sk))
            .condition_expression(condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    pub(super) fn update(&self, pk: &str, sk: &str, expression: impl Into<String>) -> UpdateBuilder {
        Update::builder()
            .table_name(&self.table)
            .key(PK, s(pk))
            .key(SK, s(sk))
            .update_expression(expression)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    pub(super) fn delete(&self, pk: &str, sk: &str, condition: &str) -> DeleteBuilder {
        Delete::builder()
            .table_name(&self.table)
            .key(PK, s(pk))
            .key(SK, s(sk))
            .condition_expression(condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }
}

pub(super) fn put_operation(put: PutBuilder) -> Result<TransactWriteItem, LedgerError> {
    let put = put.build().map_err(unbuildable)?;
    Ok(TransactWriteItem::builder().put(put).build())
}

pub(super) fn update_operation(update: UpdateBuilder) -> Result<TransactWriteItem, LedgerError> {
    let update = update.build().map_err(unbuildable)?;
    Ok(TransactWriteItem::builder().update(update).build())
}

pub(super) fn delete_operation(delete: DeleteBuilder) -> Result<TransactWriteItem, LedgerError> {
    let delete = delete.build().map_err(unbuildable)?;
    Ok(TransactWriteItem::builder().delete(delete).build())
}

fn unbuildable(error: BuildError) -> LedgerError {
    LedgerError::Refused { doing: "building a transaction", source: AwsError::new(error) }
}

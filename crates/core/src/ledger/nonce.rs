//! spend a nonce: a signed request counts once.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;

use super::Ledger;
use super::errors::{LedgerError, failed};
use super::expressions::{ABSENT, PK, SK, name};
use super::rows::{n, s};
use crate::chance;
use crate::domain::keys::nonce_pk;

/// What became of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonce {
    /// Nobody had used it, and nobody can any more.
    Spent,
    /// It had been used.
    Replayed,
}

impl Ledger {
    /// Uses up a nonce of the key `key_id`, and remembers it until the second `keep_until`.
    ///
    /// Of any number of calls with one nonce exactly one spends it. Idempotent within a call: if the answer to the first write is lost,
    /// the row is recognised by its owner.
    pub async fn spend_nonce(&self, key_id: &str, nonce: &str, keep_until: u64) -> Result<Nonce, LedgerError> {
        let owner = format!("{:032x}", chance::token());
        // A single put: the serving function may do nothing else.
        let put = self
            .dynamodb
            .put_item()
            .table_name(&self.table)
            .item(PK, s(nonce_pk(key_id)))
            .item(SK, s(nonce))
            .item(name::OWNER, s(&owner))
            .item(name::TTL, n(keep_until))
            .condition_expression(ABSENT)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match put.send().await {
            Ok(_) => Ok(Nonce::Spent),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refusal)) => {
                    let mine = refusal.item().and_then(|item| item.get(name::OWNER)) == Some(&s(owner));
                    Ok(if mine { Nonce::Spent } else { Nonce::Replayed })
                }
                Some(_) | None => Err(failed("spending a nonce", error)),
            },
        }
    }
}

//! spend a nonce: a signed request counts once.

use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;

use super::Ledger;
use super::conditional::Write;
use super::errors::LedgerError;
use super::expressions::{ABSENT, PK, SK, name};
use super::rows::{n, s};
use crate::domain::keys::nonce_pk;
use crate::random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonce {
    /// It was unused, and this call has used it.
    Spent,
    /// It had been used before.
    Replayed,
}

impl Ledger {
    /// Uses up a nonce of the key `key_id`, and remembers it until `keep_until`, in seconds.
    ///
    /// Of any number of calls with one nonce exactly one spends it. Idempotent within a call: if
    /// the response to the first write is lost, the row is recognised by its owner.
    pub async fn spend_nonce(&self, key_id: &str, nonce: &str, keep_until: u64) -> Result<Nonce, LedgerError> {
        let owner = format!("{:032x}", random::token());
        // A single put: the serving function's role allows nothing else.
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
        match Write::of("writing a nonce", put.send().await)? {
            Write::Applied => Ok(Nonce::Spent),
            Write::ConditionFailed(item) => {
                let mine = item.as_ref().and_then(|item| item.get(name::OWNER)) == Some(&s(owner));
                Ok(if mine { Nonce::Spent } else { Nonce::Replayed })
            }
            Write::Conflict(error) => Err(error),
        }
    }
}

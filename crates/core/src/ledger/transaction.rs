//! One transaction, sent until its fate is known.

use std::time::Duration;

use aws_sdk_dynamodb::types::TransactWriteItem;

use super::Ledger;
use super::errors::{Cancelled, cancelled};
use crate::chance;

/// How often a transaction is sent again because another one was in its way. The SDK does not retry a cancelled transaction.
const TRIES: u32 = 6;

impl Ledger {
    /// Sends the operations as one transaction. Every try is the same request byte for byte under the same token, so that DynamoDB
    /// applies it at most once however often it arrives.
    pub(super) async fn transact(&self, operations: Vec<TransactWriteItem>) -> Result<(), Cancelled> {
        let token = format!("{:032x}", chance::token());
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
}

//! The DynamoDB side of Everfresh: who handles a request, who may publish, and what is published.
//!
//! Each verb of the protocol is one method in a file of its own below. A lost race is an outcome; an [`LedgerError`] means that the
//! ledger does not know or cannot go on. Rights are values: a [`Claim`] and a [`Lease`](crate::domain::lease::Lease) are made by
//! the verb that grants them and consumed by the verb that ends them.

mod acquire;
mod claim;
mod commit;
mod errors;
pub(crate) mod expressions;
mod fail;
mod invalidate;
mod lookup;
mod nonce;
mod operate;
mod pending_notification;
pub(crate) mod rows;
mod seen;
mod settle;
mod transaction;

use aws_sdk_dynamodb::types::{Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};

pub use self::acquire::{Acquire, Renewal};
pub use self::claim::{Claim, ClaimOutcome, ClaimTerms};
pub use self::commit::{Commit, Publication, Rights};
pub use self::errors::LedgerError;
use self::expressions::{PK, SK};
pub use self::invalidate::TagInvalidation;
pub use self::lookup::PageState;
pub use self::nonce::Nonce;
pub use self::operate::Operation;
pub use self::rows::RowError;
use self::rows::s;
pub use self::seen::{Seen, UnreadableMeta};
pub use self::settle::Settled;
use crate::aws_time::AwsTime;
use crate::clients::Clients;
use crate::domain::page_key::{KeyLayout, PageKey};

/// One deployment's table.
#[derive(Clone, Debug)]
pub struct Ledger {
    dynamodb: aws_sdk_dynamodb::Client,
    table: String,
    layout: KeyLayout,
    time: AwsTime,
}

impl Ledger {
    /// The ledger in `table`, whose keys are laid out as `layout` says.
    pub fn new(clients: &Clients, table: impl Into<String>, layout: KeyLayout) -> Self {
        Self { dynamodb: clients.dynamodb.clone(), table: table.into(), layout, time: clients.time.clone() }
    }

    /// How its keys are laid out.
    pub fn layout(&self) -> KeyLayout {
        self.layout
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// AWS's time, as this ledger's answers tell it.
    pub fn time(&self) -> &AwsTime {
        &self.time
    }

    fn now_ms(&self) -> u64 {
        self.time.now_ms()
    }

    fn pk(&self, page: &PageKey) -> String {
        page.pk(self.layout)
    }

    fn put(&self, pk: &str, sk: &str, condition: &str) -> aws_sdk_dynamodb::types::builders::PutBuilder {
        Put::builder()
            .table_name(&self.table)
            .item(PK, s(pk))
            .item(SK, s(sk))
            .condition_expression(condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    fn update(
        &self,
        pk: &str,
        sk: &str,
        expression: impl Into<String>,
    ) -> aws_sdk_dynamodb::types::builders::UpdateBuilder {
        Update::builder()
            .table_name(&self.table)
            .key(PK, s(pk))
            .key(SK, s(sk))
            .update_expression(expression)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    fn delete(&self, pk: &str, sk: &str, condition: &str) -> aws_sdk_dynamodb::types::builders::DeleteBuilder {
        Delete::builder()
            .table_name(&self.table)
            .key(PK, s(pk))
            .key(SK, s(sk))
            .condition_expression(condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }
}

/// One operation of a transaction.
fn operation<T>(
    built: Result<T, aws_sdk_dynamodb::error::BuildError>,
    wrap: impl FnOnce(T) -> TransactWriteItem,
) -> Result<TransactWriteItem, LedgerError> {
    let refused = |why: aws_sdk_dynamodb::error::BuildError| LedgerError::Refused {
        doing: "building a transaction",
        why: why.to_string(),
    };
    built.map(wrap).map_err(refused)
}

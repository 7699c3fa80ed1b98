//! The DynamoDB side of Everfresh: which worker handles a request, which may publish, and what is
//! published.
//!
//! Each file has one verb of the protocol and its inverse:
//!
//! | Who calls it | Files |
//! |---|---|
//! | the worker, in this order | `lookup`, `claim`, `acquire` (also renew and release), `commit` or `fail` (also give back), `pending_notification`, `settle` |
//! | operators | `operator` (pin, unpin, roll back, purge), `invalidate`, `inspect` (list), `control` (pause) |
//! | the sweep | `retention` |
//! | signed requests | `nonce` |
//! | all of them | `rows`, `expressions`, `transaction`, `conditional`, `errors`, `meta_condition`, `epoch_cache` |
//!
//! A lost race is an outcome; a [`LedgerError`] means that the ledger does not know or cannot go on.
//! Rights are values: a [`Claim`] and a [`Lease`](crate::domain::lease::Lease) are made by the verb
//! that grants them and consumed by the verb that ends them.
//!
//! The table's keys are built in `domain::keys`, its expressions and attribute names are in
//! `expressions.rs`, rows are read and written in `rows.rs`, and every error of the SDK is
//! classified in `errors.rs` and `conditional.rs`.

mod acquire;
mod claim;
mod commit;
mod conditional;
mod control;
pub mod epoch_cache;
mod errors;
pub(crate) mod expressions;
mod fail;
mod inspect;
mod invalidate;
mod invalidate_hard;
mod lookup;
mod meta_condition;
mod nonce;
mod operator;
mod pending_notification;
mod retention;
pub(crate) mod rows;
mod settle;
mod transaction;

pub use self::acquire::{Acquire, Renewal};
pub use self::claim::{Claim, ClaimOutcome, ClaimTerms};
pub use self::commit::{Commit, Publication, Rights, WITHDRAWAL_WINDOW_MS, Withdrawal};
pub(crate) use self::control::KnownPauses;
pub use self::control::{PAUSE_DELAY_MS, Pauses};
pub use self::errors::LedgerError;
pub use self::inspect::{Batch, Cursor};
pub use self::invalidate::TagInvalidation;
pub use self::lookup::PageState;
pub use self::meta_condition::{Seen, UnreadableMeta};
pub use self::nonce::Nonce;
pub use self::operator::Operation;
pub use self::retention::{PageRows, PartitionLease};
pub use self::rows::RowError;
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
    pub fn new(clients: &Clients, table: impl Into<String>, layout: KeyLayout) -> Self {
        Self { dynamodb: clients.dynamodb.clone(), table: table.into(), layout, time: clients.time.clone() }
    }

    pub fn layout(&self) -> KeyLayout {
        self.layout
    }

    pub fn table(&self) -> &str {
        &self.table
    }

    /// AWS's time, estimated from the responses to this deployment's clients.
    pub fn time(&self) -> &AwsTime {
        &self.time
    }

    fn now_ms(&self) -> u64 {
        self.time.now_ms()
    }

    fn pk(&self, page: &PageKey) -> String {
        page.pk(self.layout)
    }
}

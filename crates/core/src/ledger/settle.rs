//! settle: the record of a request that ends without a commit of its own.
//!
//! A request that another one's render covers, or that goes to the dead-letter queue, publishes
//! nothing. Its record, if there is one, must not stay in status STARTED for ever.

use aws_sdk_dynamodb::types::AttributeValue;

use super::Ledger;
use super::claim::unchanged_values;
use super::conditional::Write;
use super::errors::{LedgerError, unavailable};
use super::expressions::{ABSENT, PK, RECORD_REJECTION, SK, claim_unchanged, complete_covered, name};
use super::rows::{self, Item, n, s};
use crate::domain::claim::record_ttl;
use crate::domain::digest::Digest;
use crate::domain::keys::req_sk;
use crate::domain::outcome::RejectReason;
use crate::domain::page::{ReqRow, ReqStatus};
use crate::domain::page_key::PageKey;
use crate::domain::request::{IdempotencyKey, Request};
use crate::domain::request_events::{self, Event, Stage};

/// How often a record is judged because it changed between reading and writing.
const ROUNDS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The record is completed.
    Done,
    /// There is no record, it was completed before, another worker's claim is valid and will
    /// complete it, or the page was purged.
    Nothing,
    /// The record belongs to another request with the same key.
    KeyConflict,
}

impl Ledger {
    /// Completes the record of a request that the published version covers. A valid claim is left
    /// to its owner, and the record of a request for a purged page stays as it is.
    ///
    /// Removes the owner: a late worker must not take this for its own commit.
    pub async fn settle_covered(
        &self,
        page: &PageKey,
        key: &IdempotencyKey,
        request_hash: Digest,
    ) -> Result<Settled, LedgerError> {
        for _ in 0..ROUNDS {
            let now_ms = self.now_ms();
            let Some(row) = self.request(page, key).await?.filter(|row| row.counts(now_ms)) else {
                return Ok(Settled::Nothing);
            };
            if row.request_hash != request_hash.to_string() {
                return Ok(Settled::KeyConflict);
            }
            if row.status == ReqStatus::Completed || is_live(&row, now_ms) {
                return Ok(Settled::Nothing);
            }
            // Foreign workers answer a replay with this body. A purged page has none.
            let Some(meta) = self.lookup(page).await?.meta.filter(|meta| !meta.tombstone) else {
                return Ok(Settled::Nothing);
            };
            let (result, values) = rows::result_of(&meta);
            if self.update_record(page, key, &row, Stage::Covered, &complete_covered(result), values).await? {
                return Ok(Settled::Done);
            }
        }
        Ok(Settled::Nothing)
    }

    /// Records that the request goes to the dead-letter queue, so that a redrive from now on resets
    /// the count of attempts, and so that a query of the request shows it. A request that was
    /// completed meanwhile stays completed. `sent_ms` is when the rejected message was sent.
    pub async fn record_rejection(
        &self,
        page: &PageKey,
        request: &Request,
        reason: RejectReason,
        sent_ms: u64,
    ) -> Result<(), LedgerError> {
        let (key, request_hash) = (&request.key, request.request_hash());
        for _ in 0..ROUNDS {
            let rejected_ms = self.rejected_ms(sent_ms);
            let written = match self.request(page, key).await? {
                None => self.put_rejection(page, key, request_hash, reason, rejected_ms).await?,
                Some(row) if row.status == ReqStatus::Completed => return Ok(()),
                Some(row) if row.request_hash != request_hash.to_string() => return Ok(()),
                Some(row) => {
                    let values = [(":now", n(rejected_ms)), (":reason", s(reason.as_str()))];
                    self.update_record(page, key, &row, Stage::Rejected, RECORD_REJECTION, values).await?
                }
            };
            if written {
                return Ok(());
            }
        }
        Err(unavailable("recording a rejection in REQ", "the record changes faster than it can be written"))
    }

    /// The earliest moment that it may be by the queue's clock: a message sent from now on is a
    /// redrive, even if this worker's estimate is ahead. The rejected message itself never is.
    fn rejected_ms(&self, sent_ms: u64) -> u64 {
        let earliest_ms = self.time().error_ms().map_or(0, |error_ms| self.now_ms().saturating_sub(error_ms));
        earliest_ms.max(sent_ms)
    }

    /// Updates the record if it is still the one that was read. Returns whether it was.
    async fn update_record(
        &self,
        page: &PageKey,
        key: &IdempotencyKey,
        row: &ReqRow,
        stage: Stage,
        expression: &str,
        more_values: impl IntoIterator<Item = (&'static str, AttributeValue)>,
    ) -> Result<bool, LedgerError> {
        let now_ms = self.now_ms();
        let mut events = row.events.clone();
        let attempt = request_events::attempt_of(&events, stage);
        request_events::record(&mut events, Event::new(attempt, stage, now_ms));
        let mut values = unchanged_values(row);
        values.insert(":events".to_owned(), rows::events(&events));
        values.extend(more_values.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let update = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .key(PK, s(self.pk(page)))
            .key(SK, s(req_sk(key)))
            .update_expression(expression)
            .condition_expression(claim_unchanged(row.owner.is_some(), row.claim_expires_ms.is_some()))
            .expression_attribute_names("#status", name::STATUS)
            .expression_attribute_names("#owner", name::OWNER)
            .set_expression_attribute_values(Some(values));
        match Write::of("updating REQ", update.send().await)? {
            Write::Applied => Ok(true),
            // In both cases the record is read again.
            Write::ConditionFailed(_) | Write::Conflict(_) => Ok(false),
        }
    }

    async fn put_rejection(
        &self,
        page: &PageKey,
        key: &IdempotencyKey,
        request_hash: Digest,
        reason: RejectReason,
        rejected_ms: u64,
    ) -> Result<bool, LedgerError> {
        let now_ms = self.now_ms();
        let events = [Event::new(1, Stage::Received, now_ms), Event::new(1, Stage::Rejected, now_ms)];
        let item: Item = [
            (PK, s(self.pk(page))),
            (SK, s(req_sk(key))),
            (name::REQUEST_HASH, s(request_hash.to_string())),
            (name::STATUS, s(ReqStatus::Failed.as_str())),
            (name::TTL, n(record_ttl(now_ms))),
            (name::ATTEMPTS, n(0u64)),
            (name::REJECTED_AT_MS, n(rejected_ms)),
            (name::REJECT_REASON, s(reason.as_str())),
            (name::EVENTS, rows::events(&events)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let put = self.dynamodb.put_item().table_name(&self.table).set_item(Some(item)).condition_expression(ABSENT);
        Write::of("recording a rejection in REQ", put.send().await)?.applied()
    }
}

/// Whether a worker may be handling it. A record without an expiry is foreign, and nothing is known
/// of it.
fn is_live(row: &ReqRow, now_ms: u64) -> bool {
    row.status == ReqStatus::Started && row.claim_expires_ms.is_none_or(|expires_ms| expires_ms > now_ms)
}

//! invalidate: by path, by tag, by prefix; and what a reader of a page must know of it.

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, TransactWriteItem};

use super::errors::{Cancelled, LedgerError, Reason, failed, unfinished};
use super::expressions::{
    ABSENT, END_LIFE, PATH_WATERMARK_RISES, PK, PRESENT, RAISE_PATH_WATERMARK, RAISE_WATERMARK, RECORD_OUTLIVED,
    RECORD_WANTED, SK, STILL_PINNED, WATERMARK_RISES, name,
};
use super::lookup::in_row;
use super::rows::{self, n, s};
use super::{Ledger, operation};
use crate::domain::claim::record_ttl;
use crate::domain::digest::Digest;
use crate::domain::events::{Event, Stage};
use crate::domain::invalidations::{Invalidations, Prefix};
use crate::domain::keys::{EPOCH, HEALTH, META, req_sk, watermark_sks};
use crate::domain::outcome::RejectReason;
use crate::domain::page::{ReqRow, ReqStatus};
use crate::domain::page_key::{PageKey, Tenant};
use crate::domain::request::IdempotencyKey;
use crate::domain::tag::Tag;

/// How often a request by tag is judged anew because the record under its key changed meanwhile.
const ROUNDS: usize = 3;

/// How a request by tag ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagInvalidation {
    /// The watermark is written and the request completed.
    Done,
    /// The request was completed before.
    Replayed,
    /// Its key was used for another request.
    Rejected(RejectReason),
}

impl Ledger {
    /// Handles a request by tag: one transaction completes its record and raises the tag's watermark and the tenant's epoch to the
    /// moment the message was sent, however many pages carry the tag.
    pub async fn invalidate_tag(
        &self,
        tenant: &Tenant,
        tag: &Tag,
        key: &IdempotencyKey,
        request_hash: Digest,
        sent_ms: u64,
    ) -> Result<TagInvalidation, LedgerError> {
        let doing = "invalidating by tag";
        let pk = tenant.inval_pk();
        let mut outlived: Option<ReqRow> = None;
        for _ in 0..ROUNDS {
            let record = self.completed_record(&pk, key, request_hash, outlived.as_ref())?;
            let refusal = match self.raise_watermarks(&pk, &tag.sk(), sent_ms, vec![record]).await? {
                Ok(()) => return Ok(TagInvalidation::Done),
                Err(refusal) => refusal,
            };
            let known = match refusal {
                Cancelled::Conditions(reasons) => match reasons.into_iter().next() {
                    Some(Reason::ConditionFailed(Some(item))) => Some(rows::req(&item).map_err(in_row(doing))?),
                    Some(Reason::ConditionFailed(None) | Reason::Fine) | None => None,
                },
                // A late answer is an unknown one: the truth is in the record.
                Cancelled::Unknown(_) | Cancelled::Passing(_) => self.record(&pk, &req_sk(key)).await?,
                Cancelled::Refused(why) => return Err(LedgerError::Refused { doing, why }),
            };
            match known {
                // Past its ttl it counts as absent, though DynamoDB has not deleted it yet: it is overwritten as it was read.
                Some(row) if !row.counts(self.now_ms()) => outlived = Some(row),
                Some(row) if row.request_hash == request_hash.to_string() => return Ok(TagInvalidation::Replayed),
                Some(_) => return Ok(TagInvalidation::Rejected(RejectReason::KeyConflict)),
                // Deleted between judging and writing.
                None if outlived.is_some() => outlived = None,
                None => break,
            }
        }
        Err(LedgerError::Unavailable { doing, why: "the transaction's answer stayed unknown".to_owned() })
    }

    /// Makes every page below the prefix stale. `at_ms` is the upper end of what the time may be.
    pub async fn invalidate_prefix(&self, tenant: &Tenant, prefix: &Prefix, at_ms: u64) -> Result<(), LedgerError> {
        let done = self.raise_watermarks(&tenant.inval_pk(), &prefix.sk(), at_ms, Vec::new()).await?;
        done.map_err(|refusal| unfinished("invalidating by prefix", refusal))
    }

    /// Makes one page stale: for us by a watermark on HEALTH, for other languages by a life of zero on META. `at_ms` is the upper
    /// end of what the time may be.
    pub async fn invalidate_path(&self, page: &PageKey, at_ms: u64) -> Result<(), LedgerError> {
        let doing = "invalidating by path";
        let pk = self.pk(page);
        let watermark = |condition: bool| {
            let update = self.update(&pk, HEALTH, RAISE_PATH_WATERMARK).expression_attribute_values(":at", n(at_ms));
            // Watermarks only rise: an older one than the row's is no news.
            let rises = PATH_WATERMARK_RISES;
            let update = if condition { update.condition_expression(rises) } else { update };
            operation(update.build(), |update| TransactWriteItem::builder().update(update).build())
        };
        let life = self
            .update(&pk, META, END_LIFE)
            .condition_expression(PRESENT)
            .expression_attribute_values(":zero", n(0u64));
        let life = operation(life.build(), |update| TransactWriteItem::builder().update(update).build())?;
        match self.transact(vec![watermark(true)?, life]).await {
            Ok(()) => Ok(()),
            // No page yet, or a newer watermark: what is left of the two.
            Err(Cancelled::Conditions(reasons)) => match reasons.first() {
                Some(Reason::Fine) => self.transact_or_known(doing, vec![watermark(true)?]).await,
                Some(Reason::ConditionFailed(_)) | None => Ok(()),
            },
            Err(other) => Err(unfinished(doing, other)),
        }
    }

    /// Remembers on a pinned page that a change is waiting. Returns false if the page is not pinned any more.
    pub async fn record_wanted(&self, page: &PageKey, sent_ms: u64) -> Result<bool, LedgerError> {
        let update = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .key(PK, s(self.pk(page)))
            .key(SK, s(HEALTH))
            .update_expression(RECORD_WANTED)
            .condition_expression(STILL_PINNED)
            .expression_attribute_values(":sent", n(sent_ms));
        match update.send().await {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                Some(refusal) if refusal.is_conditional_check_failed_exception() => Ok(false),
                Some(_) | None => Err(failed("recording a wish on a pinned page", error)),
            },
        }
    }

    /// The moment of the tenant's newest invalidation by tag or prefix.
    pub async fn epoch(&self, tenant: &Tenant) -> Result<Option<u64>, LedgerError> {
        let doing = "reading the tenant's epoch";
        let item = self.item(doing, &tenant.inval_pk(), EPOCH).await?;
        item.map(|item| rows::watermark(&item)).transpose().map_err(in_row(doing))
    }

    /// The watermarks that apply to one page. Worth asking only when the epoch is newer than the page.
    pub async fn invalidations(
        &self,
        page: &PageKey,
        tags: &[Tag],
        epoch_ms: Option<u64>,
    ) -> Result<Invalidations, LedgerError> {
        let doing = "reading watermarks";
        let pk = page.tenant().inval_pk();
        let mut watermarks = Vec::new();
        let sks = watermark_sks(page.path(), tags);
        // DynamoDB reads at most a hundred items at once.
        for chunk in sks.chunks(100) {
            let keys = chunk.iter().map(|sk| [(PK.to_owned(), s(&pk)), (SK.to_owned(), s(sk))].into());
            let mut wanted = KeysAndAttributes::builder().consistent_read(true);
            wanted = wanted.set_keys(Some(keys.collect()));
            let wanted = wanted.build().map_err(|e| LedgerError::Refused { doing, why: e.to_string() })?;
            let mut pending = Some(std::collections::HashMap::from([(self.table.clone(), wanted)]));
            while let Some(request) = pending.take() {
                let got = self.dynamodb.batch_get_item().set_request_items(Some(request)).send().await;
                let got = got.map_err(|error| failed(doing, error))?;
                for item in got.responses.unwrap_or_default().into_values().flatten() {
                    watermarks.push(rows::watermark(&item).map_err(in_row(doing))?);
                }
                // What a busy table left out comes with the next round.
                pending = got.unprocessed_keys.filter(|left| !left.is_empty());
            }
        }
        Ok(Invalidations::new(epoch_ms, watermarks))
    }

    /// Raises a watermark and the epoch to `at_ms` together with `first` operations. One that is already higher stays, and the rest
    /// is done without it.
    async fn raise_watermarks(
        &self,
        pk: &str,
        sk: &str,
        at_ms: u64,
        first: Vec<TransactWriteItem>,
    ) -> Result<Result<(), Cancelled>, LedgerError> {
        let mut rising = vec![sk.to_owned(), EPOCH.to_owned()];
        loop {
            let mut operations = first.clone();
            for sk in &rising {
                let update = self
                    .update(pk, sk, RAISE_WATERMARK)
                    .condition_expression(WATERMARK_RISES)
                    .expression_attribute_values(":at", n(at_ms));
                operations
                    .push(operation(update.build(), |update| TransactWriteItem::builder().update(update).build())?);
            }
            if operations.is_empty() {
                return Ok(Ok(()));
            }
            let refusal = match self.transact(operations).await {
                Ok(()) => return Ok(Ok(())),
                Err(refusal) => refusal,
            };
            let Cancelled::Conditions(reasons) = &refusal else { return Ok(Err(refusal)) };
            let failed_at = |at: usize| matches!(reasons.get(at), Some(Reason::ConditionFailed(_)));
            if (0..first.len()).any(failed_at) {
                return Ok(Err(refusal));
            }
            let before = rising.len();
            let mut at = first.len();
            rising.retain(|_| {
                let keep = !failed_at(at);
                at += 1;
                keep
            });
            if rising.len() == before {
                return Ok(Err(refusal));
            }
        }
    }

    /// The record of a request by tag, written where none is, or over one that has outlived its ttl.
    fn completed_record(
        &self,
        pk: &str,
        key: &IdempotencyKey,
        hash: Digest,
        outlived: Option<&ReqRow>,
    ) -> Result<TransactWriteItem, LedgerError> {
        let now_ms = self.now_ms();
        let events = [Event::new(1, Stage::Received, now_ms), Event::new(1, Stage::Committed, now_ms)];
        let attributes: [(&str, AttributeValue); 5] = [
            (name::REQUEST_HASH, s(hash.to_string())),
            (name::STATUS, s(ReqStatus::Completed.as_str())),
            (name::TTL, n(record_ttl(now_ms))),
            (name::ATTEMPTS, n(1u64)),
            (name::EVENTS, rows::events(&events)),
        ];
        let mut put = match outlived.and_then(|row| row.ttl) {
            None => self.put(pk, &req_sk(key), ABSENT),
            Some(ttl) => self
                .put(pk, &req_sk(key), RECORD_OUTLIVED)
                .expression_attribute_names("#ttl", name::TTL)
                .expression_attribute_values(":old_ttl", n(ttl)),
        };
        for (name, value) in attributes {
            put = put.item(name, value);
        }
        operation(put.build(), |put| TransactWriteItem::builder().put(put).build())
    }

    /// A transaction whose conditions failing means that somebody has done it already.
    async fn transact_or_known(
        &self,
        doing: &'static str,
        operations: Vec<TransactWriteItem>,
    ) -> Result<(), LedgerError> {
        match self.transact(operations).await {
            Ok(()) | Err(Cancelled::Conditions(_)) => Ok(()),
            Err(other) => Err(unfinished(doing, other)),
        }
    }
}

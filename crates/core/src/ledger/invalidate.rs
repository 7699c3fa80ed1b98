//! invalidate: by path, by tag, by prefix; and reading the watermarks that apply to a page.

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, TransactWriteItem};

use super::Ledger;
use super::conditional::Write;
use super::errors::{Cancelled, LedgerError, Reason, failed, in_row, unavailable, unfinished};
use super::expressions::{
    ABSENT, END_LIFE, PATH_WATERMARK_RISES, PK, PRESENT, RAISE_PATH_WATERMARK, RAISE_WATERMARK, RECORD_OUTLIVED,
    RECORD_WANTED, SK, STILL_PINNED, WATERMARK_RISES, name,
};
use super::rows::{self, n, s};
use super::transaction::{Transaction, put_operation, update_operation};
use crate::aws_error::AwsError;
use crate::domain::claim::record_ttl;
use crate::domain::digest::Digest;
use crate::domain::invalidations::{Invalidations, Prefix, Watermark};
use crate::domain::keys::{EPOCH, HEALTH, META, req_sk, watermark_sks};
use crate::domain::outcome::RejectReason;
use crate::domain::page::{ReqRow, ReqStatus};
use crate::domain::page_key::{PageKey, Tenant};
use crate::domain::request::IdempotencyKey;
use crate::domain::request_events::{Event, Stage};
use crate::domain::tag::Tag;

/// How often a request by tag is judged because the record under its key changed meanwhile.
const ROUNDS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagInvalidation {
    /// The watermark is written and the request completed.
    Done,
    /// The request was completed before.
    Replayed,
    /// The key was used for another request.
    Rejected(RejectReason),
}

impl Ledger {
    /// Handles a request by tag: one transaction completes its record and raises the tag's
    /// watermark and the tenant's epoch to the moment the message was sent, however many pages
    /// carry the tag.
    pub async fn invalidate_tag(
        &self,
        tenant: &Tenant,
        tag: &Tag,
        key: &IdempotencyKey,
        request_hash: Digest,
        sent_ms: u64,
    ) -> Result<TagInvalidation, LedgerError> {
        let doing = "invalidating a tag";
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
                // The record says whether it was applied.
                Cancelled::Unknown(_) | Cancelled::Passing(_) => self.record(&pk, &req_sk(key)).await?,
                Cancelled::Refused(source) => return Err(LedgerError::Refused { doing, source }),
            };
            match known {
                // Past its ttl it counts as absent, though DynamoDB has not deleted it yet: it is
                // overwritten if still the same.
                Some(row) if !row.counts(self.now_ms()) => outlived = Some(row),
                Some(row) if row.request_hash == request_hash.to_string() => return Ok(TagInvalidation::Replayed),
                Some(_) => return Ok(TagInvalidation::Rejected(RejectReason::KeyConflict)),
                // Deleted between judging and writing.
                None if outlived.is_some() => outlived = None,
                None => break,
            }
        }
        Err(unavailable(doing, "the transaction's result stayed unknown"))
    }

    /// Makes every page below the prefix stale. `at_ms` is the upper bound of the current time.
    pub async fn invalidate_prefix(&self, tenant: &Tenant, prefix: &Prefix, at_ms: u64) -> Result<(), LedgerError> {
        let done = self.raise_watermarks(&tenant.inval_pk(), &prefix.sk(), at_ms, Vec::new()).await?;
        done.map_err(|refusal| unfinished("invalidating a prefix", refusal))
    }

    /// Makes one page stale: for Everfresh by a watermark on HEALTH, for readers in other languages
    /// by a life of zero on META. `at_ms` is the upper bound of the current time.
    pub async fn invalidate_path(&self, page: &PageKey, at_ms: u64) -> Result<(), LedgerError> {
        let doing = "invalidating a path in HEALTH";
        let pk = self.pk(page);
        let watermark = || {
            let update = self
                .update(&pk, HEALTH, RAISE_PATH_WATERMARK)
                .condition_expression(PATH_WATERMARK_RISES)
                .expression_attribute_values(":at", n(at_ms));
            update_operation(update)
        };
        let life = self
            .update(&pk, META, END_LIFE)
            .condition_expression(PRESENT)
            .expression_attribute_values(":zero", n(0u64));
        match self.transact_if(doing, vec![watermark()?, update_operation(life)?]).await? {
            Transaction::Applied => Ok(()),
            Transaction::ConditionsFailed(reasons) => match reasons.first() {
                // No page yet: the watermark alone. If it fails now, a newer one was written
                // meanwhile.
                Some(Reason::Fine) => self.transact_if(doing, vec![watermark()?]).await.map(drop),
                Some(Reason::ConditionFailed(_)) | None => Ok(()),
            },
        }
    }

    /// Records on a pinned page that a change is waiting. Returns false if the page is not pinned
    /// any more.
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
        Write::of("recording a change of a pinned page in HEALTH", update.send().await)?.applied()
    }

    /// The time of the tenant's newest invalidation by tag or prefix.
    pub async fn epoch(&self, tenant: &Tenant) -> Result<Option<u64>, LedgerError> {
        let doing = "reading the tenant's EPOCH";
        let item = self.item(doing, &tenant.inval_pk(), EPOCH).await?;
        item.map(|item| rows::watermark(&item).map(|row| row.at_ms)).transpose().map_err(in_row(doing))
    }

    /// The watermarks that apply to one page. Needed only if the epoch is newer than the page.
    pub async fn invalidations(
        &self,
        page: &PageKey,
        tags: &[Tag],
        epoch_ms: Option<u64>,
    ) -> Result<Invalidations, LedgerError> {
        let watermarks = self.watermarks(page, tags).await?;
        Ok(Invalidations::new(epoch_ms, watermarks.into_iter().map(|(_, watermark)| watermark)))
    }

    /// The same by the sort keys of their rows, `TAG#<tag>` and `PREFIX#<prefix>`.
    pub async fn watermarks(&self, page: &PageKey, tags: &[Tag]) -> Result<Vec<(String, Watermark)>, LedgerError> {
        let doing = "reading the watermarks of tags and prefixes";
        let pk = page.tenant().inval_pk();
        let mut watermarks = Vec::new();
        let sks = watermark_sks(page.path(), tags);
        // DynamoDB reads at most a hundred items at once.
        for chunk in sks.chunks(100) {
            let keys = chunk.iter().map(|sk| [(PK.to_owned(), s(&pk)), (SK.to_owned(), s(sk))].into());
            let mut wanted = KeysAndAttributes::builder().consistent_read(true);
            wanted = wanted.set_keys(Some(keys.collect()));
            let wanted =
                wanted.build().map_err(|error| LedgerError::Refused { doing, source: AwsError::new(error) })?;
            let mut pending = Some(std::collections::HashMap::from([(self.table.clone(), wanted)]));
            while let Some(request) = pending.take() {
                let got = self.dynamodb.batch_get_item().set_request_items(Some(request)).send().await;
                let got = got.map_err(|error| failed(doing, error))?;
                for item in got.responses.unwrap_or_default().into_values().flatten() {
                    let sk = item.get(SK).and_then(|sk| sk.as_s().ok()).cloned().unwrap_or_default();
                    watermarks.push((sk, rows::watermark(&item).map_err(in_row(doing))?));
                }
                // Keys that a busy table left out are read in the next round.
                pending = got.unprocessed_keys.filter(|left| !left.is_empty());
            }
        }
        Ok(watermarks)
    }

    /// Raises a watermark and the epoch to `at_ms` together with the `first` operations. A
    /// watermark that is already higher stays, and the rest is written without it.
    pub(super) async fn raise_watermarks(
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
                operations.push(update_operation(update)?);
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

    /// The record of a request by tag, written where none is, or over one that has outlived its
    /// ttl.
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
        put_operation(put)
    }
}

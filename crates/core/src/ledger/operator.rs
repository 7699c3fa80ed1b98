//! pin, unpin, roll back, purge: the operator's commands on a page.
//!
//! Each takes the page's lease and writes HEALTH and a new version of META in one transaction, so
//! that a render in flight is superseded.

use aws_sdk_dynamodb::types::TransactWriteItem;

use super::Ledger;
use super::acquire::Acquire;
use super::claim::unchanged_values;
use super::conditional::Write;
use super::errors::{Cancelled, LedgerError, Reason, in_row, unfinished};
use super::expressions::{END_COOLDOWN, PATH_WATERMARK_STAYS, PIN, PK, PRESENT, SK, UNPIN, claim_unchanged, name};
use super::meta_condition::Seen;
use super::rows::{self, n, s};
use super::transaction::update_operation;
use crate::domain::keys::{HEALTH, req_sk};
use crate::domain::lease::Lease;
use crate::domain::page::{Meta, PendingNotification, ReqRow, ReqStatus, VersionRow};
use crate::domain::page_key::PageKey;
use crate::domain::request::IdempotencyKey;
use crate::domain::seconds;
use crate::domain::version::Version;
use crate::random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// With the new version.
    Done(Version),
    /// A worker holds the page's lease until `until_ms`, unless it renews. Retry in a moment.
    Busy { until_ms: u64 },
    /// A worker published at the same moment. Retry.
    Superseded,
    /// There is no such page, or no such version.
    NotFound,
}

/// How long an operator's command holds the lease: two round trips, with time to spare.
const LEASE_MS: u64 = 15_000;

/// What an operator does to a page.
enum Command {
    Pin,
    Unpin { at_ms: u64 },
    RollBack { to: Version },
    Purge,
}

impl Ledger {
    /// Keeps the published version until unpinned.
    pub async fn pin(&self, page: &PageKey) -> Result<Operation, LedgerError> {
        self.operate(page, Command::Pin).await
    }

    /// Lets the page be regenerated again. The watermark goes into the same transaction, so that
    /// the page is stale from then on even if the caller crashes before it enqueues `changed`.
    /// `at_ms` is the upper bound of the current time.
    pub async fn unpin(&self, page: &PageKey, at_ms: u64) -> Result<Operation, LedgerError> {
        self.operate(page, Command::Unpin { at_ms }).await
    }

    /// Publishes a kept version again, and pins it.
    pub async fn roll_back(&self, page: &PageKey, to: &Version) -> Result<Operation, LedgerError> {
        self.operate(page, Command::RollBack { to: *to }).await
    }

    /// Publishes a tombstone, and pins it: a change that was sent within ε of the purge would
    /// otherwise bring the page back.
    pub async fn purge(&self, page: &PageKey) -> Result<Operation, LedgerError> {
        self.operate(page, Command::Purge).await
    }

    async fn operate(&self, page: &PageKey, command: Command) -> Result<Operation, LedgerError> {
        let lease = match self.acquire(page, LEASE_MS).await? {
            Acquire::Granted(lease) => lease,
            Acquire::Held { until_ms } => return Ok(Operation::Busy { until_ms }),
        };
        let done = self.operate_under(&lease, command).await;
        // Spent by the change itself, if it was applied. If its result is unknown, it can no longer be
        // applied after this. Best effort: a lease that stays expires by itself.
        if !matches!(done, Ok(Operation::Done(_))) {
            let _ = self.release(lease).await;
        }
        done
    }

    async fn operate_under(&self, lease: &Lease, command: Command) -> Result<Operation, LedgerError> {
        let page = lease.page();
        let state = self.lookup(page).await?;
        let Some(previous) = state.meta else { return Ok(Operation::NotFound) };
        let now_ms = self.now_ms();
        let meta = carried_whole(previous.clone());
        let (mut meta, pin) = match command {
            Command::Pin => (meta, Pin::Set { at_ms: now_ms }),
            Command::Unpin { at_ms } => {
                // Watermarks only rise, also if another operator's clock is ahead of this one's.
                let watermark_ms = state.health.path_watermark_ms.unwrap_or_default().max(at_ms);
                (meta, Pin::Lift { watermark_ms })
            }
            Command::RollBack { to } => {
                // Read under the lease, as maintenance deletes under it: the version's body is still
                // there when META points at it (I4).
                let Some(kept) = self.kept_version(page, &to).await? else { return Ok(Operation::NotFound) };
                (rolled_back(meta, kept, now_ms), Pin::Set { at_ms: now_ms })
            }
            Command::Purge => (tombstone(meta, now_ms), Pin::Set { at_ms: now_ms }),
        };
        let seen = Seen::of(Some(&previous));
        let version = seen.next_version(previous.source_ms.unwrap_or_default(), random::number());
        meta.version = Some(version);
        meta.shown_since = Meta::shown_since_after(Some(&previous), &meta);
        // A foreign writer's ttl would let DynamoDB delete the operator's version.
        meta.ttl = None;
        let operations = vec![self.publish(page, &meta, &seen)?, self.spend_lease(lease)?, self.write_pin(page, pin)?];
        match self.transact(operations).await {
            Ok(()) => Ok(Operation::Done(version)),
            Err(Cancelled::Conditions(reasons)) => Ok(match reasons.first() {
                Some(Reason::ConditionFailed(_)) => Operation::Superseded,
                Some(Reason::Fine) | None => Operation::Busy { until_ms: self.now_ms() },
            }),
            // META says whether it was applied.
            Err(other @ (Cancelled::Unknown(_) | Cancelled::Passing(_))) => {
                let now = self.lookup(page).await?;
                match now.meta.and_then(|meta| meta.version) {
                    Some(published) if published == version => Ok(Operation::Done(version)),
                    Some(_) | None => Err(unfinished("publishing an operator's change in META", other)),
                }
            }
            Err(other @ Cancelled::Refused(_)) => Err(unfinished("publishing an operator's change in META", other)),
        }
    }

    /// Ends the page's cooldown, so that the next request is rendered at once. The count of failures
    /// stays: one more failure cools down for longer.
    pub async fn end_cooldown(&self, page: &PageKey) -> Result<(), LedgerError> {
        let doing = "ending the cooldown in HEALTH";
        let update = self.dynamodb.update_item().table_name(&self.table).key(PK, s(self.pk(page))).key(SK, s(HEALTH));
        let update = update.update_expression(END_COOLDOWN).condition_expression(PRESENT);
        Write::of(doing, update.send().await)?.applied().map(drop)
    }

    /// Deletes the record of a request whose worker is gone, if it is still the one that was read.
    /// Only a claim that has expired, so that no worker can complete it any more; its message, if it
    /// is still there, is claimed anew. Returns whether the record was deleted.
    pub async fn delete_abandoned(
        &self,
        page: &PageKey,
        key: &IdempotencyKey,
        row: &ReqRow,
    ) -> Result<bool, LedgerError> {
        let doing = "deleting an abandoned record in REQ";
        let live = row.claim_expires_ms.is_some_and(|until_ms| until_ms > self.now_ms());
        if row.status == ReqStatus::Completed || live {
            return Ok(false);
        }
        let delete = self
            .dynamodb
            .delete_item()
            .table_name(&self.table)
            .key(PK, s(self.pk(page)))
            .key(SK, s(req_sk(key)))
            .condition_expression(claim_unchanged(row.owner.is_some(), row.claim_expires_ms.is_some()))
            .expression_attribute_names("#owner", name::OWNER)
            .expression_attribute_names("#status", name::STATUS)
            .set_expression_attribute_values(Some(unchanged_values(row)));
        Write::of(doing, delete.send().await)?.applied()
    }

    /// The row of a version that is kept.
    pub async fn kept_version(&self, page: &PageKey, version: &Version) -> Result<Option<VersionRow>, LedgerError> {
        let doing = "reading a kept version";
        let item = self.item(doing, &self.pk(page), &version.sk()).await?;
        item.map(|item| rows::version(&item)).transpose().map_err(in_row(doing))
    }

    fn write_pin(&self, page: &PageKey, pin: Pin) -> Result<TransactWriteItem, LedgerError> {
        let pk = self.pk(page);
        let update = match pin {
            Pin::Set { at_ms } => self
                .update(&pk, HEALTH, PIN)
                .expression_attribute_names("#ttl", name::TTL)
                .expression_attribute_values(":at", n(at_ms)),
            Pin::Lift { watermark_ms } => self
                .update(&pk, HEALTH, UNPIN)
                .condition_expression(PATH_WATERMARK_STAYS)
                .expression_attribute_values(":at", n(watermark_ms)),
        };
        update_operation(update)
    }
}

enum Pin {
    Set { at_ms: u64 },
    Lift { watermark_ms: u64 },
}

/// From here on META carries every field itself, and no pointer to a foreign version row.
fn carried_whole(meta: Meta) -> Meta {
    if meta.pointer { Meta { pointer: false, current_sk: None, ..meta } } else { meta }
}

/// The old content under a new version: generated now, for it is fresh from now on, and with the
/// old `source_ms`, for it has seen no later change.
fn rolled_back(meta: Meta, kept: VersionRow, now_ms: u64) -> Meta {
    Meta {
        s3_key: kept.s3_key,
        generated_at: seconds::floor(now_ms),
        etag: kept.etag,
        source_ms: kept.source_ms,
        // Of the version that is rolled back: its changes are no longer shown.
        newest_sent_ms: None,
        modified_at: Some(seconds::floor(now_ms)),
        status: Some(kept.status),
        headers: kept.headers,
        body_digest: Some(kept.body_digest),
        artifact_digest: Some(kept.artifact_digest),
        body_bytes: Some(kept.body_bytes),
        // Not META's own: a bypass has a life of zero and perhaps other tags.
        revalidate_seconds: kept.revalidate_seconds.unwrap_or(meta.revalidate_seconds).max(1),
        max_stale_seconds: kept.max_stale_seconds,
        must_revalidate: kept.must_revalidate,
        stale_if_error_seconds: kept.stale_if_error_seconds,
        validators: kept.validators,
        tags: kept.tags,
        deploy: Some(kept.deploy),
        current_sk: Some(kept.version.sk()),
        tombstone: false,
        bypass: None,
        pending_notification: Some(PendingNotification::by_any_request()),
        ..meta
    }
}

fn tombstone(meta: Meta, now_ms: u64) -> Meta {
    Meta {
        generated_at: seconds::floor(now_ms),
        // Readers in other languages know no tombstone: with a life they would take the old body
        // for a fresh one.
        revalidate_seconds: 0,
        source_ms: Some(now_ms),
        modified_at: Some(seconds::floor(now_ms)),
        status: Some(410),
        headers: Vec::new(),
        etag: None,
        body_digest: None,
        artifact_digest: None,
        body_bytes: None,
        validators: None,
        current_sk: None,
        bypass: None,
        tombstone: true,
        pending_notification: Some(PendingNotification::by_any_request()),
        ..meta
    }
}

//! commit: publishes a version, completes its request and releases the lease, all or nothing.

use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem};

use super::acquire::Renewal;
use super::errors::{Cancelled, LedgerError, Reason};
use super::expressions::{
    ABSENT, CLAIM_MINE, CLEAR_FAILURES, COUNT_WITHDRAWAL, LEASE_HELD, PK, SK, WITHDRAWALS_LEFT, complete, name,
};
use super::meta_condition::Seen;
use super::rows::{self, Item, n, s};
use super::transaction::{delete_operation, put_operation, update_operation};
use super::{Claim, Ledger};
use crate::branches::{Branch, reached};
use crate::domain::keys::{HEALTH, LOCK, META, withdrawn_sk};
use crate::domain::lease::Lease;
use crate::domain::page::{Meta, ReqRow, ReqStatus};
use crate::domain::page_key::PageKey;
use crate::domain::request_events::Stage;
use crate::domain::seconds;

#[derive(Debug)]
pub enum Commit {
    Done,
    /// Another worker published since lookup. The rights come back, to be given up.
    Superseded(Rights),
    /// Another worker has the lease.
    LostLease(Rights),
    /// Another worker took the request over.
    LostClaim(Rights),
    /// The origin has taken down as many pages of the tenant as it may for now.
    TooManyWithdrawals(Rights),
    /// Whether it was applied is not known, and it may still be applied until the rights are given
    /// up.
    Unknown(Rights, LedgerError),
}

/// What a commit that was not applied returns.
#[derive(Debug)]
pub struct Rights {
    pub claim: Claim,
    pub lease: Lease,
}

#[derive(Clone, Debug)]
pub struct Publication {
    /// META as it will be.
    pub meta: Meta,
    /// META as lookup saw it.
    pub seen: Seen,
    /// The content changed and the route keeps history: the version gets a row of its own.
    pub keep_version: bool,
    /// Lookup saw failures, which this success ends.
    pub clear_failures: bool,
    /// The content did not change.
    pub unchanged: bool,
    /// The version takes a published page down, which is counted.
    pub withdrawal: Option<Withdrawal>,
}

/// What is counted of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    /// The beginning of the ten minutes in which it is counted.
    pub from_ms: u64,
    /// How many the tenant may have in them.
    pub limit: u32,
}

/// The time in which withdrawals are counted together.
pub const WITHDRAWAL_WINDOW_MS: u64 = 600_000;

/// How long the count stays after its window, for an operator to read.
const WITHDRAWALS_KEPT_SECONDS: u64 = 86_400;

/// Until when the row of the ten minutes from `from_ms` stays.
pub(super) fn withdrawals_ttl(from_ms: u64) -> u64 {
    seconds::floor(from_ms) + WITHDRAWALS_KEPT_SECONDS
}

const COMMITTING: &str = "committing META, REQ and LOCK";

/// The order of the operations, which is the order of the reasons for a cancellation.
const META_AT: usize = 0;
const LOCK_AT: usize = 1;
const REQ_AT: usize = 2;
/// Only of a withdrawal.
const WITHDRAWAL_AT: usize = 3;

impl Ledger {
    /// Publishes the version and releases the lease atomically, on condition that META is what
    /// lookup saw (I2), that the claim is still ours (I3) and that the lease is. A lease that has
    /// only expired is revived once by its own token. A withdrawal is counted in the same
    /// transaction, on condition that the tenant has some left.
    pub async fn commit(
        &self,
        claim: Claim,
        mut lease: Lease,
        publication: &Publication,
        lease_ms: u64,
    ) -> Result<Commit, LedgerError> {
        let mut revived = false;
        loop {
            let refusal = match self.transact(self.commit_operations(&claim, &lease, publication)?).await {
                Ok(()) => return Ok(Commit::Done),
                Err(refusal) => refusal,
            };
            let reasons = match refusal {
                Cancelled::Conditions(reasons) => reasons,
                // The record says whether it was applied.
                Cancelled::Unknown(error) | Cancelled::Passing(error) => {
                    let record = self.claimed(&claim).await;
                    reached(unknown_branch(&record, &claim));
                    return match record {
                        Ok(Some(row)) if is_my_commit(&row, &claim) => Ok(Commit::Done),
                        Ok(_) | Err(_) => {
                            let source = LedgerError::Unavailable { doing: COMMITTING, source: error };
                            Ok(Commit::Unknown(Rights { claim, lease }, source))
                        }
                    };
                }
                Cancelled::Refused(source) => {
                    return Err(LedgerError::Refused { doing: COMMITTING, source });
                }
            };
            if let Some(Reason::ConditionFailed(row)) = reasons.get(REQ_AT) {
                let row = row.as_ref().and_then(|item| rows::req(item).ok());
                reached(overtaken_branch(row.as_ref(), &claim));
                return Ok(match row {
                    // The first response was lost and DynamoDB has forgotten the token: the record
                    // is our own commit's.
                    Some(row) if is_my_commit(&row, &claim) => Commit::Done,
                    Some(_) | None => Commit::LostClaim(Rights { claim, lease }),
                });
            }
            if matches!(reasons.get(META_AT), Some(Reason::ConditionFailed(_))) {
                return Ok(Commit::Superseded(Rights { claim, lease }));
            }
            let only_expired = match reasons.get(LOCK_AT) {
                Some(Reason::ConditionFailed(Some(item))) => is_my_lock(item, &lease),
                Some(Reason::ConditionFailed(None) | Reason::Fine) | None => false,
            };
            let lease_held = !matches!(reasons.get(LOCK_AT), Some(Reason::ConditionFailed(_)));
            // Without a withdrawal, another operation is at its place.
            let counted = publication.withdrawal.is_some();
            if counted && lease_held && matches!(reasons.get(WITHDRAWAL_AT), Some(Reason::ConditionFailed(_))) {
                return Ok(Commit::TooManyWithdrawals(Rights { claim, lease }));
            }
            // No other worker took it after it expired: one more try, with the same condition on
            // META.
            if !only_expired || revived {
                reached(Branch::LeaseLostAtCommit);
                return Ok(Commit::LostLease(Rights { claim, lease }));
            }
            match self.renew(&mut lease, lease_ms).await {
                Ok(Renewal::Renewed) => {
                    reached(Branch::LeaseRevived);
                    revived = true;
                }
                Ok(Renewal::Lost) => return Ok(Commit::LostLease(Rights { claim, lease })),
                Err(error) => {
                    reached(Branch::LeaseRevivalUnknown);
                    return Ok(Commit::Unknown(Rights { claim, lease }, error));
                }
            }
        }
    }

    fn commit_operations(
        &self,
        claim: &Claim,
        lease: &Lease,
        publication: &Publication,
    ) -> Result<Vec<TransactWriteItem>, LedgerError> {
        let meta = &publication.meta;
        let mut operations = vec![
            self.publish(lease.page(), meta, &publication.seen)?,
            self.spend_lease(lease)?,
            self.complete(claim, publication)?,
        ];
        if let Some(withdrawal) = &publication.withdrawal {
            operations.push(self.count_withdrawal(lease.page(), withdrawal)?);
        }
        if publication.clear_failures {
            operations.push(self.clear_failures(lease.page())?);
        }
        if publication.keep_version
            && let Some(version) = meta.version
        {
            operations.push(self.keep_version(lease.page(), meta, &version.sk())?);
        }
        Ok(operations)
    }

    /// Replaces META on condition that it is the row that was seen. An update and not a put:
    /// attributes that a newer version added stay.
    pub(super) fn publish(&self, page: &PageKey, meta: &Meta, seen: &Seen) -> Result<TransactWriteItem, LedgerError> {
        let mut set = Vec::new();
        let mut remove = Vec::new();
        let mut update = self.update(&self.pk(page), META, "");
        let own = rows::meta_attributes(meta);
        let listing = [(name::TENANT, Some(s(page.tenant().as_str()))), (name::PATH, Some(s(page.path().as_str())))];
        for (index, (attribute, value)) in own.into_iter().chain(listing).enumerate() {
            // Some of the names are reserved words, so all are placeholders.
            update = update.expression_attribute_names(format!("#a{index}"), attribute);
            match value {
                Some(value) => {
                    set.push(format!("#a{index} = :a{index}"));
                    update = update.expression_attribute_values(format!(":a{index}"), value);
                }
                None => remove.push(format!("#a{index}")),
            }
        }
        let mut expression = format!("SET {}", set.join(", "));
        if !remove.is_empty() {
            expression = format!("{expression} REMOVE {}", remove.join(", "));
        }
        update = update.update_expression(expression);
        update = seen.is_still(update);
        update_operation(update)
    }

    /// Deletes the lease; its condition is the check that it is ours. DynamoDB refuses a check and
    /// a delete of one item.
    pub(super) fn spend_lease(&self, lease: &Lease) -> Result<TransactWriteItem, LedgerError> {
        let delete = self
            .delete(&self.pk(lease.page()), LOCK, LEASE_HELD)
            .expression_attribute_values(":token", s(lease.token().as_str()))
            .expression_attribute_values(":now", n(seconds::floor(self.now_ms())));
        delete_operation(delete)
    }

    fn complete(&self, claim: &Claim, publication: &Publication) -> Result<TransactWriteItem, LedgerError> {
        // On a copy: if the transaction is refused, the claim's events must not contain the commit.
        let mut events = claim.events.clone();
        let stage = match (&publication.meta.bypass, publication.unchanged) {
            (Some(_), _) => Stage::Bypassed,
            (None, true) => Stage::Unchanged,
            (None, false) => Stage::Committed,
        };
        claim.note(&mut events, stage, self.now_ms());
        let (result, values) = rows::result_of(&publication.meta);
        let mut update = self
            .update(&claim.pk, &claim.sk, complete(result))
            .condition_expression(CLAIM_MINE)
            .expression_attribute_names("#owner", name::OWNER)
            .expression_attribute_names("#status", name::STATUS)
            .expression_attribute_values(":owner", s(&claim.owner))
            .expression_attribute_values(":started", s(ReqStatus::Started.as_str()))
            .expression_attribute_values(":events", rows::events(&events));
        for (name, value) in values {
            update = update.expression_attribute_values(name, value);
        }
        update_operation(update)
    }

    fn clear_failures(&self, page: &PageKey) -> Result<TransactWriteItem, LedgerError> {
        let update = self.update(&self.pk(page), HEALTH, CLEAR_FAILURES);
        update_operation(update.expression_attribute_names("#ttl", name::TTL))
    }

    fn count_withdrawal(&self, page: &PageKey, withdrawal: &Withdrawal) -> Result<TransactWriteItem, LedgerError> {
        let update = self
            .update(&page.tenant().inval_pk(), &withdrawn_sk(withdrawal.from_ms), COUNT_WITHDRAWAL)
            .condition_expression(WITHDRAWALS_LEFT)
            .expression_attribute_names("#ttl", name::TTL)
            .expression_attribute_values(":one", n(1u64))
            .expression_attribute_values(":limit", n(u64::from(withdrawal.limit)))
            .expression_attribute_values(":ttl", n(withdrawals_ttl(withdrawal.from_ms)));
        update_operation(update)
    }

    fn keep_version(&self, page: &PageKey, meta: &Meta, sk: &str) -> Result<TransactWriteItem, LedgerError> {
        let mut item: Item = rows::version_item(meta);
        item.insert(PK.to_owned(), s(self.pk(page)));
        item.insert(SK.to_owned(), s(sk));
        let put = self.put(&self.pk(page), sk, ABSENT).set_item(Some(item));
        put_operation(put)
    }
}

fn unknown_branch(record: &Result<Option<ReqRow>, LedgerError>, claim: &Claim) -> Branch {
    match record {
        Ok(Some(row)) if is_my_commit(row, claim) => Branch::CommitUnknownThenDone,
        Ok(_) => Branch::CommitUnknownThenNot,
        Err(_) => Branch::CommitUnknownUnread,
    }
}

fn overtaken_branch(record: Option<&ReqRow>, claim: &Claim) -> Branch {
    match record {
        Some(row) if is_my_commit(row, claim) => Branch::CommitRecognised,
        Some(row) if row.status == ReqStatus::Completed => Branch::OvertakenByCommit,
        Some(_) | None => Branch::OvertakenInProgress,
    }
}

fn is_my_commit(row: &ReqRow, claim: &Claim) -> bool {
    row.status == ReqStatus::Completed && row.owner.as_deref() == Some(claim.owner.as_str())
}

fn is_my_lock(item: &Item, lease: &Lease) -> bool {
    item.get(name::LEASE_TOKEN) == Some(&AttributeValue::S(lease.token().as_str().to_owned()))
}

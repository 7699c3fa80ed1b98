//! fail and give up: the ends of an attempt that published nothing.

use aws_sdk_dynamodb::types::TransactWriteItem;

use super::claim::given_back_values;
use super::commit::Rights;
use super::errors::{LedgerError, Reason};
use super::expressions::{CLAIM_MINE, FAIL, GIVE_BACK, LEASE_MINE, cool_down, name};
use super::rows::{self, n, s};
use super::transaction::{Transaction, delete_operation, update_operation};
use super::{Claim, Ledger};
use crate::branches::{Branch, reached};
use crate::domain::health::Health;
use crate::domain::keys::{HEALTH, LOCK};
use crate::domain::lease::Lease;
use crate::domain::outcome::ErrorClass;
use crate::domain::page::ReqStatus;
use crate::domain::page_key::PageKey;
use crate::domain::request_events::Stage;

const REQ_AT: usize = 0;
const LOCK_AT: usize = 1;

/// Branches for when only the claim is left, only the lease, and neither.
const FAILED: [Branch; 3] = [Branch::FailedWithoutLease, Branch::FailedWithoutClaim, Branch::FailedWithoutRights];
const GAVE_UP: [Branch; 3] = [Branch::GaveUpWithoutLease, Branch::GaveUpWithoutClaim, Branch::GaveUpWithoutRights];

impl Ledger {
    /// Records the failure, starts the page's cooldown and releases the lease, in one transaction.
    /// If claim or lease was taken over, only the other half is written: an overtaken worker
    /// changes nothing that belongs to its successor (I5).
    ///
    /// With `health_ttl` the page's health may be deleted from that second on.
    pub async fn fail(
        &self,
        rights: Rights,
        class: ErrorClass,
        health: Health,
        health_ttl: Option<u64>,
    ) -> Result<(), LedgerError> {
        let Rights { mut claim, lease } = rights;
        claim.reached(Stage::Failed, self.now_ms());
        let cooldown = self.cool_down(lease.page(), &health, class, health_ttl)?;
        let whole = vec![self.record_failure(&claim, class)?, self.drop_lease(&lease)?, cooldown];
        let halves = [vec![self.record_failure(&claim, class)?], vec![self.drop_lease(&lease)?]];
        self.whole_or_half("recording a failure in REQ and HEALTH", whole, halves, FAILED).await
    }

    /// Gives claim and lease back without counting the attempt. This also fences a commit whose
    /// response was lost: from here on it is refused.
    pub async fn give_up(&self, rights: Rights) -> Result<(), LedgerError> {
        let Rights { mut claim, lease } = rights;
        claim.reached(Stage::GivenBack, self.now_ms());
        let whole = vec![self.return_claim(&claim)?, self.drop_lease(&lease)?];
        let halves = [vec![self.return_claim(&claim)?], vec![self.drop_lease(&lease)?]];
        self.whole_or_half("giving up the claim in REQ and the lease in LOCK", whole, halves, GAVE_UP).await
    }

    async fn whole_or_half(
        &self,
        doing: &'static str,
        whole: Vec<TransactWriteItem>,
        [req_half, lock_half]: [Vec<TransactWriteItem>; 2],
        [claim_left, lease_left, nothing_left]: [Branch; 3],
    ) -> Result<(), LedgerError> {
        let reasons = match self.transact_if(doing, whole).await? {
            Transaction::Applied => return Ok(()),
            Transaction::ConditionsFailed(reasons) => reasons,
        };
        let still_mine = |at: usize| matches!(reasons.get(at), Some(Reason::Fine));
        let (half, branch) = match (still_mine(REQ_AT), still_mine(LOCK_AT)) {
            (true, false) => (req_half, claim_left),
            (false, true) => (lock_half, lease_left),
            (true, true) | (false, false) => {
                reached(nothing_left);
                return Ok(());
            }
        };
        reached(branch);
        // If its condition fails now, that half was lost meanwhile too.
        self.transact_if(doing, half).await.map(drop)
    }

    fn record_failure(&self, claim: &Claim, class: ErrorClass) -> Result<TransactWriteItem, LedgerError> {
        let update = self
            .update(&claim.pk, &claim.sk, FAIL)
            .condition_expression(CLAIM_MINE)
            .expression_attribute_names("#owner", name::OWNER)
            .expression_attribute_names("#status", name::STATUS)
            .expression_attribute_values(":owner", s(&claim.owner))
            .expression_attribute_values(":started", s(ReqStatus::Started.as_str()))
            .expression_attribute_values(":failed", s(ReqStatus::Failed.as_str()))
            .expression_attribute_values(":class", s(class.as_str()))
            .expression_attribute_values(":events", rows::events(&claim.events));
        update_operation(update)
    }

    pub(super) fn return_claim(&self, claim: &Claim) -> Result<TransactWriteItem, LedgerError> {
        let update = self
            .update(&claim.pk, &claim.sk, GIVE_BACK)
            .condition_expression(CLAIM_MINE)
            .expression_attribute_names("#owner", name::OWNER)
            .expression_attribute_names("#status", name::STATUS)
            .set_expression_attribute_values(Some(given_back_values(claim)));
        update_operation(update)
    }

    fn drop_lease(&self, lease: &Lease) -> Result<TransactWriteItem, LedgerError> {
        let delete = self.delete(&self.pk(lease.page()), LOCK, LEASE_MINE);
        let delete = delete.expression_attribute_values(":token", s(lease.token().as_str()));
        delete_operation(delete)
    }

    fn cool_down(
        &self,
        page: &PageKey,
        health: &Health,
        class: ErrorClass,
        ttl: Option<u64>,
    ) -> Result<TransactWriteItem, LedgerError> {
        let pk = self.pk(page);
        let mut update = self.update(&pk, HEALTH, cool_down(ttl.is_some(), health.refused.as_deref()));
        if let Some(ttl) = ttl {
            update = update.expression_attribute_names("#ttl", name::TTL).expression_attribute_values(":ttl", n(ttl));
        }
        if let Some(refused) = &health.refused {
            update = update
                .expression_attribute_values(":reason", s(&refused.reason))
                .expression_attribute_values(":refused_at", n(refused.at_ms));
            if let Some(key) = &refused.s3_key {
                update = update.expression_attribute_values(":key", s(key));
            }
        }
        let update = update
            .expression_attribute_values(":failures", n(u64::from(health.failures)))
            .expression_attribute_values(":next", n(health.next_attempt_ms.unwrap_or_default()))
            .expression_attribute_values(":class", s(class.as_str()))
            .expression_attribute_values(":now", n(self.now_ms()));
        update_operation(update)
    }
}

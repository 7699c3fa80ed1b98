//! claim: the right to handle one request.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};

use super::Ledger;
use super::conditional::Write;
use super::errors::{LedgerError, in_row};
use super::expressions::{ABSENT, PK, SK, claim_unchanged, name};
use super::rows::{self, Item, n, s};
use super::transaction::Transaction;
use crate::branches::{Branch, reached};
use crate::domain::claim::{ClaimVerdict, Claimant, judge, record_ttl};
use crate::domain::digest::Digest;
use crate::domain::keys::req_sk;
use crate::domain::outcome::RejectReason;
use crate::domain::page::{ReqRow, ReqStatus};
use crate::domain::page_key::PageKey;
use crate::domain::request::IdempotencyKey;
use crate::domain::request_events::{self, Event, Stage};
use crate::random;

/// This worker's right to handle a request. Commit, fail and give back consume it.
#[derive(Debug)]
pub struct Claim {
    pub(super) pk: String,
    pub(super) sk: String,
    pub(super) owner: String,
    pub(super) attempts: u32,
    pub(super) stale_answers: u32,
    /// The attempt's number in event sequence numbers. Every claim has its own, also one that is
    /// given back.
    pub(super) attempt: u32,
    pub(super) events: Vec<Event>,
}

#[derive(Debug)]
pub enum ClaimOutcome {
    Won(Claim),
    /// The request was completed before.
    Replayed,
    /// Another worker's claim is valid until `until_ms`.
    Busy {
        until_ms: u64,
    },
    Rejected(RejectReason),
}

/// How often the record is judged because it changed between judging and taking over.
const ROUNDS: usize = 4;

#[derive(Clone, Copy, Debug)]
pub struct ClaimTerms<'a> {
    pub key: &'a IdempotencyKey,
    pub request_hash: Digest,
    /// When the message was sent.
    pub sent_ms: u64,
    /// When this invocation received it.
    pub received_ms: u64,
    /// Until when the claim is respected.
    pub expires_ms: u64,
    pub max_attempts: u32,
}

/// The record's count so far. A redrive resets it, as it does that of attempts.
fn stale_answers(known: Option<&ReqRow>, claimant: &Claimant<'_>, now_ms: u64) -> u32 {
    let counted = known.filter(|row| row.counts(now_ms) && !claimant.is_redrive_of(row));
    counted.map_or(0, |row| row.stale_answers)
}

impl Claim {
    /// Counts a response of the origin's cache from before the change. Returns the count.
    pub(crate) fn answered_stale(&mut self, now_ms: u64) -> u32 {
        self.stale_answers = self.stale_answers.saturating_add(1);
        self.reached(Stage::OriginStale, now_ms);
        self.stale_answers
    }

    pub(crate) fn stale_answers(&self) -> u32 {
        self.stale_answers
    }

    /// Adds the event to the claim. It is stored with the claim's next write.
    pub(crate) fn reached(&mut self, stage: Stage, now_ms: u64) {
        let mut events = std::mem::take(&mut self.events);
        self.note(&mut events, stage, now_ms);
        self.events = events;
    }

    pub(super) fn note(&self, events: &mut Vec<Event>, stage: Stage, now_ms: u64) {
        // The estimate of AWS's time may move back during an attempt; its events stay in order.
        let last_ms = events.last().map_or(0, |event| event.at_ms);
        request_events::record(events, Event::new(self.attempt, stage, now_ms.max(last_ms)));
    }
}

impl Ledger {
    /// Claims the request for this worker.
    ///
    /// Idempotent for the same attempt: if the response to the first write is lost, the record is
    /// recognised as its own. A record of a crashed or failed attempt is taken over only if it is
    /// still the one that was judged.
    pub async fn claim(&self, page: &PageKey, terms: ClaimTerms<'_>) -> Result<ClaimOutcome, LedgerError> {
        let owner = format!("{:032x}", random::token());
        let claimant = Claimant {
            owner: &owner,
            request_hash: terms.request_hash,
            sent_ms: terms.sent_ms,
            max_attempts: terms.max_attempts,
        };
        let (pk, sk) = (self.pk(page), req_sk(terms.key));
        let mut known: Option<ReqRow> = None;
        for _ in 0..ROUNDS {
            let now_ms = self.now_ms();
            let attempts = match known.as_ref().map(|row| judge(row, &claimant, now_ms)) {
                None => 1,
                Some(ClaimVerdict::TakeOver { attempts }) => {
                    reached(Branch::ClaimTakeover);
                    attempts
                }
                Some(ClaimVerdict::Mine) => {
                    reached(Branch::ClaimRecognised);
                    let Some(row) = known.take() else { continue };
                    // The last attempt in its events is the one that this write began.
                    let attempt = request_events::next_attempt(&row.events).saturating_sub(1);
                    let ReqRow { attempts, stale_answers, events, .. } = row;
                    let claim = Claim { pk, sk, owner, attempts, stale_answers, attempt, events };
                    return Ok(ClaimOutcome::Won(claim));
                }
                Some(ClaimVerdict::Replayed) => {
                    reached(Branch::ClaimReplayed);
                    return Ok(ClaimOutcome::Replayed);
                }
                Some(ClaimVerdict::Busy { until_ms }) => {
                    reached(Branch::ClaimHeld);
                    return Ok(ClaimOutcome::Busy { until_ms });
                }
                Some(ClaimVerdict::Rejected { reason }) => {
                    reached(Branch::ClaimRejected);
                    return Ok(ClaimOutcome::Rejected(reason));
                }
            };
            let old_events = known.as_ref().filter(|row| row.counts(now_ms)).map(|row| row.events.clone());
            let mut claim = Claim {
                pk: pk.clone(),
                sk: sk.clone(),
                owner: owner.clone(),
                attempts,
                stale_answers: stale_answers(known.as_ref(), &claimant, now_ms),
                attempt: request_events::next_attempt(old_events.as_deref().unwrap_or_default()),
                events: old_events.unwrap_or_default(),
            };
            claim.reached(Stage::Received, terms.received_ms.min(now_ms));
            claim.reached(Stage::Claimed, now_ms);
            match self.write_claim(&claim, known.as_ref(), &terms, now_ms).await {
                Ok(Written::Mine) => return Ok(ClaimOutcome::Won(claim)),
                Ok(Written::Other(row)) => {
                    if known.is_some() {
                        reached(Branch::ClaimTakeoverRefused);
                    }
                    known = row.map(|row| *row);
                }
                Ok(Written::Conflict) => {
                    reached(Branch::ClaimConflict);
                    return Ok(ClaimOutcome::Busy { until_ms: now_ms });
                }
                // None of the SDK's attempts was answered. The write may have been applied all the
                // same.
                Err(error) => match self.claimed(&claim).await {
                    Ok(Some(row)) if row.owner.as_deref() == Some(&owner) => {
                        reached(Branch::ClaimUnknownThenMine);
                        known = Some(row);
                    }
                    Ok(_) => {
                        reached(Branch::ClaimUnknownThenNot);
                        return Err(error);
                    }
                    Err(unread) => {
                        reached(Branch::ClaimUnknownUnread);
                        return Err(unread);
                    }
                },
            }
        }
        // The record changes faster than it can be judged: other workers are handling it.
        Ok(ClaimOutcome::Busy { until_ms: self.now_ms() })
    }

    async fn write_claim(
        &self,
        claim: &Claim,
        known: Option<&ReqRow>,
        terms: &ClaimTerms<'_>,
        now_ms: u64,
    ) -> Result<Written, LedgerError> {
        let doing = "claiming the request in REQ";
        let mut put = self
            .dynamodb
            .put_item()
            .table_name(&self.table)
            .set_item(Some(started(claim, terms, now_ms)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        put = match known {
            None => put.condition_expression(ABSENT),
            Some(row) => put
                .condition_expression(claim_unchanged(row.owner.is_some(), row.claim_expires_ms.is_some()))
                .expression_attribute_names("#status", name::STATUS)
                .expression_attribute_names("#owner", name::OWNER)
                .set_expression_attribute_values(Some(unchanged_values(row))),
        };
        match Write::of(doing, put.send().await)? {
            Write::Applied => Ok(Written::Mine),
            Write::ConditionFailed(item) => {
                let row = item.as_ref().map(rows::req).transpose().map_err(in_row(doing))?;
                Ok(Written::Other(row.map(Box::new)))
            }
            // Another delivery of the request commits at this moment.
            Write::Conflict(_) => Ok(Written::Conflict),
        }
    }

    /// Gives the claim back without counting the attempt. Returns false if it was taken over.
    ///
    /// Conditioned like a failure: a commit of ours that is still in flight must not be undone. The
    /// owner is removed, so that such a commit is refused from now on.
    pub async fn give_back(&self, mut claim: Claim) -> Result<bool, LedgerError> {
        claim.reached(Stage::GivenBack, self.now_ms());
        // As a transaction, which is repeated while another one holds the record: a claim that is
        // kept counts as an attempt.
        let given_back =
            match self.transact_if("giving back the claim in REQ", vec![self.return_claim(&claim)?]).await? {
                Transaction::Applied => true,
                Transaction::ConditionsFailed(_) => false,
            };
        if !given_back {
            reached(Branch::GiveBackRefused);
        }
        Ok(given_back)
    }
}

pub(super) fn given_back_values(claim: &Claim) -> HashMap<String, AttributeValue> {
    [
        (":owner", s(&claim.owner)),
        (":started", s(ReqStatus::Started.as_str())),
        (":expired", n(0u64)),
        (":attempts", n(u64::from(claim.attempts.saturating_sub(1)))),
        (":stale", n(u64::from(claim.stale_answers))),
        (":events", rows::events(&claim.events)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

enum Written {
    Mine,
    /// Another attempt's record; none if it was deleted between write and response.
    Other(Option<Box<ReqRow>>),
    /// A transaction holds the record.
    Conflict,
}

/// The values of [`claim_unchanged`].
pub(super) fn unchanged_values(row: &ReqRow) -> HashMap<String, AttributeValue> {
    let mut values = vec![(":old_status", s(row.status.as_str()))];
    if row.owner.is_none() || row.claim_expires_ms.is_none() {
        values.push((":null", s("NULL")));
    }
    values.extend(row.owner.as_ref().map(|owner| (":old_owner", s(owner))));
    values.extend(row.claim_expires_ms.map(|expiry| (":old_expiry", n(expiry))));
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn started(claim: &Claim, terms: &ClaimTerms<'_>, now_ms: u64) -> Item {
    [
        (PK, s(&claim.pk)),
        (SK, s(&claim.sk)),
        (name::REQUEST_HASH, s(terms.request_hash.to_string())),
        (name::STATUS, s(ReqStatus::Started.as_str())),
        (name::TTL, n(record_ttl(now_ms))),
        (name::OWNER, s(&claim.owner)),
        (name::CLAIM_EXPIRES_MS, n(terms.expires_ms)),
        (name::ATTEMPTS, n(u64::from(claim.attempts))),
        (name::STALE_ANSWERS, n(u64::from(claim.stale_answers))),
        (name::EVENTS, rows::events(&claim.events)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

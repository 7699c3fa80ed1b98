//! The trigger: a signed HTTP request enqueues a regeneration, or reads the state of one.
//!
//! Read `Trigger::answer` first. Until its signature is verified, a request makes no call outside
//! of this instance. Then it costs one write of its nonce, by which it counts once, and one message
//! or read. What a replay costs is in `limits`.
//!
//! Nothing is coalesced here. A change must never be dropped in favour of an earlier one, so a
//! request could only join a send that has not happened yet; and Lambda gives an instance one
//! request at a time. Each is sent at once, and the worker's coverage turns a flood into at most
//! two renders.
//!
//! | Where | What |
//! |---|---|
//! | [`endpoint`] | the endpoints, and parsing what they take |
//! | [`signature`] | keys, what is signed, and its verification |
//! | `limits` | rate limits, and known nonces |
//! | `regeneration` | the message, handle and key of a regeneration |
//! | `replies`, [`error`] | the JSON replies |

pub mod endpoint;
pub mod error;
mod limits;
mod regeneration;
mod replies;
pub mod signature;

use std::sync::Arc;

use bytes::Bytes;
use everfresh_core::config::{TenantConfig, host_name};
use everfresh_core::domain::freshness::{Freshness, Policy};
use everfresh_core::domain::page_key::PageHash;
use everfresh_core::domain::request::{Handle, IdempotencyKey, SentHandle};
use everfresh_core::domain::request_state::{RequestState, Situation, request_state};
use everfresh_core::domain::scrub;
use everfresh_core::ledger::{Ledger, LedgerError, Nonce};
use everfresh_core::metrics;
use everfresh_enqueue::{Reason, attributes};

use crate::http::{Reply, Request};
use crate::log_throttle::{LogThrottle, Problem};
use crate::metrics::MetricsBuffer;
use crate::regeneration_queue::{Queue, QueueError};
use crate::server::RETRY_AFTER;
use crate::settings::Settings;
use endpoint::{Endpoint, MOST_BODY_BYTES, RevalidateTarget, parse_after};
use error::TriggerError;
use limits::{Bucket, Limited, TriggerLimits};
use regeneration::Regeneration;
use signature::{Admitted, Denied, RevalidateKeys, SignedRequest};

#[derive(Debug)]
pub(crate) struct Trigger {
    keys: RevalidateKeys,
    limits: TriggerLimits,
    ledger: Ledger,
    /// Rows are found by path, not by hash: a handle names no row.
    raw_keys: bool,
    deploy: u64,
    epsilon_ms: u64,
    queue: Arc<Queue>,
    metrics: Arc<MetricsBuffer>,
    log: Arc<LogThrottle>,
}

impl Trigger {
    pub(crate) fn new(
        settings: &Settings,
        ledger: Ledger,
        queue: Arc<Queue>,
        metrics: Arc<MetricsBuffer>,
        log: Arc<LogThrottle>,
    ) -> Self {
        let limits = TriggerLimits::new(settings.revalidate_per_minute, ledger.time().local_now_ms());
        let (keys, raw_keys) = (settings.revalidate_keys.clone(), settings.layout.raw_keys);
        let (deploy, epsilon_ms) = (settings.deploy, settings.epsilon_ms);
        Self { keys, limits, ledger, raw_keys, deploy, epsilon_ms, queue, metrics, log }
    }

    /// Answers a request below `/_everfresh/`, with the host that decided its tenant.
    pub(crate) async fn serve(&self, request: &Request, host: Option<&str>, tenant: Option<&TenantConfig>) -> Reply {
        let reply = self.answer(request, host, tenant).await.unwrap_or_else(|error| {
            if let Some(metric) = error.metric() {
                self.metrics.count(metric);
            }
            error.reply()
        });
        if request.method == "HEAD" { reply.body(Bytes::new()) } else { reply }
    }

    /// endpoint → tenant → signature and time → known replay → parameters → limits → nonce → send,
    /// or read.
    async fn answer(
        &self,
        request: &Request,
        host: Option<&str>,
        tenant: Option<&TenantConfig>,
    ) -> Result<Reply, TriggerError> {
        if self.keys.is_empty() {
            return Err(TriggerError::NotFound);
        }
        let endpoint = Endpoint::find(&request.method, &request.target)?;
        let tenant = tenant.ok_or(TriggerError::Host)?;
        if request.body.len() > MOST_BODY_BYTES {
            return Err(TriggerError::TooLarge);
        }
        let admitted = self.verify(request, host).map_err(|denied| self.unsigned(tenant, denied))?;
        if self.limits.is_replay(&admitted) {
            return Err(self.unsigned(tenant, Denied::Replayed));
        }
        match endpoint {
            Endpoint::Revalidate { query } => {
                let regeneration = Regeneration::new(tenant, RevalidateTarget::parse(query, &request.body)?, request)?;
                self.spend_nonce(tenant, &admitted, Bucket::Changes, Some(&regeneration.key)).await?;
                self.send(tenant, regeneration).await
            }
            Endpoint::Request { handle, query } => {
                let handle: SentHandle = handle.parse().map_err(|error| bad_handle(&error))?;
                let after = parse_after(query)?;
                self.spend_nonce(tenant, &admitted, Bucket::StateReads, None).await?;
                self.read_state(tenant, &handle, after).await
            }
        }
    }

    fn verify(&self, request: &Request, host: Option<&str>) -> Result<Admitted, Denied> {
        let header = |name| request.header(name).ok_or(Denied::Malformed);
        let host = host.and_then(host_name).ok_or(Denied::Malformed)?;
        let signed = SignedRequest {
            method: &request.method,
            host: &host,
            target: &request.target,
            timestamp: header("x-everfresh-timestamp")?,
            nonce: header("x-everfresh-nonce")?,
            request_id: request.header("x-request-id").unwrap_or_default(),
            body: &request.body,
        };
        let (key_id, signature) = (header("x-everfresh-key-id")?, header("x-everfresh-signature")?);
        self.keys.admit(key_id, signature, &signed, self.now_ms())
    }

    fn unsigned(&self, tenant: &TenantConfig, denied: Denied) -> TriggerError {
        let (tenant, detail) = (&tenant.tenant, denied.as_str());
        if self.log.should_log(Problem::Unsigned, &format!("{tenant} {detail}")) {
            tracing::warn!(%tenant, detail, "signed request for tenant {tenant} refused with 401: {denied}");
        }
        TriggerError::Unsigned
    }

    /// Writes the nonce: from now on the request is a replay.
    async fn spend_nonce(
        &self,
        tenant: &TenantConfig,
        admitted: &Admitted,
        bucket: Bucket,
        key: Option<&IdempotencyKey>,
    ) -> Result<(), TriggerError> {
        let limited = |Limited { retry_after }| TriggerError::Limited { retry_after };
        self.limits.may_write(bucket, self.local_now_ms()).map_err(limited)?;
        let Admitted { key_id, nonce, keep_until } = admitted;
        match self.ledger.spend_nonce(key_id, nonce, *keep_until).await {
            Ok(Nonce::Spent) => {
                self.limits.accepted(bucket, admitted, self.local_now_ms());
                Ok(())
            }
            Ok(Nonce::Replayed) => {
                self.limits.replayed(admitted);
                Err(self.unsigned(tenant, Denied::Replayed))
            }
            Err(error) => Err(self.ledger_failed(&error, key)),
        }
    }

    /// Returns once SQS has the message: the caller must know.
    async fn send(&self, tenant: &TenantConfig, regeneration: Regeneration) -> Result<Reply, TriggerError> {
        let Regeneration { message, handle, key, page } = regeneration;
        let attributes: Vec<(&str, &str)> = page.as_deref().map(|hash| (attributes::PAGE, hash)).into_iter().collect();
        // Before the send: no later than its message.
        let sent_ms = Some(self.now_ms());
        match self.queue.send(&message, &attributes).await {
            Ok(()) => {
                let tenant = &tenant.tenant;
                // Not the handle, which contains the key.
                let (target, key_hash) = (page.as_deref().unwrap_or("a tag"), scrub::key(key.as_str()));
                tracing::info!(%tenant, page, key = key_hash, "signed request enqueued for {target} of {tenant}");
                self.metrics.count(metrics::TRIGGERED);
                Ok(replies::accepted(&SentHandle { handle, sent_ms }, &key))
            }
            Err(QueueError::Message(error)) => Err(TriggerError::bad(&error.to_string(), "Change the request's body.")),
            Err(QueueError::Unavailable) => Err(TriggerError::Unavailable { retry_after: RETRY_AFTER, key: Some(key) }),
        }
    }

    /// Only rows of the host's tenant are read (I7).
    async fn read_state(&self, tenant: &TenantConfig, sent: &SentHandle, after: u64) -> Result<Reply, TriggerError> {
        let SentHandle { handle, sent_ms } = sent;
        if self.raw_keys && matches!(handle, Handle::Page { .. }) {
            return Err(TriggerError::RawKeys);
        }
        let failed = |error| self.ledger_failed(&error, None);
        let row = self.ledger.request_by_handle(&tenant.tenant, handle).await.map_err(failed)?;
        let row = row.filter(|row| row.counts(self.now_ms()));
        Ok(match (row, handle, sent_ms) {
            (Some(row), _, _) => replies::recorded(sent, &row, after),
            (None, Handle::Page { page, .. }, Some(sent_ms)) => {
                let computed = self.computed_state(tenant, *page, *sent_ms).await.map_err(failed)?;
                replies::computed(sent, computed, after)
            }
            (None, _, _) => replies::computed(sent, RequestState::Unknown, after),
        })
    }

    /// Of a request without a record: one that another request's version covers never gets one. What
    /// a signed request sends is always `changed`.
    async fn computed_state(
        &self,
        tenant: &TenantConfig,
        page: PageHash,
        sent_ms: u64,
    ) -> Result<RequestState, LedgerError> {
        let state = self.ledger.lookup_by_hash(&tenant.tenant, page).await?.unwrap_or_default();
        let paused = self.ledger.pauses().await?.of(&tenant.tenant).is_some();
        let policy = Policy { deploy: self.deploy, max_stale_seconds: None, epsilon_ms: self.epsilon_ms };
        Ok(request_state(&Situation {
            reason: Reason::Changed,
            sent_ms,
            meta: state.meta.as_ref(),
            health: &state.health,
            lock: state.lock.as_ref(),
            freshness: Freshness::Missing,
            policy: &policy,
            paused,
            // The function may not count the queue's messages.
            queued: None,
            now_ms: self.now_ms(),
        }))
    }

    fn ledger_failed(&self, error: &LedgerError, key: Option<&IdempotencyKey>) -> TriggerError {
        self.metrics.count(metrics::DYNAMODB_OUTAGE);
        let table = self.ledger.table();
        tracing::error!(table, %error, "signed request answered with 503, DynamoDB table {table}: {error}");
        TriggerError::Unavailable { retry_after: RETRY_AFTER, key: key.cloned() }
    }

    fn now_ms(&self) -> u64 {
        self.ledger.time().now_ms()
    }

    /// The sandbox's own clock, for durations.
    fn local_now_ms(&self) -> u64 {
        self.ledger.time().local_now_ms()
    }
}

fn bad_handle(error: &impl std::fmt::Display) -> TriggerError {
    TriggerError::bad(&error.to_string(), "Take the handle from the answer to POST /_everfresh/revalidate.")
}

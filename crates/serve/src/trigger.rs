//! The other flow: a signed HTTP request asks for a regeneration, or what became of one.
//!
//! Read `Server::triggered` first. A request costs nothing beyond this instance until its signature has been found right; then it
//! costs one write, by which it counts once, and its message or its read. What a replay costs is in [`crate::limits`].
//!
//! Nothing is coalesced here. A change must never be dropped for an earlier one's sake, so a call could only join a send that has not
//! happened yet; and Lambda gives an instance one request at a time, so there never is one to join. Each is sent at once, and what the
//! worker's coverage makes of a flood is at most two renders.

use bytes::Bytes;
use everfresh_core::chance;
use everfresh_core::config::{TenantConfig, host_name};
use everfresh_core::domain::request::{Handle, IdempotencyKey};
use everfresh_core::domain::scrub;
use everfresh_core::domain::tag::Tag;
use everfresh_core::ledger::{LedgerError, Nonce};
use everfresh_core::metrics;
use everfresh_enqueue::{Message, SendError, attributes};

use crate::limits::{Limited, Share};
use crate::remarks::Remark;
use crate::reply::Reply;
use crate::request::Request;
use crate::rules::signature::{Admitted, Denied, SignedRequest};
use crate::rules::trigger::{self, Endpoint, MOST_BODY_BYTES, Wanted};
use crate::rules::trigger_error::TriggerError;
use crate::serve::{RETRY_AFTER, Server};
use crate::wish::LONGEST;

/// A regeneration that can be asked for.
struct Change {
    message: Message,
    handle: Handle,
    key: IdempotencyKey,
    /// Hash of the page, if it is one.
    page: Option<String>,
}

impl Server {
    /// Answers whatever is asked below `/_everfresh/`.
    pub(crate) async fn trigger(&self, request: &Request) -> Reply {
        let reply = self.triggered(request).await.unwrap_or_else(|refused| {
            match refused {
                TriggerError::Unsigned => self.count(metrics::TRIGGERS_UNSIGNED),
                TriggerError::Limited { .. } => self.count(metrics::TRIGGERS_LIMITED),
                // Counted with what is down.
                TriggerError::Unavailable { .. } => {}
                TriggerError::NotFound
                | TriggerError::Method { .. }
                | TriggerError::Host
                | TriggerError::TooLarge
                | TriggerError::Bad { .. }
                | TriggerError::RawKeys => self.count(metrics::REFUSED),
            }
            refused.reply()
        });
        if request.method == "HEAD" { reply.body(Bytes::new()) } else { reply }
    }

    /// endpoint → tenant → signature and time → known replay → what is asked → limits → nonce → send, or read.
    async fn triggered(&self, request: &Request) -> Result<Reply, TriggerError> {
        if self.settings.revalidate_keys.is_empty() {
            return Err(TriggerError::NotFound);
        }
        let endpoint = Endpoint::find(&request.method, &request.target)?;
        let tenant = self.tenant(request).ok_or(TriggerError::Host)?;
        if request.body.len() > MOST_BODY_BYTES {
            return Err(TriggerError::TooLarge);
        }
        let admitted = self.admit(request).map_err(|denied| self.unsigned(tenant, denied))?;
        if self.limits.is_replay(&admitted) {
            return Err(self.unsigned(tenant, Denied::Replayed));
        }
        match endpoint {
            Endpoint::Revalidate { query } => {
                let change = change(tenant, Wanted::parse(query, &request.body)?, request)?;
                self.spend(tenant, &admitted, Share::Changes, Some(&change.key)).await?;
                self.send(tenant, change).await
            }
            Endpoint::Request { handle, query } => {
                let handle: Handle = handle.parse().map_err(|error| bad_handle(&error))?;
                let after = trigger::parse_after(query)?;
                self.spend(tenant, &admitted, Share::Questions, None).await?;
                self.tell(tenant, &handle, after).await
            }
        }
    }

    /// Whether the request is signed, and now.
    fn admit(&self, request: &Request) -> Result<Admitted, Denied> {
        let header = |name| request.header(name).ok_or(Denied::Malformed);
        let host = self.host(request).and_then(host_name).ok_or(Denied::Malformed)?;
        let letter = SignedRequest {
            method: &request.method,
            host: &host,
            target: &request.target,
            timestamp: header("x-everfresh-timestamp")?,
            nonce: header("x-everfresh-nonce")?,
            request_id: request.header("x-request-id").unwrap_or_default(),
            body: &request.body,
        };
        let (key_id, signature) = (header("x-everfresh-key-id")?, header("x-everfresh-signature")?);
        self.settings.revalidate_keys.admit(key_id, signature, &letter, self.now_ms())
    }

    fn unsigned(&self, tenant: &TenantConfig, denied: Denied) -> TriggerError {
        let (tenant, why) = (&tenant.tenant, denied.as_str());
        if self.remarks.due(Remark::Unsigned, &format!("{tenant} {why}")) {
            tracing::warn!(%tenant, why, "a request to regenerate pages of {tenant} is not signed as it must be: {why}");
        }
        TriggerError::Unsigned
    }

    /// Uses the request up: from now on it is a replay.
    async fn spend(
        &self,
        tenant: &TenantConfig,
        admitted: &Admitted,
        share: Share,
        key: Option<&IdempotencyKey>,
    ) -> Result<(), TriggerError> {
        let limited = |Limited { retry_after }| TriggerError::Limited { retry_after };
        self.limits.may_write(share, self.local_now_ms()).map_err(limited)?;
        let Admitted { key_id, nonce, keep_until } = admitted;
        match self.pages.ledger().spend_nonce(key_id, nonce, *keep_until).await {
            Ok(Nonce::Spent) => {
                self.limits.passed(share, admitted, self.local_now_ms());
                Ok(())
            }
            Ok(Nonce::Replayed) => {
                self.limits.replayed(admitted);
                Err(self.unsigned(tenant, Denied::Replayed))
            }
            Err(error) => Err(self.table_down(&error, key)),
        }
    }

    /// Sends the change, and waits for the queue to have it: whoever asks must know.
    async fn send(&self, tenant: &TenantConfig, change: Change) -> Result<Reply, TriggerError> {
        let Change { message, handle, key, page } = change;
        let beside: Vec<(&str, &str)> = page.as_deref().map(|hash| (attributes::PAGE, hash)).into_iter().collect();
        let why = match tokio::time::timeout(LONGEST, self.sender.send_with(&message, &beside)).await {
            Ok(Ok(_)) => {
                if self.queue_breaker.answered() {
                    tracing::info!("the queue takes wishes again");
                }
                let tenant = &tenant.tenant;
                // Not the handle, which holds the key: whoever sent the key knows both.
                let (about, key_hash) = (page.as_deref().unwrap_or("a tag"), scrub::key(key.as_str()));
                tracing::info!(%tenant, page, key = key_hash, "a signed request asks for {about} of {tenant}");
                self.count(metrics::TRIGGERED);
                return Ok(trigger::accepted(&handle, &key));
            }
            Ok(Err(SendError::Message(error))) => {
                return Err(TriggerError::bad(&error.to_string(), "Change what is asked for."));
            }
            Ok(Err(error @ SendError::Queue { .. })) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        self.not_taken(&why);
        Err(TriggerError::Unavailable { retry_after: RETRY_AFTER, key: Some(key) })
    }

    /// What became of a request. Only rows of the host's tenant are looked at (I7).
    async fn tell(&self, tenant: &TenantConfig, handle: &Handle, after: u64) -> Result<Reply, TriggerError> {
        if self.settings.layout.raw_keys && matches!(handle, Handle::Page { .. }) {
            return Err(TriggerError::RawKeys);
        }
        match self.pages.ledger().request_by_handle(&tenant.tenant, handle).await {
            Ok(row) => {
                let row = row.filter(|row| row.counts(self.now_ms()));
                Ok(trigger::told(handle, row.as_ref(), after))
            }
            Err(error) => Err(self.table_down(&error, None)),
        }
    }

    fn table_down(&self, error: &LedgerError, key: Option<&IdempotencyKey>) -> TriggerError {
        self.count(metrics::DYNAMODB_OUTAGE);
        tracing::error!(%error, "a signed request cannot be answered: {error}");
        TriggerError::Unavailable { retry_after: RETRY_AFTER, key: key.cloned() }
    }
}

/// The change that is asked for, if the tenant has such a page or there can be such a tag.
fn change(tenant: &TenantConfig, wanted: Wanted, request: &Request) -> Result<Change, TriggerError> {
    let key = match request.header("x-request-id") {
        Some(id) => IdempotencyKey::parse(id),
        None => IdempotencyKey::parse(&format!("http-{:032x}", chance::token())),
    };
    let key = key.map_err(|error| TriggerError::bad(&format!("x-request-id {error}"), "Send another one, or none."))?;
    let name = tenant.tenant.as_str();
    let (mut message, handle, page) = match wanted {
        Wanted::Path(path) => {
            let found = tenant.resolve(&path);
            let page =
                found.map_err(|error| TriggerError::bad(&error.to_string(), "Ask for a page of this host."))?.page;
            let handle = Handle::Page { page: page.hash(), key: key.clone() };
            (Message::path(name, page.path().as_str()), handle, Some(page.hash().to_string()))
        }
        Wanted::Tag(tag) => {
            let tag =
                Tag::parse(&tag).map_err(|error| TriggerError::bad(&error.to_string(), "Ask for another tag."))?;
            (Message::tag(name, tag.as_str()), Handle::Inval { key: key.clone() }, None)
        }
    };
    message.idempotency_key = Some(key.clone());
    Ok(Change { message, handle, key, page })
}

fn bad_handle(error: &impl std::fmt::Display) -> TriggerError {
    TriggerError::bad(&error.to_string(), "Take the handle from the answer to POST /_everfresh/revalidate.")
}

//! What the requests of one worker's present invocation have done, as the services saw it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use everfresh_local::faults::Call;
use http::Response;
use serde_json::Value;

/// An attempt whose withdrawal DynamoDB refused, because the tenant has none left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub pk: String,
    /// Sort key of the request's record.
    pub sk: String,
    /// Owner of the attempt's claim.
    pub owner: String,
}

impl Refusal {
    /// Of this commit, if DynamoDB has refused it for that reason.
    pub fn of(call: &Call, request: &Value, response: &Response<Bytes>) -> Option<Self> {
        if call.operation != "TransactWriteItems" || response.status().as_u16() != 400 {
            return None;
        }
        let response: Value = serde_json::from_slice(response.body()).ok()?;
        let items = request["TransactItems"].as_array()?;
        let updates: Vec<&Value> = items.iter().map(|item| &item["Update"]).collect();
        let sk = |update: &Value| update["Key"]["sk"]["S"].as_str().unwrap_or_default().to_owned();
        let refused = updates.iter().enumerate().any(|(index, update)| {
            let code = response["CancellationReasons"][index]["Code"].as_str();
            sk(update).starts_with("WITHDRAWN#") && code == Some("ConditionalCheckFailed")
        });
        let record = updates.iter().find(|update| sk(update).starts_with("REQ#")).filter(|_| refused)?;
        let owner = record["ExpressionAttributeValues"][":owner"]["S"].as_str()?.to_owned();
        Some(Self { pk: record["Key"]["pk"]["S"].as_str()?.to_owned(), sk: sk(record), owner })
    }
}

/// Clones share it: the connection of a sandbox writes, its invocations read.
#[derive(Clone, Debug, Default)]
pub struct InvocationTrace {
    uploaded: Arc<AtomicBool>,
    leased: Arc<AtomicBool>,
    refusals: Arc<Mutex<Vec<Refusal>>>,
}

impl InvocationTrace {
    /// Another invocation begins.
    pub fn begin(&self) {
        self.uploaded.store(false, Ordering::Relaxed);
        self.leased.store(false, Ordering::Relaxed);
        self.refusals().clear();
    }

    /// `is_lease` is whether the request takes a lease.
    pub fn add(&self, call: &Call, is_lease: bool, request: &Value, response: &Response<Bytes>) {
        if is_lease && response.status().is_success() {
            self.leased.store(true, Ordering::Relaxed);
        }
        if call.operation == "PutObject" && response.status().is_success() {
            self.uploaded.store(true, Ordering::Relaxed);
        }
        self.refusals().extend(Refusal::of(call, request, response));
    }

    /// Whether it has uploaded a body.
    pub fn has_uploaded(&self) -> bool {
        self.uploaded.load(Ordering::Relaxed)
    }

    /// Whether it has taken a lease since the last call: its render is about to begin.
    pub fn has_just_leased(&self) -> bool {
        self.leased.swap(false, Ordering::Relaxed)
    }

    /// Its refused withdrawals so far.
    pub fn refused(&self) -> Vec<Refusal> {
        self.refusals().clone()
    }

    fn refusals(&self) -> MutexGuard<'_, Vec<Refusal>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

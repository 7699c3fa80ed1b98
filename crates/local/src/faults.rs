//! Fault injection between an SDK client and a service, decided per request: by script for a single
//! test, by seed for a simulation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};

use crate::engines::Service;

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service answers with an internal error and has not executed the request.
    FailBefore,
    /// The service executes the request, then answers with an internal error.
    FailAfter,
    /// The service executes the request, and the connection breaks before the response arrives.
    LoseResponse,
    /// The connection breaks before the service receives the request.
    Cut,
    /// The request arrives after this time, even if the client has timed out by then.
    Delay(Duration),
    /// The request is answered, and executed once more after this time.
    DuplicateLater(Duration),
    /// The request never arrives, and the connection stays open without a response.
    Hang,
    /// The service executes the request, and the connection stays open without a response.
    HangAfter,
    /// DynamoDB: another transaction is changing the item. S3: another conditional write is running
    /// (409).
    Conflict,
    /// DynamoDB: the transaction with the same token is still running.
    InProgress,
    /// Throttling; `SlowDown` on S3.
    Throttle,
    /// DynamoDB: the transaction is cancelled because one of its items is in a throttled partition.
    /// The SDK does not retry it.
    Overload,
}

impl Fault {
    /// The results of [`Fault::kind`].
    pub const KINDS: [&'static str; 12] = [
        "fail-before",
        "fail-after",
        "lose-response",
        "cut",
        "delay",
        "duplicate-later",
        "hang",
        "hang-after",
        "conflict",
        "in-progress",
        "throttle",
        "overload",
    ];

    /// Name of the fault without its parameters, for counting.
    pub fn kind(self) -> &'static str {
        match self {
            Self::FailBefore => "fail-before",
            Self::FailAfter => "fail-after",
            Self::LoseResponse => "lose-response",
            Self::Cut => "cut",
            Self::Delay(_) => "delay",
            Self::DuplicateLater(_) => "duplicate-later",
            Self::Hang => "hang",
            Self::HangAfter => "hang-after",
            Self::Conflict => "conflict",
            Self::InProgress => "in-progress",
            Self::Throttle => "throttle",
            Self::Overload => "overload",
        }
    }

    /// Whether a real service could do this to this call.
    pub fn applies_to(self, call: &Call) -> bool {
        match self {
            Self::Conflict => call.can_conflict(),
            Self::InProgress | Self::Overload => call.operation == "TransactWriteItems",
            Self::FailBefore
            | Self::FailAfter
            | Self::LoseResponse
            | Self::Cut
            | Self::Delay(_)
            | Self::DuplicateLater(_)
            | Self::Hang
            | Self::HangAfter
            | Self::Throttle => true,
        }
    }
}

/// What a fault can select a request by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub service: Service,
    /// As named in the service's API.
    pub operation: String,
    /// Whether the request has an `If-Match` or `If-None-Match` header. Meaningful for S3.
    pub conditional: bool,
}

impl Call {
    pub fn of(request: &Request<Bytes>) -> Self {
        let service = Service::of(request);
        let operation = match service {
            Service::S3 => s3_operation(request).to_owned(),
            Service::DynamoDb | Service::Sqs | Service::EventBridge => target_operation(request),
            Service::CloudFront => "CreateInvalidation".to_owned(),
            Service::Sns => "Publish".to_owned(),
            Service::Lambda => "Invoke".to_owned(),
        };
        let conditional = request.headers().contains_key("if-none-match") || request.headers().contains_key("if-match");
        Self { service, operation, conditional }
    }

    fn can_conflict(&self) -> bool {
        match self.service {
            Service::DynamoDb => matches!(
                self.operation.as_str(),
                "TransactWriteItems" | "TransactGetItems" | "PutItem" | "UpdateItem" | "DeleteItem"
            ),
            Service::S3 => self.operation == "PutObject" && self.conditional,
            Service::Sqs | Service::Lambda | Service::CloudFront | Service::EventBridge | Service::Sns => false,
        }
    }
}

fn target_operation(request: &Request<Bytes>) -> String {
    let target = request.headers().get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default().to_owned()
}

fn s3_operation(request: &Request<Bytes>) -> &'static str {
    let has_key = request.uri().path().trim_start_matches('/').split_once('/').is_some_and(|(_, key)| !key.is_empty());
    match (request.method(), has_key) {
        (&Method::PUT, true) => "PutObject",
        (&Method::GET, true) => "GetObject",
        (&Method::HEAD, true) => "HeadObject",
        (&Method::DELETE, true) => "DeleteObject",
        (&Method::PUT, false) => "CreateBucket",
        (&Method::HEAD, false) => "HeadBucket",
        (&Method::GET, false) => "ListObjectsV2",
        (&Method::POST, false) => "DeleteObjects",
        _ => "Other",
    }
}

/// Which calls a scripted fault applies to: of one operation, from the n-th on, a number of times.
#[derive(Clone, Debug)]
pub struct On {
    operation: &'static str,
    skip: u64,
    times: u64,
}

impl On {
    /// Only the next call of this operation.
    pub fn next(operation: &'static str) -> Self {
        Self { operation, skip: 0, times: 1 }
    }

    /// Every call of this operation from now on.
    pub fn every(operation: &'static str) -> Self {
        Self { operation, skip: 0, times: u64::MAX }
    }

    /// Skips the first `calls`.
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// Applies to this many calls.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }
}

/// Rate of each fault, in calls per ten thousand.
#[derive(Clone, Debug, Default)]
pub struct Rates(pub Vec<(Fault, u32)>);

/// Decides which calls fail, and how. Clones share script and counters.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    script: Vec<(On, Fault)>,
    seeded: Option<(fastrand::Rng, Rates)>,
    fired: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// No faults until some are injected.
    pub fn none() -> Self {
        Self::default()
    }

    /// Random faults, the same for the same seed and the same calls.
    pub fn seeded(seed: u64, rates: Rates) -> Self {
        let state = State { seeded: Some((fastrand::Rng::with_seed(seed), rates)), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Adds a fault to the script. If several apply to a call, the first added is used.
    pub fn inject(&self, on: On, fault: Fault) {
        self.state().script.push((on, fault));
    }

    /// Ends all faults, scripted and seeded.
    pub fn clear(&self) {
        let mut state = self.state();
        state.script.clear();
        state.seeded = None;
    }

    /// Number of faults so far, by kind.
    pub fn fired(&self) -> BTreeMap<&'static str, u64> {
        self.state().fired.clone()
    }

    pub(crate) fn decide(&self, call: &Call) -> Option<Fault> {
        let mut state = self.state();
        let fault = state.scripted(call).or_else(|| state.random(call))?;
        *state.fired.entry(fault.kind()).or_default() += 1;
        Some(fault)
    }

    // A poisoned lock must not hide the panic of the failing test.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn scripted(&mut self, call: &Call) -> Option<Fault> {
        let mut chosen = None;
        for (on, fault) in &mut self.script {
            if on.operation != call.operation || on.times == 0 {
                continue;
            }
            if on.skip > 0 {
                on.skip -= 1;
            } else if chosen.is_none() {
                on.times -= 1;
                chosen = Some(*fault);
            }
        }
        chosen
    }

    fn random(&mut self, call: &Call) -> Option<Fault> {
        let (rng, rates) = self.seeded.as_mut()?;
        let mut draw = rng.u32(0..10_000);
        for &(fault, rate) in &rates.0 {
            if draw < rate {
                return Some(fault).filter(|fault| fault.applies_to(call));
            }
            draw -= rate;
        }
        None
    }
}

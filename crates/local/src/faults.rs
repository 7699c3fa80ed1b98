//! What goes wrong between an SDK client and a service, decided request by request: by script for a test that tells one story, by
//! seed for a simulation that tells thousands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};

use crate::engines::Service;

/// Something that goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service answers with its internal error and has done nothing.
    FailBefore,
    /// The service does it, then answers with its internal error.
    FailAfter,
    /// The service does it, and the connection breaks before the answer arrives.
    LoseResponse,
    /// The connection breaks before the service sees the request.
    Cut,
    /// The request is on its way for this long. It arrives even if the client has given up by then.
    Delay(Duration),
    /// The request arrives, is answered, and arrives once more after this long.
    DuplicateLater(Duration),
    /// The request never arrives and nobody says so.
    Hang,
    /// The service does it, and nobody ever says so.
    NotifyBackoff,
    /// DynamoDB: another transaction touches the item. S3: another conditional write is under way (409).
    Conflict,
    /// DynamoDB: the same transaction is still being worked on.
    InProgress,
    /// The service sheds load: throttling on DynamoDB and SQS, `SlowDown` on S3.
    Throttle,
    /// DynamoDB: the transaction is cancelled, for one of its items lies in an overloaded partition. The SDK does not send it again.
    Overload,
}

impl Fault {
    /// All names.
    pub const KINDS: [&'static str; 12] = [
        "fail-before",
        "fail-after",
        "lose-response",
        "cut",
        "delay",
        "duplicate-later",
        "hang",
        "silence",
        "conflict",
        "in-progress",
        "throttle",
        "overload",
    ];

    /// The fault's name without its numbers, for counting.
    pub fn kind(self) -> &'static str {
        match self {
            Self::FailBefore => "fail-before",
            Self::FailAfter => "fail-after",
            Self::LoseResponse => "lose-response",
            Self::Cut => "cut",
            Self::Delay(_) => "delay",
            Self::DuplicateLater(_) => "duplicate-later",
            Self::Hang => "hang",
            Self::NotifyBackoff => "silence",
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
            | Self::NotifyBackoff
            | Self::Throttle => true,
        }
    }
}

/// One request, as a fault sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whose it is.
    pub service: Service,
    /// The operation's name in the service's API.
    pub operation: String,
    /// Whether it asks for the write to happen only under a condition. Told for S3, whose operation names do not say it.
    pub conditional: bool,
}

impl Call {
    /// Reads what the request is from its head.
    pub fn of(request: &Request<Bytes>) -> Self {
        let service = Service::of(request);
        let operation = match service {
            Service::S3 => s3_operation(request).to_owned(),
            Service::DynamoDb | Service::Sqs | Service::EventBridge => target_operation(request),
            Service::CloudFront => "CreateInvalidation".to_owned(),
            Service::Sns => "Publish".to_owned(),
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
            Service::Sqs | Service::CloudFront | Service::EventBridge | Service::Sns => false,
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

/// Which calls a scripted fault befalls: of one operation, from the n-th on, so many times.
#[derive(Clone, Debug)]
pub struct On {
    operation: &'static str,
    skip: u64,
    times: u64,
}

impl On {
    /// The next call of this operation, and that one only.
    pub fn next(operation: &'static str) -> Self {
        Self { operation, skip: 0, times: 1 }
    }

    /// Every call of this operation from now on.
    pub fn every(operation: &'static str) -> Self {
        Self { operation, skip: 0, times: u64::MAX }
    }

    /// Spares the first `calls`.
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// Happens this often.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }
}

/// How often a seeded source lets each fault happen, in calls out of ten thousand.
#[derive(Clone, Debug, Default)]
pub struct Rates(pub Vec<(Fault, u32)>);

/// Decides the fate of each call. Clones share the decision.
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
    /// Nothing goes wrong until a script says so.
    pub fn none() -> Self {
        Self::default()
    }

    /// Things go wrong at random, the same way for the same seed and the same calls.
    pub fn seeded(seed: u64, rates: Rates) -> Self {
        let state = State { seeded: Some((fastrand::Rng::with_seed(seed), rates)), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Adds a fault to the script. Of several that fit a call the earliest added happens.
    pub fn inject(&self, on: On, fault: Fault) {
        self.state().script.push((on, fault));
    }

    /// Ends all faults, scripted and seeded.
    pub fn clear(&self) {
        let mut state = self.state();
        state.script.clear();
        state.seeded = None;
    }

    /// How often each kind of fault has happened.
    pub fn fired(&self) -> BTreeMap<&'static str, u64> {
        self.state().fired.clone()
    }

    pub(crate) fn decide(&self, call: &Call) -> Option<Fault> {
        let mut state = self.state();
        let fault = state.scripted(call).or_else(|| state.drawn(call))?;
        *state.fired.entry(fault.kind()).or_default() += 1;
        Some(fault)
    }

    /// A panicking test must not hide its own reason behind a poisoned lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn scripted(&mut self, call: &Call) -> Option<Fault> {
        let mut happens = None;
        for (on, fault) in &mut self.script {
            if on.operation != call.operation || on.times == 0 {
                continue;
            }
            if on.skip > 0 {
                on.skip -= 1;
            } else if happens.is_none() {
                on.times -= 1;
                happens = Some(*fault);
            }
        }
        happens
    }

    fn drawn(&mut self, call: &Call) -> Option<Fault> {
        let (rng, rates) = self.seeded.as_mut()?;
        let mut ticket = rng.u32(0..10_000);
        for &(fault, rate) in &rates.0 {
            if ticket < rate {
                return Some(fault).filter(|fault| fault.applies_to(call));
            }
            ticket -= rate;
        }
        None
    }
}

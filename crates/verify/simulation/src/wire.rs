//! The connection to the services: every request is modified if a guard is removed, applied,
//! checked, and added to the trace.

mod lines;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use everfresh_core::clock::Clock;
use everfresh_local::engines::{Engines, Service};
use everfresh_local::faults::{Call, Faults};
use everfresh_local::in_process::InProcess;
use futures::FutureExt;
use http::{HeaderValue, Request, Response};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) use self::lines::REFUSALS;
use self::lines::{canonical, refusal, row, subject};
use crate::check::{Actor, Checker};
use crate::faults::RunFault;
use crate::guards::{Guard, given_back, success};
use crate::invocation_trace::{InvocationTrace, Refusal};
use crate::profile::Profile;
use crate::queues::Queues;
use crate::rows::number;
use crate::run::CHAOS;

/// For how long a replica may lack the last write.
const REPLICA_LAG_MS: u64 = 3_000;

/// The shortest `expire_after` of a route.
const LEAST_EXPIRY_S: u64 = 3_600;

/// Operations that change the table.
const WRITES: [&str; 4] = ["TransactWriteItems", "PutItem", "UpdateItem", "DeleteItem"];

/// The connection of all actors to the services.
#[derive(Clone)]
pub struct Wire {
    engines: Engines,
    queues: Queues,
    checker: Checker,
    clock: Clock,
    without: Option<Guard>,
    forgets_tokens: bool,
    lease_outage_ms: Option<u64>,
    expire_after_s: u64,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    trace: Sha256,
    steps: u64,
    produced: u32,
    cancellations: BTreeMap<String, u64>,
    faults: BTreeMap<RunFault, u64>,
    lines: Option<Vec<String>>,
}

impl Wire {
    /// With `verbose`, it keeps one line per step.
    pub fn new(
        engines: Engines,
        queues: Queues,
        checker: Checker,
        clock: Clock,
        without: Option<Guard>,
        verbose: bool,
    ) -> Self {
        let seen = Seen { lines: verbose.then(Vec::new), ..Seen::default() };
        Self {
            engines,
            queues,
            checker,
            clock,
            without,
            forgets_tokens: false,
            lease_outage_ms: None,
            expire_after_s: LEAST_EXPIRY_S,
            seen: Arc::new(Mutex::new(seen)),
        }
    }

    /// Adds the faults of DynamoDB in this run, and how soon pages expire.
    pub fn with(self, profile: &Profile) -> Self {
        Self {
            forgets_tokens: profile.forgets_tokens,
            lease_outage_ms: profile.lease_outage_ms,
            expire_after_s: profile.expire_after_s(),
            ..self
        }
    }

    /// The connection of one machine, with `faults`.
    pub fn connect(&self, actor: Actor, faults: Faults) -> InProcess {
        let wire = self.clone();
        let handle = move |request| wire.clone().arrive(actor, request).boxed();
        InProcess::over(Arc::new(handle), faults)
    }

    /// As [`Self::connect`] for a worker: `trace` gets what its requests do.
    pub fn connect_worker(&self, faults: Faults, trace: InvocationTrace) -> InProcess {
        let wire = self.clone();
        let handle = move |request: Request<Bytes>| {
            let (wire, trace) = (wire.clone(), trace.clone());
            async move {
                let (call, body) = (Call::of(&request), request.body().clone());
                let response = wire.clone().arrive(Actor::Worker, request).await;
                // Refused commits and leases are rare: most requests need not be read again.
                let read = response.status().as_u16() == 400 || call.operation == "PutItem";
                let request: Value = if read { serde_json::from_slice(&body).unwrap_or_default() } else { Value::Null };
                trace.add(&call, row(&request) == "LOCK", &request, &response);
                if let Some(refusal) = Refusal::of(&call, &request, &response) {
                    wire.checker.withdrawal_refused(refusal);
                }
                response
            }
            .boxed()
        };
        InProcess::over(Arc::new(handle), faults)
    }

    /// As [`Self::connect`] for an instance of the serving function: `bodies` gets the path of each
    /// object that it requests.
    pub fn connect_instance(&self, faults: Faults, bodies: Arc<Mutex<BTreeSet<String>>>) -> InProcess {
        let wire = self.clone();
        let handle = move |request: Request<Bytes>| {
            if Call::of(&request).operation == "GetObject" {
                let path = request.uri().path().to_owned();
                bodies.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
            }
            wire.clone().arrive(Actor::Server, request).boxed()
        };
        InProcess::over(Arc::new(handle), faults)
    }

    /// The guard that is removed.
    pub fn without(&self) -> Option<Guard> {
        self.without
    }

    async fn arrive(self, actor: Actor, request: Request<Bytes>) -> Response<Bytes> {
        let call = Call::of(&request);
        let path = request.uri().path().to_owned();
        let (parts, body) = request.into_parts();
        let mut json: Value = match call.service {
            Service::S3 | Service::Lambda | Service::CloudFront | Service::Sns => Value::Null,
            Service::DynamoDb | Service::Sqs | Service::EventBridge => {
                serde_json::from_slice(&body).unwrap_or_default()
            }
        };
        let mut request = Request::from_parts(parts, body);
        if actor == Actor::Worker && self.fails_lease(&call, &json) {
            *self.seen().faults.entry(RunFault::LeaseOutage).or_default() += 1;
            return internal_error();
        }
        if self.forgets_tokens && call.operation == "TransactWriteItems" {
            *self.seen().faults.entry(RunFault::ForgottenToken).or_default() += 1;
            json.as_object_mut().and_then(|json| json.remove("ClientRequestToken"));
            *request.body_mut() = Bytes::from(json.to_string());
        }
        if let Some(guard) = self.without {
            let keeps = actor == Actor::Worker && guard == Guard::RefusalGivesBack;
            if keeps && given_back(&json).is_some_and(|owner| self.checker.is_refused(owner)) {
                return success("{}");
            }
            if let Some(response) = guard.request(actor, &call.operation, &mut json, self.clock.now_ms()) {
                return response;
            }
            if !json.is_null() {
                *request.body_mut() = Bytes::from(json.to_string());
            }
        }
        if actor == Actor::Server
            && let Some(mut response) = self.stale_read(&call, &json)
        {
            self.weaken_response(actor, &call, &mut response);
            return response;
        }
        let late = self.without == Some(Guard::UploadBeforeCommit) && actor == Actor::Worker;
        if late && call.operation == "PutObject" {
            let mut response = Response::new(Bytes::new());
            response.headers_mut().insert("etag", HeaderValue::from_static("\"late\""));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(30)).await;
                self.apply(actor, &call, &path, request, &Value::Null).await;
            });
            return response;
        }
        self.apply(actor, &call, &path, request, &json).await
    }

    /// The answer of a replica that has not received the last write yet, for every second
    /// eventually consistent read of a page.
    fn stale_read(&self, call: &Call, request: &Value) -> Option<Response<Bytes>> {
        let consistent = request["ConsistentRead"].as_bool().unwrap_or(false);
        if call.operation != "Query" || consistent || self.seen().steps.is_multiple_of(2) {
            return None;
        }
        let pk = request["ExpressionAttributeValues"][":pk"]["S"].as_str()?;
        let items = self.checker.before_last_write(pk, REPLICA_LAG_MS)?;
        *self.seen().faults.entry(RunFault::StaleRead).or_default() += 1;
        let body = serde_json::json!({"Count": items.len(), "ScannedCount": items.len(), "Items": items});
        let mut response = Response::new(Bytes::from(body.to_string()));
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/x-amz-json-1.0"));
        response.headers_mut().insert("date", httpdate(&self.clock));
        Some(response)
    }

    /// Whether this is a single write of a lease during a lease outage. Transactions succeed.
    fn fails_lease(&self, call: &Call, request: &Value) -> bool {
        let Some(outage_ms) = self.lease_outage_ms else { return false };
        let now_ms = self.checker.store.since_start_ms();
        let fails = Duration::from_millis(now_ms) < CHAOS && now_ms / outage_ms % 2 == 1;
        fails && matches!(call.operation.as_str(), "PutItem" | "UpdateItem") && row(request) == "LOCK"
    }

    async fn apply(
        &self,
        actor: Actor,
        call: &Call,
        path: &str,
        request: Request<Bytes>,
        json: &Value,
    ) -> Response<Bytes> {
        let object = (call.operation == "PutObject").then(|| request.body().clone());
        let opaque = if json.is_null() { request.body().clone() } else { Bytes::new() };
        let mut response = match call.service {
            Service::Sqs => {
                let date = httpdate(&self.clock);
                let mut response = self.queues.call(&request, |message| {
                    self.checker.sent(message);
                    self.seen().produced += u32::from(actor == Actor::Producer);
                });
                response.headers_mut().insert("date", date);
                response
            }
            Service::DynamoDb
            | Service::S3
            | Service::Lambda
            | Service::CloudFront
            | Service::EventBridge
            | Service::Sns => self.engines.call(request).await,
        };
        let ok = response.status().is_success();
        if let (true, Some(body)) = (ok, &object) {
            self.checker.uploaded(path, body);
        }
        if ok && call.operation == "DeleteObject" {
            self.checker.deleted(actor, path);
        }
        self.step(actor, call, &response, json, (path, &opaque));
        if ok && WRITES.contains(&call.operation.as_str()) {
            self.checker.written(actor, json).await;
        }
        self.weaken_response(actor, call, &mut response);
        response
    }

    /// Removes from a response what the removed guard compares. Pages look older to the sweep than
    /// they are: it removes them after less than the hour that the configuration demands.
    fn weaken_response(&self, actor: Actor, call: &Call, response: &mut Response<Bytes>) {
        if actor == Actor::Maintenance
            && call.operation == "Query"
            && let Ok(mut json) = serde_json::from_slice(response.body())
        {
            make_older(&mut json, LEAST_EXPIRY_S - self.expire_after_s);
            *response.body_mut() = Bytes::from(json.to_string());
        }
        if let Some(guard) = self.without
            && call.operation == "Query"
            && let Ok(mut json) = serde_json::from_slice(response.body())
        {
            guard.response(actor, &call.operation, &mut json, |key| self.checker.has_message(key));
            *response.body_mut() = Bytes::from(json.to_string());
        }
    }

    /// `opaque` is the path and, if it is not JSON, the body.
    fn step(&self, actor: Actor, call: &Call, response: &Response<Bytes>, request: &Value, opaque: (&str, &[u8])) {
        let now_ms = self.checker.store.since_start_ms();
        let status = response.status().as_u16();
        let refusal = if status == 400 { refusal(response.body(), request) } else { Vec::new() };
        let mut seen = self.seen();
        seen.steps += 1;
        let line = format!("{now_ms} {actor:?} {} {status} {}", call.operation, refusal.join(","));
        seen.trace.update(line.as_bytes());
        let mut rows = String::new();
        canonical(request, &mut rows);
        seen.trace.update(rows.as_bytes());
        seen.trace.update(opaque.0.as_bytes());
        seen.trace.update(opaque.1);
        if let Some(lines) = &mut seen.lines {
            lines.push(format!("{line} {}", subject(request)));
        }
        for class in refusal {
            *seen.cancellations.entry(class).or_default() += 1;
        }
    }

    /// Adds a line that is no request but explains some.
    pub fn note(&self, what: impl FnOnce() -> String) {
        let now_ms = self.checker.store.since_start_ms();
        if let Some(lines) = &mut self.seen().lines {
            lines.push(format!("{now_ms} {}", what()));
        }
    }

    /// The hash of all requests with their times.
    pub fn trace(&self) -> String {
        let digest = self.seen().trace.clone().finalize();
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Requests so far.
    pub fn steps(&self) -> u64 {
        self.seen().steps
    }

    /// Accepted messages of producers so far.
    pub fn produced(&self) -> u32 {
        self.seen().produced
    }

    /// Refusals by error and row.
    pub fn cancellations(&self) -> BTreeMap<String, u64> {
        self.seen().cancellations.clone()
    }

    /// Faults of DynamoDB.
    pub fn faults(&self) -> BTreeMap<RunFault, u64> {
        self.seen().faults.clone()
    }

    /// One line per step, only if verbose.
    pub fn lines(&self) -> Vec<String> {
        self.seen().lines.clone().unwrap_or_default()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the published version in a response this much older.
fn make_older(response: &mut Value, by_s: u64) {
    for row in response.get_mut("Items").and_then(Value::as_array_mut).into_iter().flatten() {
        if row["sk"]["S"] == "META"
            && let Some(at) = number(row, "generated_at")
        {
            row["generated_at"] = serde_json::json!({"N": at.saturating_sub(by_s).to_string()});
        }
    }
}

/// DynamoDB's `InternalServerError`.
fn internal_error() -> Response<Bytes> {
    let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"an outage"}"#;
    let mut response = Response::new(Bytes::from_static(body.as_bytes()));
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/x-amz-json-1.0"));
    response
}

fn httpdate(clock: &Clock) -> HeaderValue {
    HeaderValue::try_from(everfresh_serve::http::conditional::http_date(clock.now_ms() / 1000))
        .unwrap_or(HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}

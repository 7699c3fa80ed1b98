//! The protocol with one guard taken away, below the SDK: the code under test stays as it is, and what it sends is changed on the way.
//! Each of these must be found, or the simulation shows nothing.
//!
//! One guard is not among them: the condition under which FAILED is written. A worker whose claim is somebody else's by then has
//! outlived its function's time-out, and its handler ends before it hears that the lease, which goes in the same transaction, is not
//! its own any more. The model takes that guard away instead.

use bytes::Bytes;
use clap::ValueEnum;
use everfresh_core::config::Ladder;
use http::Response;
use serde_json::{Value, json};

use crate::check::Actor;

/// A guard that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Sabotage {
    /// A commit is not conditioned on the META that lookup saw.
    MetaCondition,
    /// A lease is taken whoever has it.
    AcquireFree,
    /// A commit spends LOCK whoever has it.
    LockTokenCondition,
    /// A claim is written over whatever record is there.
    ClaimOnce,
    /// A takeover is not conditioned on the record that was judged.
    TakeoverExact,
    /// A crashed worker's claim never runs out.
    TakeoverOfExpired,
    /// A claim is given back whoever has it.
    GiveBackConditioned,
    /// Coverage keeps no distance between two clocks: what was sent when the render began counts as seen.
    CoverageEpsilon,
    /// A version claims to have seen everything up to its commit.
    SourceBeforeRender,
    /// A row of another language's grants changes.
    ForeignRowCoversNothing,
    /// The body is stored some time after the commit.
    UploadBeforeCommit,
    /// What the function reports as failed is acked all the same.
    BusyIsNotAcked,
    /// A rejected message is acked without a dead letter.
    RejectBeforeAck,
    /// A commit leaves no mark that the world outside is to be told.
    NotificationIsMarked,
    /// Nor does what an operator publishes.
    OperatorNotificationIsMarked,
    /// That mark is overlooked by everybody but its request, also when that request's message is gone.
    NotificationIsFound,
    /// Time that has passed is measured by the wall clock, so that nobody notices when that is set.
    ClockStepsAreNoticed,
    /// A pin is a mark on HEALTH: it takes no lease and does not move META.
    PinMovesMeta,
}

impl Sabotage {
    /// Changes a request of this actor. None lets it pass as it is now; otherwise it is answered so and never arrives.
    pub fn request(self, actor: Actor, operation: &str, request: &mut Value, now_ms: u64) -> Option<Response<Bytes>> {
        let operators = matches!(self, Sabotage::PinMovesMeta | Sabotage::OperatorNotificationIsMarked);
        let victim = if operators { Actor::Operator } else { Actor::Worker };
        if actor != victim {
            return None;
        }
        let put_of_claim = operation == "PutItem" && request["Item"]["claim_expires_ms"].is_object();
        let is_takeover = request["ExpressionAttributeValues"][":old_status"].is_object();
        match self {
            Sabotage::MetaCondition => on_item(request, "META", always),
            Sabotage::LockTokenCondition => on_item(request, "LOCK", always),
            Sabotage::AcquireFree if operation == "PutItem" && request["Item"]["sk"]["S"] == "LOCK" => always(request),
            Sabotage::ClaimOnce if put_of_claim && !is_takeover => always(request),
            Sabotage::TakeoverExact if put_of_claim && is_takeover => always(request),
            Sabotage::TakeoverOfExpired if put_of_claim => {
                request["Item"]["claim_expires_ms"] = json!({"N": "99999999999999"});
            }
            Sabotage::GiveBackConditioned => {
                weaken_if_has(request, ":expired");
                on_item(request, "REQ#", |update| weaken_if_has(update, ":expired"));
            }
            Sabotage::SourceBeforeRender => on_item(request, "META", |update| {
                let names = update["ExpressionAttributeNames"].as_object().cloned().unwrap_or_default();
                let placeholder = names.iter().find(|(_, name)| name.as_str() == Some("source_ms"));
                if let Some((placeholder, _)) = placeholder {
                    let value = placeholder.replace('#', ":");
                    update["ExpressionAttributeValues"][value] = json!({"N": now_ms.to_string()});
                }
            }),
            Sabotage::NotificationIsMarked | Sabotage::OperatorNotificationIsMarked => {
                on_item(request, "META", |update| {
                    let names = update["ExpressionAttributeNames"].as_object_mut();
                    for name in names.into_iter().flat_map(|names| names.values_mut()) {
                        if name == "pending_notification" {
                            *name = json!("not_due");
                        }
                    }
                })
            }
            Sabotage::RejectBeforeAck if operation == "SendMessage" => {
                return Some(answer(r#"{"MessageId":"lost","MD5OfMessageBody":""}"#));
            }
            Sabotage::PinMovesMeta if operation == "PutItem" && request["Item"]["sk"]["S"] == "LOCK" => {
                return Some(answer("{}"));
            }
            Sabotage::PinMovesMeta => {
                let pins = request["TransactItems"].as_array().is_some_and(|items| {
                    items.iter().any(|item| item["Update"]["UpdateExpression"] == "SET pinned_at_ms = :at")
                });
                if let Some(items) = request.get_mut("TransactItems").and_then(Value::as_array_mut).filter(|_| pins) {
                    items.retain(|item| item["Update"]["Key"]["sk"]["S"] == "HEALTH");
                }
            }
            // Not this request's business, or done elsewhere: in the settings, at the queue, in the answers, at the bucket.
            Sabotage::AcquireFree
            | Sabotage::ClaimOnce
            | Sabotage::TakeoverExact
            | Sabotage::TakeoverOfExpired
            | Sabotage::RejectBeforeAck
            | Sabotage::NotificationIsFound
            | Sabotage::ClockStepsAreNoticed
            | Sabotage::CoverageEpsilon
            | Sabotage::ForeignRowCoversNothing
            | Sabotage::UploadBeforeCommit
            | Sabotage::BusyIsNotAcked => {}
        }
        None
    }

    /// Changes an answer. `has_message` says whether a message with that key is left.
    pub fn response(self, actor: Actor, operation: &str, response: &mut Value, has_message: impl Fn(&str) -> bool) {
        if actor != Actor::Worker || operation != "Query" {
            return;
        }
        let number = |value: &Value| value["N"].as_str().and_then(|text| text.parse::<u64>().ok());
        for row in response.get_mut("Items").and_then(Value::as_array_mut).into_iter().flatten() {
            if row["sk"]["S"] != "META" {
                continue;
            }
            let due = row["pending_notification"]["S"].as_str().filter(|due| !due.is_empty());
            if self == Sabotage::NotificationIsFound && due.is_some_and(|due| !has_message(due)) {
                row.as_object_mut().and_then(|row| row.remove("pending_notification"));
            }
            let claimed = match (self, number(&row["source_ms"])) {
                (Sabotage::ForeignRowCoversNothing, None) => number(&row["generated_at"]).map(|seconds| seconds * 1000),
                (Sabotage::CoverageEpsilon, Some(source_ms)) => Some(source_ms + Ladder::default().epsilon_ms),
                _ => None,
            };
            if let Some(claimed) = claimed {
                row["source_ms"] = json!({"N": claimed.to_string()});
            }
        }
    }
}

/// DynamoDB's or SQS's word that it was done.
fn answer(json: &'static str) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::from_static(json.as_bytes()));
    let kind = http::HeaderValue::from_static("application/x-amz-json-1.0");
    answer.headers_mut().insert("content-type", kind);
    answer
}

/// Takes an operation's condition away if it has this value: the value tells what the operation is for.
fn weaken_if_has(operation: &mut Value, value: &str) {
    if operation["ExpressionAttributeValues"][value].is_object() {
        always(operation);
    }
}

/// The condition holds whatever the row is. Its values are still mentioned, for DynamoDB refuses values that are not.
fn always(operation: &mut Value) {
    if let Some(condition) = operation["ConditionExpression"].as_str() {
        let weak = format!("({condition}) OR attribute_exists(pk) OR attribute_not_exists(pk)");
        operation["ConditionExpression"] = json!(weak);
    }
}

/// Changes the operation of a transaction on a row whose sort key begins so.
fn on_item(request: &mut Value, sk: &str, change: impl Fn(&mut Value)) {
    for item in request.get_mut("TransactItems").and_then(Value::as_array_mut).into_iter().flatten() {
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            let key = operation["Key"]["sk"]["S"].as_str().or(operation["Item"]["sk"]["S"].as_str());
            if key.is_some_and(|key| key.starts_with(sk)) {
                change(operation);
            }
        }
    }
}

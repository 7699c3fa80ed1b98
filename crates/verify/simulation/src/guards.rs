//! The protocol without one of its guards. The code under test is unchanged; its requests are
//! modified below the SDK. Each missing guard must be found, or the simulation shows nothing.
//!
//! The condition on FAILED is not in this list. A worker that has lost its claim has exceeded its
//! function timeout, and its handler ends before the response to that transaction. Nor are the rules
//! that live in one process only, where no request can be changed: that an instance keeps the newest
//! version that it has seen (`MemoryKeepsNewest`), that it drops the last good body under a row
//! without one (`GoodNeedsBody`), and that the origin's validators belong to the published body (their
//! digest is computed and compared in the worker). The model removes the first three.

use bytes::Bytes;
use clap::ValueEnum;
use everfresh_core::config::Ladder;
use http::Response;
use serde_json::{Value, json};

use crate::check::Actor;

/// A guard that can be removed; the comment describes the protocol without it. The order is that of
/// [`crate::known::Known::guards`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Guard {
    /// Messages that the function reports as failed are acked.
    BusyIsNotAcked,
    /// The body is uploaded some time after the commit.
    UploadBeforeCommit,
    /// `source_ms` of a version is the time of its commit.
    SourceBeforeRender,
    /// A commit is not conditioned on the META row that lookup read.
    MetaCondition,
    /// A lease is taken while another worker holds it.
    LeaseExclusive,
    /// A commit deletes LOCK also if another worker holds the lease.
    LockTokenCondition,
    /// A claim overwrites an existing record.
    ClaimOnce,
    /// A takeover is not conditioned on the record that was read.
    TakeoverExact,
    /// The claim of a crashed worker never expires.
    TakeoverOfExpired,
    /// A claim is given back also if another worker owns it.
    GiveBackConditioned,
    /// Coverage allows for no clock error.
    CoverageEpsilon,
    /// A foreign row covers requests.
    ForeignRowCoversNothing,
    /// A rejected message is acked without a dead letter.
    RejectBeforeAck,
    /// A pin is only an attribute of HEALTH: it takes no lease and does not change META.
    PinMovesMeta,
    /// A commit does not set `pending_notification`.
    NotificationIsMarked,
    /// `pending_notification` is ignored by all but its own request, also if the message of that
    /// request is gone.
    NotificationIsFound,
    /// An operator's command does not set `pending_notification`.
    OperatorNotificationIsMarked,
    /// Elapsed time is measured by the wall clock, so that clock steps are not noticed.
    ClockStepsAreNoticed,
    /// A withdrawal is committed although the tenant has none left in these ten minutes.
    WithdrawalCounted,
    /// The answer of a cache in front of the site has no `Age`, as if it were made now.
    AgeDatesTheAnswer,
    /// A bypass changes the version of META, but not its content.
    BypassHasNoBody,
    /// Readers do not see since when the page is shown, so an older body stands in.
    GoodSinceWithdrawal,
    /// The sweep takes no lease, so a worker between upload and commit keeps its own.
    SweepTakesLease,
    /// A stored 404 or 410 is no withdrawal to readers, so the body that it replaces stands in.
    AbsentWithdraws,
    /// A worker whose withdrawal was refused keeps its claim, which then counts as an attempt.
    RefusalGivesBack,
    /// The message of a request whose withdrawal was refused is acked.
    RefusedChangedWaits,
}

/// What the commit of a bypass changes while its guard is removed. Everything else stays that of
/// the published page.
const KEPT_OF_BYPASS: [&str; 5] = ["version", "source_ms", "generated_at", "pending_notification", "deploy"];

impl Guard {
    /// Modifies a request of this actor. A returned response is sent instead of the request.
    pub fn request(self, actor: Actor, operation: &str, request: &mut Value, now_ms: u64) -> Option<Response<Bytes>> {
        let target = if matches!(self, Guard::PinMovesMeta | Guard::OperatorNotificationIsMarked) {
            Actor::Operator
        } else if self == Guard::SweepTakesLease {
            Actor::Maintenance
        } else {
            Actor::Worker
        };
        if actor != target {
            return None;
        }
        let is_claim = operation == "PutItem" && request["Item"]["claim_expires_ms"].is_object();
        let is_takeover = request["ExpressionAttributeValues"][":old_status"].is_object();
        match self {
            Guard::MetaCondition => on_item(request, "META", weaken),
            Guard::LockTokenCondition => on_item(request, "LOCK", weaken),
            Guard::LeaseExclusive if operation == "PutItem" && request["Item"]["sk"]["S"] == "LOCK" => weaken(request),
            Guard::ClaimOnce if is_claim && !is_takeover => weaken(request),
            Guard::TakeoverExact if is_claim && is_takeover => weaken(request),
            Guard::TakeoverOfExpired if is_claim => {
                request["Item"]["claim_expires_ms"] = json!({"N": "99999999999999"});
            }
            Guard::GiveBackConditioned => {
                weaken_if_has(request, ":expired");
                on_item(request, "REQ#", |update| weaken_if_has(update, ":expired"));
            }
            Guard::SourceBeforeRender => on_item(request, "META", |update| {
                if let Some(value) = placeholder(update, "source_ms") {
                    update["ExpressionAttributeValues"][value] = json!({"N": now_ms.to_string()});
                }
            }),
            Guard::NotificationIsMarked | Guard::OperatorNotificationIsMarked => on_item(request, "META", |update| {
                rename(update, "pending_notification", "not_due");
            }),
            Guard::WithdrawalCounted => on_item(request, "WITHDRAWN#", weaken),
            Guard::SweepTakesLease => {
                let is_lock = [&request["Item"], &request["Key"]].into_iter().any(|row| row["sk"]["S"] == "LOCK");
                if is_lock && matches!(operation, "PutItem" | "DeleteItem") {
                    return Some(success("{}"));
                }
                on_item(request, "LOCK", weaken);
            }
            Guard::AbsentWithdraws => on_item(request, "META", |update| {
                let status =
                    placeholder(update, "status").map(|value| update["ExpressionAttributeValues"][value]["N"].clone());
                if status.is_some_and(|status| status == "404" || status == "410") {
                    rename(update, "shown_since", "unused_shown_since");
                }
            }),
            Guard::BypassHasNoBody => on_item(request, "META", keep_content),
            Guard::RejectBeforeAck if operation == "SendMessage" => {
                return Some(success(r#"{"MessageId":"lost","MD5OfMessageBody":""}"#));
            }
            Guard::PinMovesMeta if operation == "PutItem" && request["Item"]["sk"]["S"] == "LOCK" => {
                return Some(success("{}"));
            }
            Guard::PinMovesMeta => {
                let pins = |item: &Value| {
                    let expression = item["Update"]["UpdateExpression"].as_str();
                    expression.is_some_and(|expression| expression.starts_with("SET pinned_at_ms"))
                };
                let pins = request["TransactItems"].as_array().is_some_and(|items| items.iter().any(pins));
                if let Some(items) = request.get_mut("TransactItems").and_then(Value::as_array_mut).filter(|_| pins) {
                    items.retain(|item| item["Update"]["Key"]["sk"]["S"] == "HEALTH");
                }
            }
            // Another request, or removed elsewhere: in settings, at the queue, in responses, at
            // the bucket, at the site.
            Guard::LeaseExclusive
            | Guard::ClaimOnce
            | Guard::TakeoverExact
            | Guard::TakeoverOfExpired
            | Guard::RejectBeforeAck
            | Guard::NotificationIsFound
            | Guard::ClockStepsAreNoticed
            | Guard::AgeDatesTheAnswer
            | Guard::GoodSinceWithdrawal
            | Guard::CoverageEpsilon
            | Guard::ForeignRowCoversNothing
            | Guard::UploadBeforeCommit
            | Guard::RefusalGivesBack
            | Guard::RefusedChangedWaits
            | Guard::BusyIsNotAcked => {}
        }
        None
    }

    /// Modifies a response. `has_message` returns whether a message with that key is queued.
    pub fn response(self, actor: Actor, operation: &str, response: &mut Value, has_message: impl Fn(&str) -> bool) {
        let target = if self == Guard::GoodSinceWithdrawal { Actor::Server } else { Actor::Worker };
        if actor != target || operation != "Query" {
            return;
        }
        let number = |value: &Value| value["N"].as_str().and_then(|text| text.parse::<u64>().ok());
        for row in response.get_mut("Items").and_then(Value::as_array_mut).into_iter().flatten() {
            if row["sk"]["S"] != "META" {
                continue;
            }
            let pending = row["pending_notification"]["S"].as_str().filter(|key| !key.is_empty());
            if self == Guard::NotificationIsFound
                && pending.is_some_and(|mark| !has_message(mark.split('#').next().unwrap_or(mark)))
            {
                row.as_object_mut().and_then(|row| row.remove("pending_notification"));
            }
            if self == Guard::GoodSinceWithdrawal {
                row.as_object_mut().and_then(|row| row.remove("shown_since"));
            }
            let claimed = match (self, number(&row["source_ms"])) {
                (Guard::ForeignRowCoversNothing, None) => number(&row["generated_at"]).map(|seconds| seconds * 1000),
                (Guard::CoverageEpsilon, Some(source_ms)) => Some(source_ms + Ladder::default().epsilon_ms),
                _ => None,
            };
            if let Some(claimed) = claimed {
                row["source_ms"] = json!({"N": claimed.to_string()});
            }
        }
    }
}

/// A successful response of DynamoDB or SQS.
pub(crate) fn success(json: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(json.as_bytes()));
    let kind = http::HeaderValue::from_static("application/x-amz-json-1.0");
    response.headers_mut().insert("content-type", kind);
    response
}

/// The owner of the claim that this transaction gives back.
pub(crate) fn given_back(request: &Value) -> Option<&str> {
    let items = request["TransactItems"].as_array()?;
    let mut updates = items.iter().map(|item| &item["Update"]["ExpressionAttributeValues"]);
    updates.find(|values| values[":expired"].is_object()).and_then(|values| values[":owner"]["S"].as_str())
}

/// The placeholder of the value that an update writes to this attribute of META.
fn placeholder(update: &Value, attribute: &str) -> Option<String> {
    let names = update["ExpressionAttributeNames"].as_object()?;
    let (placeholder, _) = names.iter().find(|(_, name)| name.as_str() == Some(attribute))?;
    Some(placeholder.replace('#', ":"))
}

/// Writes another attribute instead.
fn rename(update: &mut Value, attribute: &str, other: &str) {
    let names = update["ExpressionAttributeNames"].as_object_mut();
    for name in names.into_iter().flat_map(|names| names.values_mut()) {
        if name == attribute {
            *name = json!(other);
        }
    }
}

/// Removes the condition of an operation with this value, which identifies its purpose.
fn weaken_if_has(operation: &mut Value, value: &str) {
    if operation["ExpressionAttributeValues"][value].is_object() {
        weaken(operation);
    }
}

/// Makes the condition always true. Its values stay in use, because DynamoDB refuses unused values.
fn weaken(operation: &mut Value) {
    if let Some(condition) = operation["ConditionExpression"].as_str() {
        let weak = format!("({condition}) OR attribute_exists(pk) OR attribute_not_exists(pk)");
        operation["ConditionExpression"] = json!(weak);
    }
}

/// Turns the commit of a bypass over a version of ours into one that leaves the content as it is:
/// the other attributes are written beside it, under names that have no meaning.
fn keep_content(update: &mut Value) {
    let is_set = |name: &str| {
        let names = update["ExpressionAttributeNames"].as_object();
        let mut placeholders = names.into_iter().flatten().filter(|(_, value)| value.as_str() == Some(name));
        placeholders.any(|(placeholder, _)| {
            let value = placeholder.replace('#', ":");
            update["ExpressionAttributeValues"][value].is_object()
        })
    };
    if !is_set("bypass_reason") || !update["ExpressionAttributeValues"][":seen_version"].is_object() {
        return;
    }
    let names = update["ExpressionAttributeNames"].as_object_mut();
    for name in names.into_iter().flat_map(|names| names.values_mut()) {
        if let Some(attribute) = name.as_str().filter(|attribute| !KEPT_OF_BYPASS.contains(attribute)) {
            *name = json!(format!("unused_{attribute}"));
        }
    }
}

/// Modifies the operations of a transaction on rows whose sort key has this prefix.
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

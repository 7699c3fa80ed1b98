//! Requests and refusals as text: for the trace, the counts and the lines of a replay.

use std::collections::BTreeMap;

use serde_json::Value;

/// DynamoDB refusals that the code has to distinguish, by error and row. Conflicts, throttling and
/// transactions in progress are injected faults.
pub(crate) const REFUSALS: [&str; 6] = [
    "ConditionalCheckFailed on META",
    "ConditionalCheckFailed on LOCK",
    "ConditionalCheckFailed on REQ",
    "ConditionalCheckFailed on WITHDRAWN",
    "ConditionalCheckFailedException on LOCK",
    "ConditionalCheckFailedException on REQ",
];

/// The refusals in a response of DynamoDB, by error and row.
pub(super) fn refusal(body: &[u8], request: &Value) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let kind = body["__type"].as_str().and_then(|kind| kind.rsplit('#').next()).unwrap_or_default();
    match body["CancellationReasons"].as_array() {
        None => vec![format!("{kind} on {}", row(request))],
        Some(reasons) => reasons
            .iter()
            .enumerate()
            .filter(|(_, reason)| reason["Code"].as_str().is_some_and(|code| code != "None"))
            .map(|(index, reason)| {
                let operation = request["TransactItems"][index].as_object().and_then(|item| item.values().next());
                format!("{} on {}", reason["Code"].as_str().unwrap_or_default(), row(operation.unwrap_or(&Value::Null)))
            })
            .collect(),
    }
}

/// The kind of row of an operation.
pub(super) fn row(operation: &Value) -> String {
    let sk = operation["Key"]["sk"]["S"].as_str().or(operation["Item"]["sk"]["S"].as_str()).unwrap_or_default();
    sk.split('#').next().unwrap_or_default().to_owned()
}

/// The rows or the message of a request, for the trace lines.
pub(super) fn subject(request: &Value) -> String {
    let mut keys = Vec::new();
    let operations = request["TransactItems"].as_array().cloned().unwrap_or_else(|| vec![request.clone()]);
    for operation in &operations {
        let inner = operation.as_object().and_then(|item| item.values().next()).unwrap_or(operation);
        for value in [operation, inner] {
            let sk = value["Key"]["sk"]["S"].as_str().or(value["Item"]["sk"]["S"].as_str());
            keys.extend(sk.map(str::to_owned));
        }
    }
    keys.dedup();
    keys.extend(request["MessageBody"].as_str().map(str::to_owned));
    keys.join(" ")
}

/// The same text for equal values, independent of the order of fields.
pub(super) fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            text.push('{');
            for (name, value) in sorted {
                text.push_str(name);
                canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(list) => list.iter().for_each(|value| canonical(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

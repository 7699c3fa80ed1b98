//! What a write on the wire is about.

use std::collections::BTreeSet;

use serde_json::Value;

/// The partitions that a write names.
pub(super) fn partitions_of(request: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(request, &mut found);
    found
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(pk) = map.get("pk").and_then(|pk| pk["S"].as_str()) {
                found.insert(pk.to_owned());
            }
            map.values().for_each(|value| collect(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The operations of a transaction on a row whose sort key begins so.
fn operation_on<'a>(request: &'a Value, sk: &str) -> Option<&'a Value> {
    let items = request["TransactItems"].as_array()?;
    items.iter().filter_map(|item| item.as_object()?.values().next()).find(|operation| {
        let key = operation["Key"]["sk"]["S"].as_str().or(operation["Item"]["sk"]["S"].as_str());
        key.is_some_and(|key| key.starts_with(sk))
    })
}

/// What the commit was conditioned on: a version, the key of a foreign row (`key:…`), or absence.
pub(super) fn seen_version(request: &Value) -> Option<String> {
    let values = &operation_on(request, "META")?["ExpressionAttributeValues"];
    let seen = |name: &str| values[name]["S"].as_str().map(str::to_owned);
    seen(":seen_version").or_else(|| seen(":seen_key").map(|key| format!("key:{key}")))
}

/// The request that a commit completes.
pub(super) fn request_of_commit(request: &Value) -> Option<String> {
    let req = operation_on(request, "REQ#")?;
    let completes = req["ExpressionAttributeValues"][":completed"]["S"].as_str() == Some("COMPLETED");
    completes.then(|| req["Key"]["sk"]["S"].as_str().unwrap_or_default().to_owned())
}

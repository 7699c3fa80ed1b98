//! Parsing of write requests.

use std::collections::BTreeSet;

use serde_json::Value;

/// The partitions of a write.
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

/// The operations, in a transaction or single, on rows whose sort key has this prefix.
pub(super) fn operations_on<'a>(request: &'a Value, sk: &str) -> Vec<&'a Value> {
    let inner = |item: &'a Value| item.as_object().and_then(|item| item.values().next());
    let operations: Vec<&Value> = match request["TransactItems"].as_array() {
        Some(items) => items.iter().filter_map(inner).collect(),
        None => vec![request],
    };
    let about = |operation: &&Value| {
        let key = operation["Key"]["sk"]["S"].as_str().or(operation["Item"]["sk"]["S"].as_str());
        key.is_some_and(|key| key.starts_with(sk))
    };
    operations.into_iter().filter(about).collect()
}

/// The META row that a commit is conditioned on: a version and a pointer, or the key of a foreign
/// row; all `None` is absence.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SeenMeta {
    pub(super) version: Option<String>,
    pub(super) sk: Option<String>,
    pub(super) key: Option<String>,
}

impl SeenMeta {
    pub(super) fn of(request: &Value) -> Self {
        let operations = operations_on(request, "META");
        let values = operations.first().map(|update| &update["ExpressionAttributeValues"]);
        let seen = |name: &str| values.and_then(|values| values[name]["S"].as_str()).map(str::to_owned);
        Self { version: seen(":seen_version"), sk: seen(":seen_sk"), key: seen(":seen_key") }
    }
}

/// The request that a commit completes.
pub(super) fn request_of_commit(request: &Value) -> Option<String> {
    let operations = operations_on(request, "REQ#");
    let req = operations.first()?;
    let completes = req["ExpressionAttributeValues"][":completed"]["S"].as_str() == Some("COMPLETED");
    completes.then(|| req["Key"]["sk"]["S"].as_str().unwrap_or_default().to_owned())
}

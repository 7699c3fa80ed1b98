//! Rows as DynamoDB writes them in JSON.

use std::collections::BTreeMap;

use serde_json::Value;

/// A partition's rows by their sort keys.
pub type Rows = BTreeMap<String, Value>;

/// A text attribute; empty if it is not there.
pub fn text(row: &Value, name: &str) -> String {
    row[name]["S"].as_str().unwrap_or_default().to_owned()
}

/// A number attribute.
pub fn number(row: &Value, name: &str) -> Option<u64> {
    row[name]["N"].as_str()?.parse().ok()
}

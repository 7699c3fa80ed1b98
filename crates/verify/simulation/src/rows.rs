//! Rows in DynamoDB JSON.

use std::collections::BTreeMap;

use everfresh_core::domain::version::Version;
use serde_json::Value;

/// A partition's rows by their sort keys.
pub type Rows = BTreeMap<String, Value>;

/// A string attribute; empty if absent.
pub fn text(row: &Value, name: &str) -> String {
    row[name]["S"].as_str().unwrap_or_default().to_owned()
}

pub fn number(row: &Value, name: &str) -> Option<u64> {
    row[name]["N"].as_str()?.parse().ok()
}

/// A string attribute.
pub fn some_text(row: &Value, name: &str) -> Option<String> {
    row[name]["S"].as_str().map(str::to_owned)
}

/// Whether META says that nothing of the page is stored.
pub fn is_bypass(meta: &Value) -> bool {
    some_text(meta, "bypass_reason").is_some()
}

/// META as readers see it: if it references a foreign version row, the content of that row.
pub fn meta_of(rows: &Rows) -> Option<Value> {
    let meta = rows.get("META")?;
    let pointer = some_text(meta, "current_sk").filter(|sk| Version::of_sk(sk).is_none());
    let Some(sk) = pointer else { return Some(meta.clone()) };
    let mut referenced = rows.get(&sk).cloned().unwrap_or_default();
    for own in ["version", "current_sk"] {
        referenced[own] = meta[own].clone();
    }
    Some(referenced)
}

//! Key attributes of a table, and their length limits.

use serde_json::Value;

/// Role of a key attribute, which decides its length limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyRole {
    Partition,
    Sort,
}

/// The keys of a table and of its indexes.
#[derive(Clone, Debug, Default)]
pub(super) struct Schema {
    table: Vec<(String, KeyRole)>,
    indexes: Vec<(String, Vec<(String, KeyRole)>)>,
}

impl Schema {
    /// From the `Table` of a `DescribeTable` response.
    pub(super) fn of(table: &Value) -> Self {
        let lists = [&table["GlobalSecondaryIndexes"], &table["LocalSecondaryIndexes"]];
        let indexes = lists.into_iter().filter_map(Value::as_array).flatten();
        let indexes = indexes.map(|index| (text(&index["IndexName"]), keys(&index["KeySchema"])));
        Self { table: keys(&table["KeySchema"]), indexes: indexes.collect() }
    }

    /// Whether the attribute is part of the table's own key.
    pub(super) fn is_key(&self, attribute: &str) -> bool {
        self.table.iter().any(|(name, _)| name == attribute)
    }

    /// The attribute's roles in indexes.
    pub(super) fn in_indexes(&self, attribute: &str) -> impl Iterator<Item = KeyRole> {
        let keys = self.indexes.iter().flat_map(|(_, keys)| keys);
        keys.filter(move |(name, _)| name == attribute).map(|(_, role)| *role)
    }

    /// The keys of an index, or of the table itself.
    pub(super) fn keys_of(&self, index: Option<&str>) -> &[(String, KeyRole)] {
        let named = |index: &str| self.indexes.iter().find(|(name, _)| name == index).map(|(_, keys)| keys.as_slice());
        index.map_or(&self.table, |index| named(index).unwrap_or_default())
    }
}

impl KeyRole {
    /// DynamoDB's error message if the value is too long for this role.
    pub(super) fn length_error(self, value: &Value) -> Option<&'static str> {
        let (max, message) = match self {
            Self::Partition => (
                2_048,
                "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes",
            ),
            Self::Sort => (
                1_024,
                "One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of 1024 bytes",
            ),
        };
        (length(value) > max).then_some(message)
    }
}

/// Length in bytes of a string or binary value. A number always fits.
fn length(value: &Value) -> usize {
    let binary = |base64: &str| base64.trim_end_matches('=').len() * 3 / 4;
    value["S"].as_str().map(str::len).or_else(|| value["B"].as_str().map(binary)).unwrap_or_default()
}

fn keys(schema: &Value) -> Vec<(String, KeyRole)> {
    let elements = schema.as_array().into_iter().flatten();
    let role = |element: &Value| if element["KeyType"] == "HASH" { KeyRole::Partition } else { KeyRole::Sort };
    elements.map(|element| (text(&element["AttributeName"]), role(element))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

//! Which attributes of a table are keys, and how long a key may be.

use serde_json::Value;

/// A key attribute's place, which decides how long its value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Partition,
    Sort,
}

/// The keys of a table and of its indexes.
#[derive(Clone, Debug, Default)]
pub(super) struct Schema {
    table: Vec<(String, Place)>,
    indexes: Vec<(String, Vec<(String, Place)>)>,
}

impl Schema {
    /// From the `Table` of a `DescribeTable` answer.
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

    /// The places that the attribute has in indexes.
    pub(super) fn in_indexes(&self, attribute: &str) -> impl Iterator<Item = Place> {
        let keys = self.indexes.iter().flat_map(|(_, keys)| keys);
        keys.filter(move |(name, _)| name == attribute).map(|(_, place)| *place)
    }

    /// The keys by which a query of the table, or of this index, reads.
    pub(super) fn read_by(&self, index: Option<&str>) -> &[(String, Place)] {
        let named = |index: &str| self.indexes.iter().find(|(name, _)| name == index).map(|(_, keys)| keys.as_slice());
        index.map_or(&self.table, |index| named(index).unwrap_or_default())
    }
}

impl Place {
    /// DynamoDB's refusal of a value that is too long for this place, in its own words.
    pub(super) fn refuses(self, value: &Value) -> Option<&'static str> {
        let (most, refusal) = match self {
            Self::Partition => (
                2_048,
                "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes",
            ),
            Self::Sort => (
                1_024,
                "One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of 1024 bytes",
            ),
        };
        (length(value) > most).then_some(refusal)
    }
}

/// The bytes of a string or a binary value. A number always fits.
fn length(value: &Value) -> usize {
    let binary = |base64: &str| base64.trim_end_matches('=').len() * 3 / 4;
    value["S"].as_str().map(str::len).or_else(|| value["B"].as_str().map(binary)).unwrap_or_default()
}

fn keys(schema: &Value) -> Vec<(String, Place)> {
    let elements = schema.as_array().into_iter().flatten();
    let place = |element: &Value| if element["KeyType"] == "HASH" { Place::Partition } else { Place::Sort };
    elements.map(|element| (text(&element["AttributeName"]), place(element))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

//! Rows of foreign writers and their meaning: `fixtures/*.json`, one file per language.
//!
//! The files are golden: rows are in DynamoDB JSON, with full partition keys, hashed or raw, for
//! one tenant or for several. They record what foreign writers produce, so they do not change with
//! our code.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::domain::page_key::KeyLayout;
use serde_json::Value;

use crate::{CONFIG, Item, World};

/// The rows of one page, written by a foreign writer.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// Language and case.
    pub name: String,
    pub layout: KeyLayout,
    pub path: String,
    pub rows: Vec<Item>,
    /// The expected interpretation: `published`, `lease`, `request` and `served`, where present.
    pub means: Value,
    /// Attributes of META that belong to the foreign writer and must be kept.
    pub keeps: Vec<String>,
    object: Option<Value>,
}

pub fn fixtures() -> Vec<Fixture> {
    let files = [
        ("Go", include_str!("../fixtures/go.json")),
        ("TypeScript", include_str!("../fixtures/typescript.json")),
        ("Python", include_str!("../fixtures/python.json")),
    ];
    let read = |(language, file)| {
        let cases: Vec<Value> = serde_json::from_str(file).unwrap();
        cases.into_iter().map(move |case| Fixture::read(language, &case)).collect::<Vec<_>>()
    };
    files.into_iter().flat_map(read).collect()
}

impl Fixture {
    fn read(language: &str, case: &Value) -> Self {
        let layout = match string(&case["keys"]).as_str() {
            "tenant and hash" => KeyLayout { single_tenant: false, raw_keys: false },
            "tenant and raw key" => KeyLayout { single_tenant: false, raw_keys: true },
            "hash" => KeyLayout { single_tenant: true, raw_keys: false },
            "raw key" => KeyLayout { single_tenant: true, raw_keys: true },
            other => panic!("unknown key layout {other}"),
        };
        Self {
            name: format!("{language}: {}", string(&case["name"])),
            layout,
            path: string(&case["path"]),
            rows: array(&case["rows"]).iter().map(|row| item(row.as_object().unwrap())).collect(),
            means: case["means"].clone(),
            keeps: case.get("keeps").map(array).into_iter().flatten().map(string).collect(),
            object: case.get("object").cloned(),
        }
    }

    /// A world of one tenant with only these rows.
    pub async fn world(&self) -> World {
        let acme = CONFIG.split("[tenant.globex]").next().unwrap();
        let world = World::with_config(acme).await;
        for row in &self.rows {
            let put = world.clean.dynamodb.put_item().table_name(&world.stack.table);
            put.set_item(Some(row.clone())).send().await.unwrap();
        }
        if let Some(object) = &self.object {
            let metadata = object["metadata"].as_object().unwrap();
            let metadata: Vec<(&str, &str)> =
                metadata.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
            world.store(&string(&object["key"]), &string(&object["body"]), &metadata).await;
        }
        world
    }

    /// The partition of all rows.
    pub fn pk(&self) -> String {
        crate::text(&self.rows[0], "pk")
    }

    /// The row with that sort key, as written by the foreign writer.
    pub fn row(&self, sk: &str) -> Option<&Item> {
        self.rows.iter().find(|row| crate::text(row, "sk") == sk)
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string")).to_owned()
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is not an array"))
}

/// A row from DynamoDB JSON. Panics if it is malformed.
pub fn item(row: &serde_json::Map<String, Value>) -> Item {
    row.iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

fn attribute(value: &Value) -> AttributeValue {
    let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
    let strings = || array(value).iter().map(string).collect();
    match kind.as_str() {
        "S" => AttributeValue::S(string(value)),
        "N" => AttributeValue::N(string(value)),
        "BOOL" => AttributeValue::Bool(value.as_bool().unwrap()),
        "NULL" => AttributeValue::Null(true),
        "L" => AttributeValue::L(array(value).iter().map(attribute).collect()),
        "M" => AttributeValue::M(item(value.as_object().unwrap())),
        "B" => AttributeValue::B(Blob::new(string(value))),
        "SS" => AttributeValue::Ss(strings()),
        "NS" => AttributeValue::Ns(strings()),
        other => panic!("unsupported attribute type {other}"),
    }
}

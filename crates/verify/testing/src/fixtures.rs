//! Rows exactly as helpers of other languages write them, and what they mean: `fixtures/*.json`, one file per language.
//!
//! The files are golden: rows are in DynamoDB's own JSON, with full partition keys, hashed or raw, for one tenant or for several.
//! They say what such a helper writes today, so none is changed because our side of it has changed.

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::domain::page_key::KeyLayout;
use serde_json::Value;

use crate::{CONFIG, Item, World};

/// What one helper has left of one page.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The language and what is special about it.
    pub name: String,
    /// How the table's keys are laid out.
    pub layout: KeyLayout,
    /// The page.
    pub path: String,
    /// Its rows.
    pub rows: Vec<Item>,
    /// What it means: `published`, `lease`, `request` and `served`, where there is something of the kind.
    pub means: Value,
    /// Attributes of META that are the helper's own business.
    pub keeps: Vec<String>,
    object: Option<Value>,
}

/// All of them.
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
            other => panic!("{other} is no layout"),
        };
        Self {
            name: format!("{language}: {}", string(&case["name"])),
            layout,
            path: string(&case["path"]),
            rows: array(&case["rows"]).iter().map(item).collect(),
            means: case["means"].clone(),
            keeps: case.get("keeps").map(array).into_iter().flatten().map(string).collect(),
            object: case.get("object").cloned(),
        }
    }

    /// A world of one tenant that holds this and nothing else.
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

    /// The partition that all its rows are in.
    pub fn pk(&self) -> String {
        crate::text(&self.rows[0], "pk")
    }

    /// Its row with that sort key, as the helper wrote it.
    pub fn row(&self, sk: &str) -> Option<&Item> {
        self.rows.iter().find(|row| crate::text(row, "sk") == sk)
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// A row in DynamoDB's own JSON.
fn item(row: &Value) -> Item {
    row.as_object().unwrap().iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
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
        "M" => AttributeValue::M(item(value)),
        "SS" => AttributeValue::Ss(strings()),
        "NS" => AttributeValue::Ns(strings()),
        other => panic!("{other} is no type of an attribute here"),
    }
}

//! Reading and writing the table and the bucket, and short names for DynamoDB values.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use everfresh_core::domain::artifact::locate;
use everfresh_core::domain::page_key::KeyLayout;

use crate::World;

pub type Item = HashMap<String, AttributeValue>;

/// A string attribute. Panics if it is missing.
pub fn text(item: &Item, name: &str) -> String {
    item[name].as_s().unwrap().clone()
}

/// A number attribute. Panics if it is missing.
pub fn number(item: &Item, name: &str) -> u64 {
    item[name].as_n().unwrap().parse().unwrap()
}

pub fn s(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub fn n(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A number as foreign writers with floating-point numbers write it.
pub fn decimal(text: &str) -> AttributeValue {
    AttributeValue::N(text.to_owned())
}

pub fn list(values: Vec<AttributeValue>) -> AttributeValue {
    AttributeValue::L(values)
}

/// NULL, which some foreign writers use for an absent value.
pub fn null() -> AttributeValue {
    AttributeValue::Null(true)
}

impl World {
    /// One row, read consistently.
    pub async fn row(&self, pk: &str, sk: &str) -> Option<Item> {
        let get = self.clean.dynamodb.get_item().table_name(&self.stack.table).consistent_read(true);
        let got = get.key("pk", AttributeValue::S(pk.into())).key("sk", AttributeValue::S(sk.into()));
        got.send().await.unwrap().item
    }

    /// Every row of a partition, by sort key.
    pub async fn rows(&self, pk: &str) -> BTreeMap<String, Item> {
        let query = self.clean.dynamodb.query().table_name(&self.stack.table).consistent_read(true);
        let query = query.key_condition_expression("pk = :pk");
        let found = query.expression_attribute_values(":pk", AttributeValue::S(pk.into())).send().await.unwrap();
        found.items.unwrap_or_default().into_iter().map(|item| (text(&item, "sk"), item)).collect()
    }

    /// Writes a row without a condition.
    pub async fn put(&self, pk: &str, sk: &str, attributes: &[(&str, AttributeValue)]) {
        let mut put = self.clean.dynamodb.put_item().table_name(&self.stack.table).item("pk", s(pk)).item("sk", s(sk));
        for (name, value) in attributes {
            put = put.item(*name, value.clone());
        }
        put.send().await.unwrap();
    }

    /// The META row.
    pub async fn meta(&self, path: &str) -> Option<Item> {
        self.row(&self.pk(path), "META").await
    }

    /// The REQ row of a request.
    pub async fn req(&self, path: &str, key: &str) -> Option<Item> {
        self.row(&self.pk(path), &format!("REQ#{key}")).await
    }

    /// A request's status, or `absent`.
    pub async fn status(&self, path: &str, key: &str) -> String {
        self.req(path, key).await.map_or("absent".into(), |row| text(&row, "status"))
    }

    /// The HEALTH row: failures, pin and watermark.
    pub async fn health(&self, path: &str) -> Item {
        self.row(&self.pk(path), "HEALTH").await.unwrap_or_default()
    }

    /// The LOCK row.
    pub async fn lock(&self, path: &str) -> Option<Item> {
        self.row(&self.pk(path), "LOCK").await
    }

    /// The body that META references. Panics if it is missing (I4).
    pub async fn published(&self, path: &str) -> Option<String> {
        let s3_key = text(&self.meta(path).await?, "s3_key");
        let page = self.page(path);
        let key = locate(&s3_key, &self.stack.bucket, page.tenant(), KeyLayout::default());
        Some(self.object(key.expect("META references a body of its tenant")).await)
    }

    /// The body with that key. Panics if it is missing.
    pub async fn object(&self, key: &str) -> String {
        let get = self.clean.s3.get_object().bucket(&self.stack.bucket).key(key);
        let body = get.send().await.expect("the body exists").body.collect().await.unwrap().to_vec();
        String::from_utf8(body).unwrap()
    }

    /// The keys of all objects.
    pub async fn objects(&self) -> Vec<String> {
        let listed = self.clean.s3.list_objects_v2().bucket(&self.stack.bucket).send().await.unwrap();
        listed.contents().iter().map(|object| object.key().unwrap().to_owned()).collect()
    }

    /// Stores an object with metadata, without a condition, as a foreign writer does.
    pub async fn store(&self, key: &str, body: &str, metadata: &[(&str, &str)]) {
        let mut put = self.clean.s3.put_object().bucket(&self.stack.bucket).key(key);
        for (name, value) in metadata {
            put = put.metadata(*name, *value);
        }
        put.body(body.as_bytes().to_vec().into()).send().await.unwrap();
    }

    /// Deletes an object outside the protocol.
    pub async fn delete_object(&self, key: &str) {
        self.clean.s3.delete_object().bucket(&self.stack.bucket).key(key).send().await.unwrap();
    }
}

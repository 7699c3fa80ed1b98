//! Clients of the embedded engines, or of another emulator if a variable names one.
#![allow(dead_code, reason = "each suite uses its part")]

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use everfresh_core::clients::{ClientTimeouts, Clients, Explicit, plain_http_client};
use everfresh_core::clock::Clock;
use everfresh_local::engines::Engines;
use everfresh_local::faults::Faults;
use everfresh_local::in_process::InProcess;
use everfresh_local::{ACCESS_KEY, REGION, SECRET_KEY};

/// URL of an emulator to run the suites against instead of the embedded engines.
pub(crate) const ENDPOINT_VARIABLE: &str = "EVERFRESH_TEST_ENDPOINT";

pub(crate) fn over_http(endpoint: String) -> Clients {
    Clients::explicit(Explicit {
        http: plain_http_client(),
        endpoint,
        region: REGION.to_owned(),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        timeouts: ClientTimeouts::WORKER,
        clock: Clock::system(),
        retry_partition: Some("engines".to_owned()),
    })
}

/// Clients of the engines under test.
pub(crate) async fn clients() -> Clients {
    match std::env::var(ENDPOINT_VARIABLE) {
        Ok(endpoint) => over_http(endpoint),
        Err(_) => embedded().await.clients(Clock::system(), ClientTimeouts::WORKER),
    }
}

/// New engines in memory, without faults so far.
pub(crate) async fn embedded() -> InProcess {
    InProcess::new(Engines::memory(Clock::system()).await.unwrap(), Faults::none())
}

/// A name that no other test uses, also on a shared emulator.
pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{}", uuid::Uuid::new_v4().simple())
}

pub(crate) fn s(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

pub(crate) fn n(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(crate) fn item(pairs: &[(&str, AttributeValue)]) -> HashMap<String, AttributeValue> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// A new table with Everfresh's keys.
pub(crate) async fn table(clients: &Clients) -> String {
    let name = unique("table");
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let string = |name: &str| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    let created = clients
        .dynamodb
        .create_table()
        .table_name(&name)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .attribute_definitions(string("pk"))
        .attribute_definitions(string("sk"));
    created.send().await.unwrap();
    name
}

pub(crate) async fn bucket(clients: &Clients) -> String {
    let name = unique("bucket");
    clients.s3.create_bucket().bucket(&name).send().await.unwrap();
    name
}

//! The embedded DynamoDB refuses what AWS refuses, so that such a request fails in tests already.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use everfresh_core::clients::{ClientTimeouts, Clients};
use everfresh_core::clock::Clock;
use everfresh_local::engines::Engines;
use everfresh_local::faults::Faults;
use everfresh_local::gateway::Port;
use everfresh_local::in_process::InProcess;
use serde_json::{Value, json};
use support::{over_http, s, table};

/// A table `pages` with partition and sort key, a global index (`g`, `h`), a local index (`l`), and
/// a row.
async fn engines() -> Engines {
    let engines = Engines::memory(Clock::system()).await.unwrap();
    let key = |hash: &str, range: &str| json!([{"AttributeName": hash, "KeyType": "HASH"}, {"AttributeName": range, "KeyType": "RANGE"}]);
    let attributes = ["pk", "sk", "g", "h", "l"].map(|name| json!({"AttributeName": name, "AttributeType": "S"}));
    let index = |name: &str, keys: Value| json!([{"IndexName": name, "KeySchema": keys, "Projection": {"ProjectionType": "ALL"}}]);
    let table = json!({
        "TableName": "pages", "BillingMode": "PAY_PER_REQUEST", "KeySchema": key("pk", "sk"),
        "AttributeDefinitions": attributes,
        "GlobalSecondaryIndexes": index("global", key("g", "h")), "LocalSecondaryIndexes": index("local", key("pk", "l")),
    });
    call(&engines, "CreateTable", &table).await.unwrap();
    let row = json!({"pk": {"S": "p"}, "sk": {"S": "s"}, "a": {"S": "x"}, "m": {"M": {"b": {"N": "1"}}}});
    call(&engines, "PutItem", &json!({"TableName": "pages", "Item": row})).await.unwrap();
    engines
}

/// The error is the response body.
async fn call(engines: &Engines, operation: &str, request: &Value) -> Result<(), String> {
    let target = format!("DynamoDB_20120810.{operation}");
    let http = http::Request::post("/").header("x-amz-target", target).body(Bytes::from(request.to_string())).unwrap();
    let answer = engines.call(http).await;
    match answer.status().as_u16() {
        200 => Ok(()),
        _ => Err(String::from_utf8(answer.body().to_vec()).unwrap()),
    }
}

fn with(mut base: Value, more: &Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

fn key() -> Value {
    json!({"pk": {"S": "p"}, "sk": {"S": "s"}})
}

/// The same fields in every write that accepts a condition, alone and in a transaction.
fn writes(fields: &Value) -> Vec<(&'static str, Value)> {
    let item = with(json!({"TableName": "pages", "Item": key()}), fields);
    let keyed = with(json!({"TableName": "pages", "Key": key()}), fields);
    let update = with(json!({"UpdateExpression": "REMOVE z"}), &keyed);
    let mut all = vec![("PutItem", item.clone()), ("UpdateItem", update.clone()), ("DeleteItem", keyed.clone())];
    for (action, fields) in [("Put", item), ("Update", update), ("Delete", keyed.clone()), ("ConditionCheck", keyed)] {
        all.push(("TransactWriteItems", json!({"TransactItems": [{action: fields}]})));
    }
    all
}

/// The same condition in every write, and as a filter of reads.
fn conditions(text: &str, names: &Value, values: &Value) -> Vec<(&'static str, Value)> {
    let mut fields = json!({});
    for (field, placeholders) in [("ExpressionAttributeNames", names), ("ExpressionAttributeValues", values)] {
        if !placeholders.is_null() {
            fields[field] = placeholders.clone();
        }
    }
    let mut all = writes(&with(fields.clone(), &json!({"ConditionExpression": text})));
    let scan = with(fields, &json!({"TableName": "pages", "FilterExpression": text}));
    let mut query = with(scan.clone(), &json!({"KeyConditionExpression": "pk = :pk"}));
    if query["ExpressionAttributeValues"].is_null() {
        query["ExpressionAttributeValues"] = json!({});
    }
    query["ExpressionAttributeValues"][":pk"] = json!({"S": "p"});
    all.extend([("Scan", scan), ("Query", query)]);
    all
}

async fn assert_refused(engines: &Engines, requests: Vec<(&'static str, Value)>, expected: &str) {
    for (operation, request) in requests {
        let error = call(engines, operation, &request).await.expect_err(&format!("{operation} {request}"));
        let is_invalid = error.contains("#ValidationException")
            || (error.contains("#TransactionCanceledException") && error.contains("ValidationError"));
        assert!(is_invalid && error.contains(expected), "{operation} {request}: {error}");
    }
}

const HASH_TOO_LONG: &str = "Size of hashkey has exceeded the maximum size limit of2048 bytes";
const RANGE_TOO_LONG: &str = "Aggregated size of all range keys has exceeded the size limit of 1024 bytes";

#[tokio::test]
async fn keys_that_are_too_long_are_refused() {
    let engines = engines().await;
    let long = |bytes: usize| "x".repeat(bytes);
    for (pk, sk, expected) in [
        (long(2_049), "s".to_owned(), HASH_TOO_LONG),
        ("é".repeat(1_025), "s".to_owned(), HASH_TOO_LONG),
        ("p".to_owned(), long(1_025), RANGE_TOO_LONG),
        (String::new(), "s".to_owned(), "cannot contain an empty string value"),
        ("p".to_owned(), String::new(), "cannot contain an empty string value"),
    ] {
        let key = json!({"pk": {"S": pk}, "sk": {"S": sk}});
        let keyed = json!({"TableName": "pages", "Key": key, "ConditionExpression": "attribute_exists(a)"});
        let put = json!({"TableName": "pages", "Item": key});
        let get = json!({"TableName": "pages", "Key": key});
        let values = json!({":p": {"S": pk}, ":s": {"S": sk}});
        let query = |text: &str| json!({"TableName": "pages", "KeyConditionExpression": text, "ExpressionAttributeValues": values});
        let requests = vec![
            ("PutItem", put.clone()),
            ("GetItem", get.clone()),
            ("UpdateItem", with(json!({"UpdateExpression": "REMOVE z"}), &get)),
            ("DeleteItem", get.clone()),
            ("BatchGetItem", json!({"RequestItems": {"pages": {"Keys": [key]}}})),
            ("BatchWriteItem", json!({"RequestItems": {"pages": [{"PutRequest": {"Item": key}}]}})),
            ("TransactGetItems", json!({"TransactItems": [{"Get": get}]})),
            ("TransactWriteItems", json!({"TransactItems": [{"Put": put}]})),
            ("TransactWriteItems", json!({"TransactItems": [{"ConditionCheck": keyed}]})),
            ("Query", query("pk = :p AND sk = :s")),
            ("Query", query("pk = :p AND begins_with(sk, :s)")),
            ("Scan", json!({"TableName": "pages", "ExclusiveStartKey": key})),
        ];
        assert_refused(&engines, requests, expected).await;
    }
    let longest = json!({"pk": {"S": long(2_048)}, "sk": {"S": long(1_024)}});
    call(&engines, "PutItem", &json!({"TableName": "pages", "Item": longest})).await.unwrap();
}

#[tokio::test]
async fn index_keys_that_are_too_long_are_refused() {
    let engines = engines().await;
    for (attribute, bytes, expected) in
        [("g", 2_049, HASH_TOO_LONG), ("h", 1_025, RANGE_TOO_LONG), ("l", 1_025, RANGE_TOO_LONG)]
    {
        let item = |bytes: usize| with(key(), &json!({attribute: {"S": "x".repeat(bytes)}}));
        let put = json!({"TableName": "pages", "Item": item(bytes)});
        let update = |text: String| {
            let values = json!({":v": {"S": "x".repeat(bytes)}});
            json!({"TableName": "pages", "Key": key(), "UpdateExpression": text, "ExpressionAttributeValues": values})
        };
        let set = update(format!("SET {attribute} = :v"));
        let requests = vec![
            ("PutItem", put.clone()),
            ("BatchWriteItem", json!({"RequestItems": {"pages": [{"PutRequest": {"Item": item(bytes)}}]}})),
            ("TransactWriteItems", json!({"TransactItems": [{"Put": put}]})),
            ("UpdateItem", set.clone()),
            ("UpdateItem", update(format!("SET z = :v, {attribute} = if_not_exists({attribute}, :v)"))),
            ("TransactWriteItems", json!({"TransactItems": [{"Update": set}]})),
        ];
        assert_refused(&engines, requests, expected).await;
        call(&engines, "PutItem", &json!({"TableName": "pages", "Item": item(bytes - 1)})).await.unwrap();
    }
    let by_index = json!({
        "TableName": "pages", "IndexName": "global", "KeyConditionExpression": "g = :g",
        "ExpressionAttributeValues": {":g": {"S": "x".repeat(2_049)}},
    });
    assert_refused(&engines, vec![("Query", by_index)], HASH_TOO_LONG).await;
}

#[tokio::test]
async fn empty_or_unused_placeholders_are_refused() {
    let engines = engines().await;
    for field in ["ExpressionAttributeNames", "ExpressionAttributeValues"] {
        let empty = writes(&json!({field: {}, "ConditionExpression": "attribute_exists(a)"}));
        assert_refused(&engines, empty, &format!("{field} must not be empty")).await;
    }
    let get =
        |more: &Value| json!({"TransactItems": [{"Get": with(json!({"TableName": "pages", "Key": key()}), more)}]});
    let empty = get(&json!({"ProjectionExpression": "a", "ExpressionAttributeNames": {}}));
    assert_refused(&engines, vec![("TransactGetItems", empty)], "ExpressionAttributeNames must not be empty").await;
    for (field, placeholder) in
        [("ExpressionAttributeNames", json!({"#u": "u"})), ("ExpressionAttributeValues", json!({":u": {"S": "u"}}))]
    {
        let unused = writes(&json!({field: placeholder, "ConditionExpression": "attribute_exists(a)"}));
        assert_refused(&engines, unused, &format!("{field} unused in expressions")).await;
        let without_expression: Vec<_> = writes(&json!({field: placeholder}))
            .into_iter()
            .filter(|(_, request)| !request.to_string().contains("UpdateExpression"))
            .filter(|(_, request)| !request.to_string().contains("ConditionCheck"))
            .collect();
        assert_refused(&engines, without_expression, &format!("{field} can only be specified when using expressions"))
            .await;
    }
}

#[tokio::test]
async fn ordering_accepts_only_strings_numbers_and_binaries() {
    let engines = engines().await;
    for (kind, value) in [
        ("M", json!({"M": {}})),
        ("L", json!({"L": []})),
        ("BOOL", json!({"BOOL": true})),
        ("NULL", json!({"NULL": true})),
        ("SS", json!({"SS": ["a"]})),
        ("NS", json!({"NS": ["1"]})),
        ("BS", json!({"BS": ["YQ=="]})),
    ] {
        for (text, operator) in [
            ("a < :v", "<"),
            ("a <= :v", "<="),
            ("a > :v", ">"),
            (":v >= a", ">="),
            ("attribute_exists(a) OR NOT (m.b BETWEEN :v AND :v)", "BETWEEN"),
            ("begins_with(a, :v)", "begins_with"),
        ] {
            let expected = format!("operator or function: {operator}, operand type: {kind}");
            assert_refused(&engines, conditions(text, &Value::Null, &json!({":v": value})), &expected).await;
        }
    }
}

#[tokio::test]
async fn invalid_conditions_are_refused() {
    let engines = engines().await;
    let none = Value::Null;
    let number = |digits: &str| json!({":v": {"N": digits}});
    for (text, names, values, expected) in [
        ("a = a", &none, &none, "operator: =, first operand: [a]"),
        ("a <> a", &none, &none, "operator: <>, first operand: [a]"),
        ("m.b < m.b", &none, &none, "operator: <, first operand: [m, b]"),
        ("attribute_exists(a) AND NOT (#a = a)", &json!({"#a": "a"}), &none, "operator: =, first operand: [a]"),
        ("contains(a, a)", &none, &none, "operator: contains, first operand: [a]"),
        ("a IN (:v, a)", &none, &number("1"), "operator: IN, first operand: [a]"),
        ("attribute_type(a, :v)", &none, &number("1"), "attribute_type, operand type: N"),
        ("attribute_type(a, :v)", &none, &json!({":v": {"S": "X"}}), "Invalid attribute type name found; type: X"),
        ("a BETWEEN :v AND :w", &none, &json!({":v": {"N": "2"}, ":w": {"S": "3"}}), "requires same data type"),
        (
            "a BETWEEN :v AND :w",
            &none,
            &json!({":v": {"N": "10"}, ":w": {"N": "9"}}),
            "requires upper bound to be greater",
        ),
        (
            "a BETWEEN :v AND :w",
            &none,
            &json!({":v": {"S": "b"}, ":w": {"S": "a"}}),
            "requires upper bound to be greater",
        ),
        ("a = :v", &none, &number(&"1".repeat(39)), "more than 38 significant digits"),
        ("a = :v", &none, &number("1e126"), "magnitude larger than supported range"),
        ("a = :v", &none, &json!({":v": {"S": "x", "N": "1"}}), "must contain exactly one of the supported datatypes"),
        ("a = :missing", &none, &none, "not defined; attribute value: :missing"),
        ("attribute_exists(ttl)", &none, &none, "reserved keyword: ttl"),
    ] {
        assert_refused(&engines, conditions(text, names, values), expected).await;
    }
    // In writes only: a filter may not use key attributes.
    let by_key = writes(&json!({"ConditionExpression": "pk = pk"}));
    assert_refused(&engines, by_key, "operator: =, first operand: [pk]").await;
    let many: Vec<String> = (0..101).map(|number| format!(":v{number}")).collect();
    let values: Value = many.iter().map(|name| (name.clone(), json!({"N": "1"}))).collect();
    let many = format!("a IN ({})", many.join(", "));
    assert_refused(&engines, conditions(&many, &none, &values), "too many operands; number of operands: 101").await;
}

#[tokio::test]
async fn invalid_updates_are_refused() {
    let engines = engines().await;
    let text = json!({":v": {"S": "z"}});
    for (update, values, expected) in [
        ("SET pk = :v", &text, "Cannot update attribute pk"),
        ("SET z = :v REMOVE sk", &text, "Cannot update attribute sk"),
        ("SET a = :v, a = :v", &text, "Two document paths overlap"),
        ("SET m = :v, m.b = :v", &text, "Two document paths overlap"),
        ("DELETE a :v", &text, "operator: DELETE, operand type: STRING"),
        ("ADD a :v", &json!({":v": {"L": []}}), "operator: ADD, operand type: LIST"),
        ("SET a = :v", &json!({":v": {"N": "1".repeat(39)}}), "more than 38 significant digits"),
        ("SET a = :v", &json!({":v": {"S": "x".repeat(410_000)}}), "size"),
    ] {
        let fields = json!({"TableName": "pages", "Key": key(), "UpdateExpression": update, "ExpressionAttributeValues": values});
        let in_transaction = json!({"TransactItems": [{"Update": fields}]});
        assert_refused(&engines, vec![("UpdateItem", fields), ("TransactWriteItems", in_transaction)], expected).await;
    }
}

#[tokio::test]
async fn transactions_and_batches_over_their_limits_are_refused() {
    let engines = engines().await;
    let put = |sk: usize, bytes: usize| {
        let item = json!({"pk": {"S": "p"}, "sk": {"S": sk.to_string()}, "a": {"S": "x".repeat(bytes)}});
        json!({"Put": {"TableName": "pages", "Item": item}})
    };
    let puts =
        |count: usize, bytes: usize| json!({"TransactItems": (0..count).map(|sk| put(sk, bytes)).collect::<Vec<_>>()});
    let delete = json!({"Delete": {"TableName": "pages", "Key": {"pk": {"S": "p"}, "sk": {"S": "0"}}}});
    for (operation, request, expected) in [
        ("TransactWriteItems", puts(101, 1), "less than or equal to 100"),
        ("TransactWriteItems", puts(11, 400_000), "4MB"),
        ("TransactWriteItems", puts(1, 410_000), "Item size has exceeded"),
        ("TransactWriteItems", json!({"TransactItems": [put(0, 1), delete]}), "multiple operations on one item"),
        ("BatchGetItem", json!({"RequestItems": {"pages": {"Keys": [key(), key()]}}}), "duplicates"),
    ] {
        assert_refused(&engines, vec![(operation, request)], expected).await;
    }
}

#[tokio::test]
async fn recreated_table_is_validated_by_its_new_keys() {
    let engines = engines().await;
    call(&engines, "DeleteTable", &json!({"TableName": "pages"})).await.unwrap();
    let table = json!({
        "TableName": "pages", "BillingMode": "PAY_PER_REQUEST", "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    });
    call(&engines, "CreateTable", &table).await.unwrap();
    let item = json!({"pk": {"S": "p"}, "g": {"S": "x".repeat(2_049)}});
    call(&engines, "PutItem", &json!({"TableName": "pages", "Item": item})).await.unwrap();
}

/// The error code of an invalid condition, through a real client.
async fn error_code_of(clients: &Clients) -> Option<String> {
    let table = table(clients).await;
    let put = clients.dynamodb.put_item().table_name(table).item("pk", s("p")).item("sk", s("s"));
    let put = put.condition_expression("a < :m").expression_attribute_values(":m", AttributeValue::M([].into()));
    put.send().await.unwrap_err().into_service_error().code().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn in_process_and_gateway_clients_are_validated_alike() {
    let engines = Engines::memory(Clock::system()).await.unwrap();
    let in_process = InProcess::new(engines.clone(), Faults::none()).clients(Clock::system(), ClientTimeouts::WORKER);
    let gateway = Port::bind(0).unwrap().serve(engines).unwrap();
    for clients in [in_process, over_http(gateway.url())] {
        assert_eq!(error_code_of(&clients).await.as_deref(), Some("ValidationException"));
    }
}

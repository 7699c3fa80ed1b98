//! The DynamoDB behaviour that the ledger relies on, through the real SDK.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use everfresh_core::clients::Clients;
use support::{clients, item, n, s, table};

type Write = TransactWriteItem;

fn put(table: &str, sk: &str, condition: Option<&str>) -> Write {
    let put = Put::builder()
        .table_name(table)
        .item("pk", s("page"))
        .item("sk", s(sk))
        .set_condition_expression(condition.map(str::to_owned))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    Write::builder().put(put.build().unwrap()).build()
}

async fn get(clients: &Clients, table: &str, sk: &str) -> Option<std::collections::HashMap<String, AttributeValue>> {
    let got = clients.dynamodb.get_item().table_name(table).consistent_read(true);
    got.key("pk", s("page")).key("sk", s(sk)).send().await.unwrap().item
}

fn cancelled(error: SdkError<TransactWriteItemsError>) -> Vec<aws_sdk_dynamodb::types::CancellationReason> {
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error.into_service_error() else {
        panic!("expected a cancellation");
    };
    cancelled.cancellation_reasons.unwrap()
}

fn codes(reasons: &[aws_sdk_dynamodb::types::CancellationReason]) -> Vec<&str> {
    reasons.iter().map(|reason| reason.code().unwrap_or_default()).collect()
}

#[tokio::test]
async fn failed_condition_returns_the_existing_row() {
    let clients = clients().await;
    let table = table(&clients).await;
    let claim = |owner: &str| {
        clients
            .dynamodb
            .put_item()
            .table_name(&table)
            .set_item(Some(item(&[("pk", s("page")), ("sk", s("REQ#1")), ("owner", s(owner))])))
            .condition_expression("attribute_not_exists(pk)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
    };
    claim("first").await.unwrap();
    let refused = claim("second").await.unwrap_err().into_service_error();
    assert!(refused.is_conditional_check_failed_exception(), "{refused:?}");
    let aws_sdk_dynamodb::operation::put_item::PutItemError::ConditionalCheckFailedException(refused) = refused else {
        unreachable!("checked above")
    };
    assert_eq!(refused.item().unwrap()["owner"], s("first"));
    assert_eq!(get(&clients, &table, "REQ#1").await.unwrap()["owner"], s("first"));
}

#[tokio::test]
async fn conditional_updates_and_deletes_compare_stored_values() {
    let clients = clients().await;
    let table = table(&clients).await;
    let row = item(&[("pk", s("page")), ("sk", s("LOCK")), ("lease_token", s("mine")), ("lease_expires_at", n(100))]);
    clients.dynamodb.put_item().table_name(&table).set_item(Some(row)).send().await.unwrap();
    let renew = |token: &str, now: i64| {
        clients
            .dynamodb
            .update_item()
            .table_name(&table)
            .key("pk", s("page"))
            .key("sk", s("LOCK"))
            .update_expression("SET lease_expires_at = :until")
            .condition_expression("lease_token = :token AND lease_expires_at > :now")
            .expression_attribute_values(":until", n(200))
            .expression_attribute_values(":token", s(token))
            .expression_attribute_values(":now", n(now))
            .send()
    };
    assert!(renew("theirs", 50).await.is_err());
    assert!(renew("mine", 100).await.is_err(), "a lease that expires now has expired");
    renew("mine", 99).await.unwrap();
    let delete = |token: &str| {
        clients
            .dynamodb
            .delete_item()
            .table_name(&table)
            .key("pk", s("page"))
            .key("sk", s("LOCK"))
            .condition_expression("lease_token = :token")
            .expression_attribute_values(":token", s(token))
            .send()
    };
    assert!(delete("theirs").await.is_err());
    delete("mine").await.unwrap();
    assert!(get(&clients, &table, "LOCK").await.is_none());
}

#[tokio::test]
async fn cancellation_reasons_are_in_the_order_of_the_items() {
    let clients = clients().await;
    let table = table(&clients).await;
    let seed = clients.dynamodb.put_item().table_name(&table).item("pk", s("page")).item("sk", s("B"));
    seed.item("owner", s("first")).send().await.unwrap();
    let absent = Some("attribute_not_exists(pk)");
    let check = ConditionCheck::builder()
        .table_name(&table)
        .key("pk", s("page"))
        .key("sk", s("C"))
        .condition_expression("attribute_exists(pk)");
    let error = clients
        .dynamodb
        .transact_write_items()
        .transact_items(put(&table, "A", absent))
        .transact_items(put(&table, "B", absent))
        .transact_items(Write::builder().condition_check(check.build().unwrap()).build())
        .send()
        .await
        .unwrap_err();
    let reasons = cancelled(error);
    assert_eq!(codes(&reasons), ["None", "ConditionalCheckFailed", "ConditionalCheckFailed"]);
    assert_eq!(reasons[1].item().unwrap()["owner"], s("first"), "ALL_OLD works in a transaction too");
    assert!(get(&clients, &table, "A").await.is_none(), "all or nothing");
}

#[tokio::test]
async fn transaction_puts_updates_and_deletes_atomically() {
    let clients = clients().await;
    let table = table(&clients).await;
    for sk in ["LOCK", "REQ#1"] {
        let seed = clients.dynamodb.put_item().table_name(&table).item("pk", s("page")).item("sk", s(sk));
        seed.item("token", s("mine")).send().await.unwrap();
    }
    let key = item(&[("pk", s("page")), ("sk", s("REQ#1"))]);
    let update = Update::builder()
        .table_name(&table)
        .set_key(Some(key))
        .update_expression("SET #s = :done")
        .expression_attribute_names("#s", "status")
        .expression_attribute_values(":done", s("COMPLETED"));
    let delete = Delete::builder()
        .table_name(&table)
        .key("pk", s("page"))
        .key("sk", s("LOCK"))
        .condition_expression("#t = :mine")
        .expression_attribute_names("#t", "token")
        .expression_attribute_values(":mine", s("mine"));
    clients
        .dynamodb
        .transact_write_items()
        .transact_items(put(&table, "META", Some("attribute_not_exists(pk)")))
        .transact_items(Write::builder().update(update.build().unwrap()).build())
        .transact_items(Write::builder().delete(delete.build().unwrap()).build())
        .send()
        .await
        .unwrap();
    assert!(get(&clients, &table, "META").await.is_some());
    assert_eq!(get(&clients, &table, "REQ#1").await.unwrap()["status"], s("COMPLETED"));
    assert!(get(&clients, &table, "LOCK").await.is_none());
}

#[tokio::test]
async fn repeated_token_executes_once_and_answers_twice() {
    let clients = clients().await;
    let table = table(&clients).await;
    let token = uuid::Uuid::new_v4().to_string();
    let commit = |sk: &'static str| {
        let write = put(&table, sk, Some("attribute_not_exists(pk)"));
        clients.dynamodb.transact_write_items().client_request_token(&token).transact_items(write).send()
    };
    commit("META").await.unwrap();
    commit("META").await.expect("a replay succeeds although its condition no longer holds");
    let mismatch = commit("OTHER").await.unwrap_err().into_service_error();
    assert!(mismatch.is_idempotent_parameter_mismatch_exception(), "{mismatch:?}");
    assert!(get(&clients, &table, "OTHER").await.is_none());
}

#[tokio::test]
async fn two_operations_on_one_item_in_a_transaction_are_refused() {
    let clients = clients().await;
    let table = table(&clients).await;
    let check = ConditionCheck::builder()
        .table_name(&table)
        .key("pk", s("page"))
        .key("sk", s("LOCK"))
        .condition_expression("attribute_exists(pk)");
    let delete = Delete::builder().table_name(&table).key("pk", s("page")).key("sk", s("LOCK"));
    let refused = clients
        .dynamodb
        .transact_write_items()
        .transact_items(Write::builder().condition_check(check.build().unwrap()).build())
        .transact_items(Write::builder().delete(delete.build().unwrap()).build())
        .send()
        .await
        .unwrap_err();
    assert_eq!(refused.into_service_error().meta().code(), Some("ValidationException"));
}

#[tokio::test]
async fn query_reads_a_range_of_sort_keys_in_pages() {
    let clients = clients().await;
    let table = table(&clients).await;
    for sk in ["HEALTH", "LOCK", "META", "REQ#1", "VER#1"] {
        clients.dynamodb.put_item().table_name(&table).item("pk", s("page")).item("sk", s(sk)).send().await.unwrap();
    }
    let query = || {
        clients
            .dynamodb
            .query()
            .table_name(&table)
            .consistent_read(true)
            .key_condition_expression("pk = :pk AND sk BETWEEN :from AND :to")
            .expression_attribute_values(":pk", s("page"))
            .expression_attribute_values(":from", s("HEALTH"))
            .expression_attribute_values(":to", s("META"))
    };
    let names = |items: &[std::collections::HashMap<String, AttributeValue>]| -> Vec<String> {
        items.iter().map(|row| row["sk"].as_s().unwrap().clone()).collect()
    };
    let whole = query().send().await.unwrap();
    assert_eq!(names(whole.items()), ["HEALTH", "LOCK", "META"]);
    let first = query().limit(2).send().await.unwrap();
    assert_eq!(names(first.items()), ["HEALTH", "LOCK"]);
    let rest = query().set_exclusive_start_key(first.last_evaluated_key).send().await.unwrap();
    assert_eq!(names(rest.items()), ["META"]);
    assert!(rest.last_evaluated_key.is_none());
}

#[tokio::test]
async fn exactly_one_of_many_conditional_writers_wins() {
    let clients = clients().await;
    let table = table(&clients).await;
    for round in 0..20 {
        let writers = (0..16).map(|writer| {
            let (clients, table) = (clients.clone(), table.clone());
            tokio::spawn(async move {
                let put = clients.dynamodb.put_item().table_name(table).item("pk", s("page"));
                let put = put.item("sk", s(&format!("LOCK{round}"))).item("owner", n(writer));
                put.condition_expression("attribute_not_exists(pk)").send().await.is_ok()
            })
        });
        let wins = futures::future::join_all(writers).await.into_iter().filter(|won| *won.as_ref().unwrap()).count();
        assert_eq!(wins, 1, "round {round}");
    }
}

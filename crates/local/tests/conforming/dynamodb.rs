//! DynamoDB: single writes, transactions and reads on one partition, all of which is compared after
//! each.

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, KeysAndAttributes, Put, ReturnValue, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem, Update,
};
use everfresh_core::clients::Clients;
use fastrand::Rng;

use super::requests::{self, Expression, PARTITION, Row, Write};
use super::{Facts, outcome};
use crate::support::{s, table, unique};

const ALL_OLD: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    PutItem { write: Write, returns: Option<ReturnValue> },
    UpdateItem { write: Write, returns: Option<ReturnValue> },
    DeleteItem { write: Write, returns: Option<ReturnValue> },
    GetItem { key: Row },
    Query { from: &'static str, to: &'static str, limit: Option<i32>, backwards: bool },
    BatchGetItem { keys: Vec<Row> },
    TransactWriteItems { writes: Vec<Write>, token: Option<usize> },
}

/// Generates operations. Transactions are repeated, with their own token and with another's.
pub(crate) struct Generator {
    rng: Rng,
    sent: Vec<Vec<Write>>,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), sent: Vec::new() }
    }

    pub(crate) fn operation(&mut self) -> Operation {
        let rng = &mut self.rng;
        match rng.u32(0..20) {
            0..8 => {
                let sk = requests::sort_key(rng);
                let write = requests::write(rng, sk, false);
                let all_new = matches!(write, Write::Update { .. }) && rng.bool();
                let returns = if all_new { ReturnValue::AllNew } else { ReturnValue::AllOld };
                let returns = rng.bool().then_some(returns);
                match write {
                    Write::Put { .. } => Operation::PutItem { write, returns },
                    Write::Update { .. } => Operation::UpdateItem { write, returns },
                    Write::Delete { .. } | Write::Check { .. } => Operation::DeleteItem { write, returns },
                }
            }
            8 => Operation::GetItem { key: requests::key(rng) },
            9 => Operation::Query {
                from: requests::sort_key(rng),
                to: requests::sort_key(rng),
                limit: rng.bool().then(|| rng.i32(1..4)),
                backwards: rng.u32(0..4) == 0,
            },
            10 => {
                let keys = (0..rng.usize(1..4)).map(|_| requests::key(rng)).collect();
                Operation::BatchGetItem { keys }
            }
            11 if !self.sent.is_empty() => {
                // A replay of an earlier transaction, or a different request under its token.
                let token = rng.usize(0..self.sent.len());
                let same = rng.bool();
                let writes = if same { self.sent[token].clone() } else { transaction(rng) };
                Operation::TransactWriteItems { writes, token: Some(token) }
            }
            _ => {
                let writes = transaction(rng);
                let token = rng.bool().then_some(self.sent.len());
                if token.is_some() {
                    self.sent.push(writes.clone());
                }
                Operation::TransactWriteItems { writes, token }
            }
        }
    }
}

/// Two to four writes, mostly of different items: two writes of one item are refused.
fn transaction(rng: &mut Rng) -> Vec<Write> {
    let first = requests::sort_key(rng);
    let mut keys = vec![first];
    for _ in 1..rng.usize(2..5) {
        let next = requests::sort_key(rng);
        if !keys.contains(&next) || rng.u32(0..8) == 0 {
            keys.push(next);
        }
    }
    keys.into_iter().map(|sk| requests::write(rng, sk, true)).collect()
}

pub(crate) struct Side {
    clients: Clients,
    table: String,
    /// Prefix of this sequence's tokens: an emulator may still know those of other sequences.
    tokens: String,
}

impl super::Side for Side {
    type Operation = Operation;

    async fn new(clients: &Clients) -> Self {
        let tokens = unique("").trim_start_matches('-')[..20].to_owned();
        Self { clients: clients.clone(), table: table(clients).await, tokens }
    }

    async fn execute(&mut self, operation: &Operation) -> Facts {
        let mut facts = Facts::new();
        match operation {
            Operation::PutItem { write, returns }
            | Operation::UpdateItem { write, returns }
            | Operation::DeleteItem { write, returns } => self.single(write, returns.clone(), &mut facts).await,
            Operation::GetItem { key } => {
                let get = self.clients.dynamodb.get_item().table_name(&self.table).consistent_read(true);
                let got = get.set_key(Some(key.clone())).send().await;
                facts.insert("outcome", outcome(&got));
                facts.insert("item", got.ok().and_then(|got| got.item).map_or("none".into(), |item| shown(&item)));
            }
            Operation::Query { from, to, limit, backwards } => {
                self.query(from, to, *limit, !backwards, &mut facts).await
            }
            Operation::BatchGetItem { keys } => {
                let keys = KeysAndAttributes::builder().set_keys(Some(keys.clone())).consistent_read(true).build();
                let got = self.clients.dynamodb.batch_get_item().request_items(&self.table, keys.unwrap()).send().await;
                facts.insert("outcome", outcome(&got));
                let found = got.ok().and_then(|got| got.responses).unwrap_or_default();
                let mut found: Vec<String> = found.values().flatten().map(shown).collect();
                found.sort();
                facts.insert("items", found.join(" "));
            }
            Operation::TransactWriteItems { writes, token } => self.transact(writes, *token, &mut facts).await,
        }
        facts.insert("partition", self.partition().await);
        facts
    }
}

impl Side {
    async fn partition(&self) -> String {
        let query = self.clients.dynamodb.query().table_name(&self.table).consistent_read(true);
        let query = query.key_condition_expression("pk = :pk").expression_attribute_values(":pk", s(PARTITION));
        let rows = query.send().await.unwrap().items.unwrap_or_default();
        rows.iter().map(shown).collect::<Vec<_>>().join("\n")
    }

    async fn query(&self, from: &str, to: &str, limit: Option<i32>, forward: bool, facts: &mut Facts) {
        let query = self.clients.dynamodb.query().table_name(&self.table).consistent_read(true);
        let query = query
            .key_condition_expression("pk = :pk AND sk BETWEEN :from AND :to")
            .expression_attribute_values(":pk", s(PARTITION))
            .expression_attribute_values(":from", s(from))
            .expression_attribute_values(":to", s(to));
        let found = query.set_limit(limit).scan_index_forward(forward).send().await;
        facts.insert("outcome", outcome(&found));
        if let Ok(found) = found {
            facts.insert("items", found.items().iter().map(shown).collect::<Vec<_>>().join(" "));
            facts.insert("count", found.count().to_string());
            facts.insert("last key", found.last_evaluated_key().map_or("none".into(), shown));
        }
    }

    async fn single(&self, write: &Write, returns: Option<ReturnValue>, facts: &mut Facts) {
        let dynamodb = &self.clients.dynamodb;
        let (returned, old) = match write {
            Write::Put { row, condition } => {
                let (text, names, values) = joined(None, condition.as_ref());
                let put = dynamodb.put_item().table_name(&self.table).set_item(Some(row.clone()));
                let put = put.set_condition_expression(text).set_expression_attribute_names(names);
                let put = put.set_expression_attribute_values(values).set_return_values(returns);
                let done = put.return_values_on_condition_check_failure(ALL_OLD).send().await;
                facts.insert("outcome", outcome(&done));
                match done.map_err(aws_sdk_dynamodb::error::SdkError::into_service_error) {
                    Ok(done) => (done.attributes, None),
                    Err(PutItemError::ConditionalCheckFailedException(error)) => (None, error.item),
                    Err(_) => (None, None),
                }
            }
            Write::Update { key, update, condition } => {
                let (text, names, values) = joined(Some(update), condition.as_ref());
                let change = dynamodb.update_item().table_name(&self.table).set_key(Some(key.clone()));
                let change = change.update_expression(&update.text).set_condition_expression(text);
                let change = change.set_expression_attribute_names(names).set_expression_attribute_values(values);
                let change = change.set_return_values(returns).return_values_on_condition_check_failure(ALL_OLD);
                let done = change.send().await;
                facts.insert("outcome", outcome(&done));
                match done.map_err(aws_sdk_dynamodb::error::SdkError::into_service_error) {
                    Ok(done) => (done.attributes, None),
                    Err(UpdateItemError::ConditionalCheckFailedException(error)) => (None, error.item),
                    Err(_) => (None, None),
                }
            }
            Write::Delete { key, condition } => {
                let (text, names, values) = joined(None, condition.as_ref());
                let delete = dynamodb.delete_item().table_name(&self.table).set_key(Some(key.clone()));
                let delete = delete.set_condition_expression(text).set_expression_attribute_names(names);
                let delete = delete.set_expression_attribute_values(values).set_return_values(returns);
                let done = delete.return_values_on_condition_check_failure(ALL_OLD).send().await;
                facts.insert("outcome", outcome(&done));
                match done.map_err(aws_sdk_dynamodb::error::SdkError::into_service_error) {
                    Ok(done) => (done.attributes, None),
                    Err(DeleteItemError::ConditionalCheckFailedException(error)) => (None, error.item),
                    Err(_) => (None, None),
                }
            }
            Write::Check { .. } => panic!("a condition check exists in transactions only"),
        };
        facts.insert("returned", returned.as_ref().map_or("none".into(), shown));
        facts.insert("old", old.as_ref().map_or("none".into(), shown));
    }

    async fn transact(&self, writes: &[Write], token: Option<usize>, facts: &mut Facts) {
        let writes = writes.iter().map(|write| self.in_transaction(write)).collect();
        let token = token.map(|number| format!("{}-{number}", self.tokens));
        let transact = self.clients.dynamodb.transact_write_items().set_transact_items(Some(writes));
        let done = transact.set_client_request_token(token).send().await;
        facts.insert("outcome", outcome(&done));
        let error = done.err().map(aws_sdk_dynamodb::error::SdkError::into_service_error);
        if let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = error {
            let reasons = cancelled.cancellation_reasons();
            let codes = reasons.iter().map(|reason| reason.code().unwrap_or("(none)")).collect::<Vec<_>>();
            facts.insert("reasons", codes.join(" "));
            let old = reasons.iter().map(|reason| reason.item().map_or("none".into(), shown)).collect::<Vec<_>>();
            facts.insert("old", old.join(" "));
        }
    }

    fn in_transaction(&self, write: &Write) -> TransactWriteItem {
        let operation = TransactWriteItem::builder();
        match write {
            Write::Put { row, condition } => {
                let (text, names, values) = joined(None, condition.as_ref());
                let put = Put::builder().table_name(&self.table).set_item(Some(row.clone()));
                let put = put.set_condition_expression(text).set_expression_attribute_names(names);
                let put = put.set_expression_attribute_values(values).return_values_on_condition_check_failure(ALL_OLD);
                operation.put(put.build().unwrap()).build()
            }
            Write::Update { key, update, condition } => {
                let (text, names, values) = joined(Some(update), condition.as_ref());
                let change = Update::builder().table_name(&self.table).set_key(Some(key.clone()));
                let change = change.update_expression(&update.text).set_condition_expression(text);
                let change = change.set_expression_attribute_names(names).set_expression_attribute_values(values);
                operation.update(change.return_values_on_condition_check_failure(ALL_OLD).build().unwrap()).build()
            }
            Write::Delete { key, condition } => {
                let (text, names, values) = joined(None, condition.as_ref());
                let delete = Delete::builder().table_name(&self.table).set_key(Some(key.clone()));
                let delete = delete.set_condition_expression(text).set_expression_attribute_names(names);
                let delete = delete.set_expression_attribute_values(values);
                operation.delete(delete.return_values_on_condition_check_failure(ALL_OLD).build().unwrap()).build()
            }
            Write::Check { key, condition } => {
                let (_, names, values) = joined(None, Some(condition));
                let check = ConditionCheck::builder().table_name(&self.table).set_key(Some(key.clone()));
                let check = check.condition_expression(&condition.text).set_expression_attribute_names(names);
                let check = check.set_expression_attribute_values(values);
                let check = check.return_values_on_condition_check_failure(ALL_OLD);
                operation.condition_check(check.build().unwrap()).build()
            }
        }
    }
}

type Joined = (Option<String>, Option<HashMap<String, String>>, Option<Row>);

/// The condition's text, and the names and values of condition and update. Empty maps are refused,
/// so they are left out.
fn joined(update: Option<&Expression>, condition: Option<&Expression>) -> Joined {
    let both = || update.into_iter().chain(condition);
    let names = both().flat_map(|part| &part.names).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let values = both().flat_map(|part| &part.values).map(|(name, value)| ((*name).to_owned(), value.clone()));
    let (names, values): (HashMap<_, _>, Row) = (names.collect(), values.collect());
    let text = condition.map(|condition| condition.text.clone());
    (text, (!names.is_empty()).then_some(names), (!values.is_empty()).then_some(values))
}

/// A row in one line with sorted attributes and types: `1` and `"1"` differ.
fn shown(row: &Row) -> String {
    let mut attributes: Vec<String> =
        row.iter().map(|(name, value)| format!("{name}={}", value_shown(value))).collect();
    attributes.sort();
    format!("{{{}}}", attributes.join(", "))
}

fn value_shown(value: &AttributeValue) -> String {
    if let AttributeValue::M(map) = value {
        return shown(map);
    }
    if let AttributeValue::L(list) = value {
        return format!("[{}]", list.iter().map(value_shown).collect::<Vec<_>>().join(", "));
    }
    format!("{value:?}")
}

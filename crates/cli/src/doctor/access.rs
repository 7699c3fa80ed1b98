//! The calls that commands make: each once, by its name in IAM, and so that it changes nothing.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Debug;

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use everfresh_enqueue::explain;

use super::Report;
use super::store::LISTING;
use crate::target::Target;

/// No row has this key, and no object.
const NONE: &str = "DOCTOR";

/// No row meets it, also not one with that key.
const NEVER: &str = "attribute_exists(pk) AND attribute_not_exists(pk)";

pub(super) async fn check(target: &Target, report: &mut Report) {
    dynamodb(target, report).await;
    s3(target, report).await;
    sqs(target, report).await;
}

async fn dynamodb(target: &Target, report: &mut Report) {
    let (client, table) = (&target.clients.dynamodb, &target.stack.table);
    let text = || AttributeValue::S(NONE.to_owned());
    let get = client.get_item().table_name(table).key("pk", text()).key("sk", text());
    allowed("dynamodb:GetItem", get.send().await, &[], report);
    let query = client.query().table_name(table).key_condition_expression("pk = :pk");
    let query = query.expression_attribute_values(":pk", text());
    allowed("dynamodb:Query", query.send().await, &[], report);
    // An index has an ARN of its own. That it exists is another check.
    let query = client.query().table_name(table).index_name(LISTING).key_condition_expression("tenant = :tenant");
    let query = query.expression_attribute_values(":tenant", text());
    allowed("dynamodb:Query index", query.send().await, &["ValidationException"], report);
    let key = HashMap::from([("pk".to_owned(), text()), ("sk".to_owned(), text())]);
    let batch = KeysAndAttributes::builder().keys(key).build();
    if let Ok(batch) = batch {
        let batch = client.batch_get_item().request_items(table, batch);
        allowed("dynamodb:BatchGetItem", batch.send().await, &[], report);
    }
    let refused = &["ConditionalCheckFailedException"];
    let put = client.put_item().table_name(table).item("pk", text()).item("sk", text()).condition_expression(NEVER);
    allowed("dynamodb:PutItem", put.send().await, refused, report);
    let update = client.update_item().table_name(table).key("pk", text()).key("sk", text());
    let update = update.update_expression("REMOVE doctor").condition_expression(NEVER);
    allowed("dynamodb:UpdateItem", update.send().await, refused, report);
    let delete = client.delete_item().table_name(table).key("pk", text()).key("sk", text());
    allowed("dynamodb:DeleteItem", delete.condition_expression(NEVER).send().await, refused, report);
}

async fn s3(target: &Target, report: &mut Report) {
    let (client, bucket) = (&target.clients.s3, &target.stack.bucket);
    let list = client.list_objects_v2().bucket(bucket).prefix(NONE).max_keys(1);
    allowed("s3:ListBucket", list.send().await, &[], report);
    let get = client.get_object().bucket(bucket).key(NONE);
    // Without s3:ListBucket S3 does not say that an object is missing: then this fails as well.
    allowed("s3:GetObject", get.send().await, &["NoSuchKey"], report);
}

async fn sqs(target: &Target, report: &mut Report) {
    let attributes = target.clients.sqs.get_queue_attributes().queue_url(&target.stack.queue);
    allowed("sqs:GetQueueAttributes", attributes.send().await, &[], report);
    // The receipt names no message. SQS checks it after the permission.
    let delete = target.clients.sqs.delete_message().queue_url(&target.stack.dead_letter_queue).receipt_handle(NONE);
    let refused = &["ReceiptHandleIsInvalid", "InvalidParameterValue", "InvalidAddress"];
    allowed("sqs:DeleteMessage", delete.send().await, refused, report);
    report.ok("sqs:SendMessage", "not tried, it would enqueue; and sqs:ReceiveMessage, it would hide messages");
}

/// `expected` are refusals for another reason than the permission.
fn allowed<T, E, R>(name: &str, answer: Result<T, SdkError<E, R>>, expected: &[&str], report: &mut Report)
where
    E: ProvideErrorMetadata + Error + 'static,
    R: Debug,
{
    match answer {
        Ok(_) => report.ok(name, "allowed"),
        Err(error) if error.code().is_some_and(|code| expected.contains(&code)) => report.ok(name, "allowed"),
        Err(error) => {
            let next = format!("let your AWS identity call {name} on this deployment");
            report.fail(name, explain(&error), next);
        }
    }
}

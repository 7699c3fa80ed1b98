//! Table and bucket: they exist, and are set up as the template sets them up.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, IndexStatus, KeySchemaElement, KeyType, ScalarAttributeType, TableDescription,
    TimeToLiveStatus,
};
use everfresh_core::clients::Clients;
use everfresh_enqueue::explain;

use super::Report;
use crate::target::Target;

pub(super) const LISTING: &str = "listing";

pub(super) async fn table(target: &Target, report: &mut Report) {
    let table = &target.stack.table;
    let described = target.clients.dynamodb.describe_table().table_name(table).send().await;
    let described = match described {
        Ok(described) => described.table,
        Err(error) => {
            let next = "check --stack, the region, and the permission dynamodb:DescribeTable";
            return report.fail("table", format!("{table}: {}", explain(&error)), next);
        }
    };
    let Some(described) = described else { return };
    let definitions = described.attribute_definitions();
    match has_keys(described.key_schema(), definitions, ["pk", "sk"]) {
        true => report.ok("table", format!("{table}, with keys pk and sk")),
        false => report.fail(
            "table",
            format!("{table} has other keys than the texts pk and sk"),
            "create a table with these keys and move the rows: DynamoDB cannot change a table's keys",
        ),
    }
    index(&described, report);
    time_to_live(target, report).await;
}

fn index(table: &TableDescription, report: &mut Report) {
    let name = "index listing";
    let lacking = "`page list`, `page purge --prefix` and the sweep do not work";
    let found = table.global_secondary_indexes().iter().find(|index| index.index_name() == Some(LISTING));
    let Some(found) = found else {
        let next = "add it: keys `tenant` and `path`, both texts, projection KEYS_ONLY";
        return report.warn(name, format!("missing: {lacking}"), next);
    };
    if !has_keys(found.key_schema(), table.attribute_definitions(), ["tenant", "path"]) {
        let next = "delete it and add it again with keys `tenant` and `path`, both texts";
        return report.warn(name, format!("has other keys: {lacking}"), next);
    }
    match found.index_status() {
        None | Some(IndexStatus::Active) => report.ok(name, "there"),
        Some(other) => report.warn(name, format!("{other}: {lacking}"), "wait until it is ACTIVE"),
    }
}

fn has_keys(schema: &[KeySchemaElement], definitions: &[AttributeDefinition], [hash, range]: [&str; 2]) -> bool {
    let has = |name: &str, kind: &KeyType| {
        let key = schema.iter().any(|key| key.attribute_name() == name && key.key_type() == kind);
        let text = definitions.iter().any(|definition| {
            definition.attribute_name() == name && *definition.attribute_type() == ScalarAttributeType::S
        });
        key && text
    };
    schema.len() == 2 && has(hash, &KeyType::Hash) && has(range, &KeyType::Range)
}

async fn time_to_live(target: &Target, report: &mut Report) {
    let name = "time to live";
    let next = "enable it on the attribute `ttl`, or records of requests are never deleted";
    let described = target.clients.dynamodb.describe_time_to_live().table_name(&target.stack.table).send().await;
    let setting = match described {
        Ok(described) => described.time_to_live_description,
        Err(error) => return report.warn(name, explain(&error), "check the permission dynamodb:DescribeTimeToLive"),
    };
    let status = setting.as_ref().and_then(|setting| setting.time_to_live_status());
    let attribute = setting.as_ref().and_then(|setting| setting.attribute_name()).unwrap_or("no attribute");
    match status {
        Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) if attribute == "ttl" => {
            report.ok(name, "enabled on `ttl`");
        }
        Some(status) => report.warn(name, format!("{status} on {attribute}"), next),
        None => report.warn(name, "disabled", next),
    }
}

pub(super) async fn bucket(target: &Target, report: &mut Report) {
    let bucket = &target.stack.bucket;
    let Clients { s3, .. } = &target.clients;
    match s3.head_bucket().bucket(bucket).send().await {
        Ok(_) => report.ok("bucket", bucket),
        Err(error) => {
            let next = "check that it exists in this region, and the permission s3:ListBucket";
            return report.fail("bucket", format!("{bucket}: {}", explain(&error)), next);
        }
    }
    // The local engine has no versions.
    if target.functions.is_none() {
        return;
    }
    let name = "bucket versioning";
    match s3.get_bucket_versioning().bucket(bucket).send().await {
        Ok(answer) => match answer.status() {
            Some(aws_sdk_s3::types::BucketVersioningStatus::Enabled) => report.warn(
                name,
                "enabled: what the sweep removes stays as an old version",
                "add a lifecycle rule that expires noncurrent versions",
            ),
            Some(_) | None => report.ok(name, "not enabled"),
        },
        Err(error) => report.warn(name, explain(&error), "check the permission s3:GetBucketVersioning"),
    }
}

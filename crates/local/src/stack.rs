//! Creates the table, bucket and queues of a deployment, with the settings that affect behaviour.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TimeToLiveSpecification,
};
use aws_sdk_sqs::types::QueueAttributeName;
use everfresh_core::clients::Clients;
use everfresh_core::stack::Stack;

use crate::{ACCOUNT, REGION};

/// Name of table and bucket, and prefix of the queues.
const NAME: &str = "everfresh";

#[derive(Debug, thiserror::Error)]
#[error("creating {what}: {}", aws_sdk_dynamodb::error::DisplayErrorContext(.source.as_ref()))]
pub struct ProvisionError {
    what: &'static str,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Creates missing resources and updates the queues' attributes.
///
/// `visibility` is the queues' visibility timeout in seconds.
pub async fn provision(clients: &Clients, visibility: u32) -> Result<Stack, ProvisionError> {
    provision_store(clients).await?;
    let dead_letter_queue =
        queue(clients, "everfresh-dead-letters", &[(QueueAttributeName::MessageRetentionPeriod, days(14))]).await?;
    // A safety net: the worker counts attempts itself and rejects long before.
    let redrive = format!(r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":100}}"#, arn("everfresh-dead-letters"));
    let source = [
        (QueueAttributeName::VisibilityTimeout, visibility.to_string()),
        (QueueAttributeName::MessageRetentionPeriod, days(13)),
        (QueueAttributeName::RedrivePolicy, redrive),
    ];
    Ok(Stack {
        table: NAME.to_owned(),
        bucket: NAME.to_owned(),
        queue: queue(clients, NAME, &source).await?,
        low_priority_queue: queue(clients, "everfresh-low-priority", &source).await?,
        dead_letter_queue,
    })
}

/// Creates the table and the bucket only.
pub async fn provision_store(clients: &Clients) -> Result<(), ProvisionError> {
    table(clients).await?;
    bucket(clients).await
}

/// The ARN of a local queue, from its URL or its name.
pub fn arn(queue: &str) -> String {
    let name = queue.rsplit('/').next().unwrap_or(queue);
    format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
}

fn days(n: u32) -> String {
    (n * 24 * 60 * 60).to_string()
}

async fn table(clients: &Clients) -> Result<(), ProvisionError> {
    let invalid = failure("the DynamoDB table's definition");
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let string =
        |name: &str| AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build();
    let created = clients
        .dynamodb
        .create_table()
        .table_name(NAME)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key("pk", KeyType::Hash).map_err(&invalid)?)
        .key_schema(key("sk", KeyType::Range).map_err(&invalid)?)
        .attribute_definitions(string("pk").map_err(&invalid)?)
        .attribute_definitions(string("sk").map_err(&invalid)?)
        .attribute_definitions(string("tenant").map_err(&invalid)?)
        .attribute_definitions(string("path").map_err(&invalid)?)
        .global_secondary_indexes(listing().map_err(&invalid)?)
        .send()
        .await;
    match created {
        Ok(_) => {}
        Err(error) if error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) => return Ok(()),
        Err(error) => return Err(failure("the DynamoDB table")(error)),
    }
    let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name("ttl").build().map_err(&invalid)?;
    clients
        .dynamodb
        .update_time_to_live()
        .table_name(NAME)
        .time_to_live_specification(ttl)
        .send()
        .await
        .map_err(failure("the DynamoDB table's TTL"))?;
    Ok(())
}

/// A tenant's pages, as in the template.
fn listing() -> Result<GlobalSecondaryIndex, BuildError> {
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    GlobalSecondaryIndex::builder()
        .index_name("listing")
        .key_schema(key("tenant", KeyType::Hash)?)
        .key_schema(key("path", KeyType::Range)?)
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .build()
}

async fn bucket(clients: &Clients) -> Result<(), ProvisionError> {
    match clients.s3.create_bucket().bucket(NAME).send().await {
        Ok(_) => Ok(()),
        Err(error) if error.as_service_error().is_some_and(|e| e.is_bucket_already_owned_by_you()) => Ok(()),
        Err(error) => Err(failure("the S3 bucket")(error)),
    }
}

/// Returns the queue's URL. An existing queue gets these attributes too.
async fn queue(
    clients: &Clients,
    name: &str,
    attributes: &[(QueueAttributeName, String)],
) -> Result<String, ProvisionError> {
    let created = clients.sqs.create_queue().queue_name(name).send().await.map_err(failure("an SQS queue"))?;
    let url = created.queue_url.unwrap_or_default();
    clients
        .sqs
        .set_queue_attributes()
        .queue_url(&url)
        .set_attributes(Some(attributes.iter().cloned().collect()))
        .send()
        .await
        .map_err(failure("an SQS queue's attributes"))?;
    Ok(url)
}

fn failure<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> ProvisionError {
    move |source| ProvisionError { what, source: Box::new(source) }
}

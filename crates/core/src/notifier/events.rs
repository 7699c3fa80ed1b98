//! "Page Regenerated" events to an EventBridge bus or an SNS topic.

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_sns::types::MessageAttributeValue;
use serde_json::{Value, json};

use super::{EventTarget, NotifyError};
use crate::aws_error::AwsError;
use crate::clients::Clients;
use crate::domain::page::Meta;
use crate::domain::page_key::PageKey;
use crate::domain::version::Version;

/// Rules and filter policies match on these two.
const SOURCE: &str = "everfresh";
const PAGE_REGENERATED: &str = "Page Regenerated";
/// The page was taken down: by its origin, which does not let it be stored, or by an operator.
const PAGE_WITHDRAWN: &str = "Page Withdrawn";

#[derive(Clone, Debug)]
pub(super) enum Events {
    Bus { eventbridge: aws_sdk_eventbridge::Client, arn: String },
    Topic { sns: aws_sdk_sns::Client, arn: String },
}

impl Events {
    pub(super) fn new(clients: &Clients, target: &EventTarget) -> Self {
        match target {
            EventTarget::Bus(arn) => {
                let mut config = aws_sdk_eventbridge::config::Builder::from(clients.shared());
                config.set_region(target.region());
                config.set_retry_partition(clients.retry_partition("eventbridge"));
                Self::Bus { eventbridge: aws_sdk_eventbridge::Client::from_conf(config.build()), arn: arn.clone() }
            }
            EventTarget::Topic(arn) => {
                let mut config = aws_sdk_sns::config::Builder::from(clients.shared());
                config.set_region(target.region());
                config.set_retry_partition(clients.retry_partition("sns"));
                Self::Topic { sns: aws_sdk_sns::Client::from_conf(config.build()), arn: arn.clone() }
            }
        }
    }

    /// Publishes the event. Delivery is at least once: a subscriber deduplicates by `id`.
    pub(super) async fn page_regenerated(
        &self,
        page: &PageKey,
        version: &Version,
        meta: &Meta,
        id: &str,
    ) -> Result<(), NotifyError> {
        let detail = detail(page, version, meta, id).to_string();
        let detail_type = if meta.has_body() { PAGE_REGENERATED } else { PAGE_WITHDRAWN };
        match self {
            Self::Bus { eventbridge, arn } => put(eventbridge, arn, detail_type, detail).await,
            Self::Topic { sns, arn } => publish(sns, arn, detail_type, detail, page, id).await,
        }
        .map_err(|source| NotifyError { target: self.arn().to_owned(), source })
    }

    fn arn(&self) -> &str {
        match self {
            Self::Bus { arn, .. } | Self::Topic { arn, .. } => arn,
        }
    }
}

fn detail(page: &PageKey, version: &Version, meta: &Meta, id: &str) -> Value {
    let mut detail = json!({
        "id": id,
        "tenant": page.tenant().as_str(),
        "path": page.path().as_str(),
        "version": version.to_string(),
        "status": meta.status,
        "etag": meta.etag,
        "tags": meta.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(),
        "generated_at": meta.generated_at,
    });
    if let Some(bypass) = &meta.bypass {
        detail["bypass"] = bypass.reason.as_str().into();
    }
    detail
}

async fn put(
    eventbridge: &aws_sdk_eventbridge::Client,
    arn: &str,
    detail_type: &str,
    detail: String,
) -> Result<(), AwsError> {
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(arn)
        .source(SOURCE)
        .detail_type(detail_type)
        .detail(detail)
        .build();
    let put = eventbridge.put_events().entries(entry).send().await;
    let put = put.map_err(AwsError::detailed)?;
    // The call succeeds even if its entry failed.
    match put.entries().iter().find_map(|entry| entry.error_code().map(|code| (code, entry.error_message()))) {
        Some((code, message)) => Err(AwsError::message(format!("{code}: {}", message.unwrap_or_default()))),
        None if put.failed_entry_count() > 0 => Err(AwsError::message("the bus did not take the event")),
        None => Ok(()),
    }
}

async fn publish(
    sns: &aws_sdk_sns::Client,
    arn: &str,
    detail_type: &str,
    detail: String,
    page: &PageKey,
    id: &str,
) -> Result<(), AwsError> {
    let attribute = |value: &str| {
        let text = MessageAttributeValue::builder().data_type("String").string_value(value);
        text.build().map_err(AwsError::new)
    };
    let mut publish = sns
        .publish()
        .topic_arn(arn)
        .message(detail)
        .message_attributes("source", attribute(SOURCE)?)
        .message_attributes("detail-type", attribute(detail_type)?)
        .message_attributes("tenant", attribute(page.tenant().as_str())?)
        .message_attributes("id", attribute(id)?);
    if arn.ends_with(".fifo") {
        publish = publish.message_group_id(page.hash().to_string()).message_deduplication_id(id);
    }
    publish.send().await.map(drop).map_err(AwsError::detailed)
}

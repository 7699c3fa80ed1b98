//! A message prepared for its queue. Prepared once, so that every attempt sends the same bytes.

use std::collections::HashMap;

use aws_sdk_sqs::types::{MessageAttributeValue, MessageSystemAttributeNameForSends, MessageSystemAttributeValue};

use super::retry::Failure;
use super::{SendError, Sender, Sent};
use crate::attributes;
use crate::key::IdempotencyKey;
use crate::message::{self, MAX_MESSAGE_BYTES, Message, MessageError, Reason};

/// Data type of every attribute.
const DATA_TYPE: &str = "String";

#[derive(Clone, Debug)]
pub(super) struct OutboundMessage {
    /// URL of the queue.
    pub(super) queue: String,
    pub(super) body: String,
    /// The tenant, for SQS fair queues: one tenant's backlog does not delay another tenant's
    /// message.
    pub(super) group: String,
    pub(super) attributes: HashMap<String, MessageAttributeValue>,
    pub(super) system_attributes: Option<HashMap<MessageSystemAttributeNameForSends, MessageSystemAttributeValue>>,
    /// Size that SQS counts against its limit.
    pub(super) bytes: usize,
    /// Key in the body.
    key: Option<IdempotencyKey>,
}

impl Sender {
    pub(super) fn outbound(&self, message: &Message, extra: &[(&str, &str)]) -> Result<OutboundMessage, SendError> {
        let mut message = message.clone();
        // In the body, as in the published schema. The key attribute marks a rejected message.
        if message.idempotency_key.is_none() && self.retry.is_some() {
            message.idempotency_key = Some(IdempotencyKey::generate());
        }
        let body = message.to_json()?;
        let contract = message::VERSION.to_string();
        let mut texts = vec![(attributes::CONTRACT, contract.as_str())];
        if let Some((name, version)) = &self.producer {
            texts.extend([(attributes::PRODUCER, name.as_str()), (attributes::VERSION, version.as_str())]);
        }
        texts.extend(self.trace.attributes());
        texts.extend(extra);
        let mut bytes = body.len();
        let mut attributes = HashMap::new();
        for (name, value) in texts {
            bytes += name.len() + DATA_TYPE.len() + value.len();
            let value = MessageAttributeValue::builder().data_type(DATA_TYPE).string_value(value).build();
            // Building cannot fail: the required field is set.
            attributes.extend(value.ok().map(|value| (name.to_owned(), value)));
        }
        if bytes > MAX_MESSAGE_BYTES {
            return Err(MessageError::TooLarge { bytes }.into());
        }
        let queue = match message.reason {
            Reason::Changed | Reason::Expired => &self.queues.main,
            Reason::Prewarm => &self.queues.low_priority,
        };
        Ok(OutboundMessage {
            queue: queue.clone(),
            body,
            attributes,
            system_attributes: self.trace.xray_header().and_then(trace_header),
            bytes,
            group: message.tenant,
            key: message.idempotency_key,
        })
    }
}

impl OutboundMessage {
    pub(super) fn sent(&self, message_id: Option<String>) -> Result<Sent, Failure> {
        let message_id = message_id.ok_or_else(|| Failure::transient("SQS returned no message id"))?;
        let key = match &self.key {
            Some(key) => key.clone(),
            // Not retried: the message is in the queue, and without a key a second copy would be
            // another request.
            None => IdempotencyKey::parse(&message_id)
                .map_err(|error| Failure::permanent(format!("the SQS message id {error}")))?,
        };
        Ok(Sent { message_id, key })
    }

    pub(super) fn failed(&self, failure: Failure) -> SendError {
        SendError::Queue { queue: self.queue.clone(), why: failure.why, key: self.key.clone() }
    }
}

/// System attribute for X-Ray. SQS and Lambda read it, and it counts neither against the number of
/// attributes nor against the message size.
fn trace_header(header: &str) -> Option<HashMap<MessageSystemAttributeNameForSends, MessageSystemAttributeValue>> {
    let value = MessageSystemAttributeValue::builder().data_type(DATA_TYPE).string_value(header).build().ok()?;
    Some(HashMap::from([(MessageSystemAttributeNameForSends::AwsTraceHeader, value)]))
}

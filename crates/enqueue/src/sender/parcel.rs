//! A message made ready for its queue, once: every attempt sends the same bytes.

use std::collections::HashMap;

use aws_sdk_sqs::types::{MessageAttributeValue, MessageSystemAttributeNameForSends, MessageSystemAttributeValue};

use super::retry::Failure;
use super::{SendError, Sender, Sent};
use crate::attributes;
use crate::key::IdempotencyKey;
use crate::message::{self, MAX_MESSAGE_BYTES, Message, MessageError, Reason};

/// The data type of every attribute.
const TEXT: &str = "String";

#[derive(Clone, Debug)]
pub(super) struct Parcel {
    /// Where to.
    pub(super) queue: String,
    pub(super) body: String,
    /// Fair queueing: one tenant's flood does not hold up another's single wish.
    pub(super) group: String,
    pub(super) attributes: HashMap<String, MessageAttributeValue>,
    pub(super) system_attributes: Option<HashMap<MessageSystemAttributeNameForSends, MessageSystemAttributeValue>>,
    /// What the queue counts against its limit.
    pub(super) bytes: usize,
    /// The key in the body.
    key: Option<IdempotencyKey>,
}

impl Sender {
    pub(super) fn parcel(&self, message: &Message, beside: &[(&str, &str)]) -> Result<Parcel, SendError> {
        let mut message = message.clone();
        // In the body, where the published schema has it. The attribute would do, but it is a rejection's mark.
        if message.idempotency_key.is_none() && self.retry.is_some() {
            message.idempotency_key = Some(IdempotencyKey::generate());
        }
        let body = message.to_json()?;
        let contract = message::VERSION.to_string();
        let mut told = vec![(attributes::CONTRACT, contract.as_str())];
        if let Some((name, version)) = &self.producer {
            told.extend([(attributes::PRODUCER, name.as_str()), (attributes::VERSION, version.as_str())]);
        }
        told.extend(self.trace.attributes());
        told.extend(beside);
        let mut bytes = body.len();
        let mut attributes = HashMap::new();
        for (name, value) in told {
            bytes += name.len() + TEXT.len() + value.len();
            let value = MessageAttributeValue::builder().data_type(TEXT).string_value(value).build();
            // Built from its required field, so it is always there.
            attributes.extend(value.ok().map(|value| (name.to_owned(), value)));
        }
        if bytes > MAX_MESSAGE_BYTES {
            return Err(MessageError::TooLarge { bytes }.into());
        }
        let queue = match message.reason {
            Reason::Changed | Reason::Expired => &self.queues.main,
            Reason::Prewarm => &self.queues.low_priority,
        };
        Ok(Parcel {
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

impl Parcel {
    /// What the queue's answer to this parcel means.
    pub(super) fn sent(&self, message_id: Option<String>) -> Result<Sent, Failure> {
        let message_id = message_id.ok_or_else(|| Failure::passing("the queue gave no message id"))?;
        let key = match &self.key {
            Some(key) => key.clone(),
            // Not repeated: the message is there, and has no name under which a second one would be the same wish.
            None => IdempotencyKey::parse(&message_id)
                .map_err(|error| Failure::lasting(format!("the queue's message id {error}")))?,
        };
        Ok(Sent { message_id, key })
    }

    /// What the caller is told when nothing more is tried.
    pub(super) fn failed(&self, failure: Failure) -> SendError {
        SendError::Queue { queue: self.queue.clone(), why: failure.why, key: self.key.clone() }
    }
}

/// X-Ray's own place: SQS and Lambda read it there, and it counts neither as an attribute nor as bytes.
fn trace_header(header: &str) -> Option<HashMap<MessageSystemAttributeNameForSends, MessageSystemAttributeValue>> {
    let value = MessageSystemAttributeValue::builder().data_type(TEXT).string_value(header).build().ok()?;
    Some(HashMap::from([(MessageSystemAttributeNameForSends::AwsTraceHeader, value)]))
}

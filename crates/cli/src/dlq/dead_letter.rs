//! One message of the dead-letter queue: what it says, and what a redrive sends.

use std::collections::HashMap;

use aws_sdk_sqs::types::{
    Message as SqsMessage, MessageAttributeValue, MessageSystemAttributeName, MessageSystemAttributeNameForSends,
    MessageSystemAttributeValue,
};
use everfresh_core::domain::outcome::RejectReason;
use everfresh_core::domain::page_key::Tenant;
use everfresh_core::stack::Stack;
use everfresh_enqueue::{IdempotencyKey, Message, Reason, attributes};

/// SQS accepts this many attributes on a message.
const MAX_ATTRIBUTES: usize = 10;

#[derive(Clone, Debug)]
pub(super) struct DeadLetter {
    pub(super) id: String,
    pub(super) receipt: String,
    pub(super) body: String,
    pub(super) attributes: HashMap<String, MessageAttributeValue>,
    /// By SQS's clock: when it was rejected, or when it was first sent if SQS itself moved it here.
    pub(super) sent_ms: Option<u64>,
    trace: Option<String>,
    /// The body as a message, if it is one.
    message: Option<Message>,
    /// The body as JSON, if it is that at least.
    json: Option<serde_json::Value>,
}

impl DeadLetter {
    /// None without id or receipt, which SQS always sends.
    pub(super) fn read(message: SqsMessage) -> Option<Self> {
        let system = |name: &MessageSystemAttributeName| message.attributes()?.get(name).cloned();
        let sent_ms = system(&MessageSystemAttributeName::SentTimestamp).and_then(|text| text.parse().ok());
        let trace = system(&MessageSystemAttributeName::AwsTraceHeader);
        let body = message.body.unwrap_or_default();
        Some(Self {
            id: message.message_id?,
            receipt: message.receipt_handle?,
            message: Message::parse(body.as_bytes()).ok(),
            json: serde_json::from_str(&body).ok(),
            body,
            attributes: message.message_attributes.unwrap_or_default(),
            sent_ms,
            trace,
        })
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)?.string_value()
    }

    /// The word of the rejection. None for a message that SQS moved here by itself.
    pub(super) fn reason(&self) -> Option<&str> {
        self.attribute(attributes::REASON)
    }

    /// The reason as a clause.
    pub(super) fn explained(&self) -> &'static str {
        const REASONS: [RejectReason; 10] = [
            RejectReason::BadMessage,
            RejectReason::UnknownTenant,
            RejectReason::BadPath,
            RejectReason::NoRoute,
            RejectReason::BadTag,
            RejectReason::KeyConflict,
            RejectReason::Attempts,
            RejectReason::NotRetryable,
            RejectReason::OriginStale,
            RejectReason::Waited,
        ];
        match self.reason() {
            None => "SQS moved it here after a hundred receives: the worker fails before it can reject it",
            Some(word) => REASONS
                .into_iter()
                .find(|reason| reason.as_str() == word)
                .map_or("a reason of another version of Everfresh", RejectReason::explain),
        }
    }

    /// A field of the body, also of one that is no valid message.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.json.as_ref()?.get(name)?.as_str()
    }

    /// The key under which a redrive is handled.
    pub(super) fn key(&self) -> &str {
        let explicit = self.message.as_ref().and_then(|message| message.idempotency_key.as_ref());
        explicit.map(IdempotencyKey::as_str).or_else(|| self.attached_key()).unwrap_or(&self.id)
    }

    fn attached_key(&self) -> Option<&str> {
        self.attribute(attributes::KEY).filter(|key| IdempotencyKey::parse(key).is_ok())
    }

    /// URL of the queue that it belongs to.
    pub(super) fn queue<'s>(&self, stack: &'s Stack) -> &'s str {
        match self.message.as_ref().map(|message| message.reason) {
            Some(Reason::Prewarm) => &stack.low_priority_queue,
            Some(Reason::Changed | Reason::Expired) | None => &stack.queue,
        }
    }

    /// The tenant, for SQS fair queues, as a producer sets it.
    pub(super) fn group(&self) -> Option<&str> {
        self.message.as_ref().map(|message| message.tenant.as_str()).filter(|tenant| Tenant::parse(tenant).is_ok())
    }

    /// Attributes of the message that is sent again: all but the reason, and always the key, because
    /// the message id changes.
    pub(super) fn attributes_to_send(&self) -> HashMap<String, MessageAttributeValue> {
        let is_kept = |name: &str, value: &MessageAttributeValue| {
            let empty = value.string_value() == Some("") && value.binary_value().is_none();
            name != attributes::REASON && name != attributes::KEY && !empty
        };
        let mut kept: Vec<_> = self.attributes.iter().filter(|(name, value)| is_kept(name, value)).collect();
        // Attributes that Everfresh reads come first, as in a rejection.
        kept.sort_by_key(|(name, _)| (!name.starts_with(attributes::PREFIX), name.as_str()));
        kept.truncate(MAX_ATTRIBUTES - 1);
        let key = MessageAttributeValue::builder().data_type("String").string_value(self.key());
        let mut sent: HashMap<String, MessageAttributeValue> =
            kept.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        // Building cannot fail: the data type is set.
        sent.extend(key.build().ok().map(|key| (attributes::KEY.to_owned(), key)));
        sent
    }

    /// The trace that its producer began.
    pub(super) fn system_attributes(
        &self,
    ) -> Option<HashMap<MessageSystemAttributeNameForSends, MessageSystemAttributeValue>> {
        let header = self.trace.as_ref()?;
        let value = MessageSystemAttributeValue::builder().data_type("String").string_value(header).build().ok()?;
        Some(HashMap::from([(MessageSystemAttributeNameForSends::AwsTraceHeader, value)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead_letter(body: &str, attributes: &[(&str, &str)]) -> DeadLetter {
        let text =
            |value: &str| MessageAttributeValue::builder().data_type("String").string_value(value).build().unwrap();
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect();
        let message = SqsMessage::builder().message_id("id-1").receipt_handle("r").body(body);
        DeadLetter::read(message.set_message_attributes(Some(attributes)).build()).unwrap()
    }

    #[test]
    fn key_is_that_of_body_attribute_or_message_id() {
        let body = r#"{"v":1,"tenant":"demo","path":"/","idempotency_key":"mine"}"#;
        let plain = r#"{"v":1,"tenant":"demo","path":"/"}"#;
        assert_eq!(dead_letter(body, &[("everfresh-key", "attached")]).key(), "mine");
        assert_eq!(dead_letter(plain, &[("everfresh-key", "attached")]).key(), "attached");
        assert_eq!(dead_letter(plain, &[("everfresh-key", "not a key")]).key(), "id-1");
        assert_eq!(dead_letter("no message", &[]).key(), "id-1");
    }

    #[test]
    fn sent_attributes_keep_the_key_and_drop_the_reason() {
        let names: Vec<String> = (0..9).map(|number| format!("own-{number}")).collect();
        let mut all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        all.push(("everfresh-lost", "key"));
        all.push(("reason", "attempts"));
        let sent = dead_letter("no message", &all).attributes_to_send();
        assert_eq!(sent.len(), 10);
        assert_eq!(sent["everfresh-key"].string_value(), Some("id-1"));
        assert!(sent.contains_key("everfresh-lost") && !sent.contains_key("reason"), "{sent:?}");
    }

    #[test]
    fn prewarm_goes_to_the_low_priority_queue() {
        let stack = Stack {
            table: String::new(),
            bucket: String::new(),
            queue: "main".into(),
            low_priority_queue: "low".into(),
            dead_letter_queue: "dead".into(),
        };
        let prewarm = r#"{"v":1,"tenant":"demo","path":"/","reason":"prewarm"}"#;
        for (body, queue) in [(prewarm, "low"), (&prewarm.replace("prewarm", "expired"), "main"), ("{", "main")] {
            assert_eq!(dead_letter(body, &[]).queue(&stack), queue);
        }
    }
}

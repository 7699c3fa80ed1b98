//! One SQS record of a batch, parsed and validated once.

use std::collections::HashMap;

use aws_lambda_events::event::sqs::{SqsMessage, SqsMessageAttribute};
use everfresh_core::config::{AcceptError, Accepted, Config, Resolved};
use everfresh_core::domain::disposition::Delivery;
use everfresh_core::domain::outcome::RejectReason;
use everfresh_core::domain::request::Target;
use everfresh_core::domain::scrub;
use everfresh_enqueue::{IdempotencyKey, Message, MessageError, attributes, message};

/// An SQS record and the request in it.
#[derive(Debug)]
pub struct Record<'c> {
    /// SQS message id. Never empty.
    pub message_id: String,
    /// Receipt handle of this delivery.
    pub receipt: String,
    /// The body as received.
    pub body: String,
    /// Message attributes: the producer's, and those that an earlier rejection added.
    pub attributes: HashMap<String, SqsMessageAttribute>,
    /// Time of sending by SQS's clock, in milliseconds since the Unix epoch.
    pub sent_ms: u64,
    /// Number of deliveries, including this one.
    pub receive_count: u32,
    /// The idempotency key in the message body.
    pub explicit_key: Option<IdempotencyKey>,
    /// The request, or the reason for rejecting the record.
    pub accepted: Result<Accepted<'c>, RecordError>,
}

/// Why a record is rejected before any work.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The configuration has no such tenant, route or tag.
    #[error(transparent)]
    Request(#[from] AcceptError),
    /// The attributes follow another version of the message contract, whatever version the body
    /// states. Their meaning is unknown to this worker.
    #[error("attribute `{}` is not {}, the version that this worker supports", attributes::CONTRACT, message::VERSION)]
    Contract,
    #[error("the record has no body")]
    MissingBody,
}

impl RecordError {
    /// The reason attached to the message in the dead-letter queue.
    pub fn reason(&self) -> RejectReason {
        match self {
            Self::Message(_) | Self::Contract | Self::MissingBody => RejectReason::BadMessage,
            Self::Request(error) => error.reject_reason(),
        }
    }

    /// Whether a worker of another version may support it.
    pub fn is_unknown_version(&self) -> bool {
        matches!(self, Self::Contract | Self::Message(MessageError::UnsupportedVersion { .. }))
    }
}

/// A record without a message id. Lambda treats a batch item failure with an empty id as a failure
/// of the whole batch.
#[derive(Debug, thiserror::Error)]
#[error("a record has no message id: is the function invoked by something other than SQS?")]
pub struct MissingMessageId;

impl<'c> Record<'c> {
    /// Parses the record. `now_ms` is used if the time of sending is missing, as in hand-written
    /// events.
    pub fn read(raw: SqsMessage, config: &'c Config, now_ms: u64) -> Result<Self, MissingMessageId> {
        let message_id = raw.message_id.filter(|id| !id.is_empty()).ok_or(MissingMessageId)?;
        let number = |name: &str| raw.attributes.get(name).and_then(|text| text.parse::<u64>().ok());
        let message = match &raw.body {
            None => Err(RecordError::MissingBody),
            Some(body) => Message::parse(body.as_bytes()).map_err(RecordError::from),
        };
        let explicit_key = message.as_ref().ok().and_then(|message| message.idempotency_key.clone());
        let contract = raw.message_attributes.get(attributes::CONTRACT);
        let message =
            message.and_then(|message| if is_supported(contract) { Ok(message) } else { Err(RecordError::Contract) });
        let attached = raw.message_attributes.get(attributes::KEY).and_then(|value| value.string_value.as_deref());
        let accepted = message.and_then(|message| Ok(config.accept(message, attached, &message_id)?));
        Ok(Self {
            sent_ms: number("SentTimestamp").unwrap_or(now_ms),
            receive_count: number("ApproximateReceiveCount").and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
            receipt: raw.receipt_handle.unwrap_or_default(),
            body: raw.body.unwrap_or_default(),
            attributes: raw.message_attributes,
            explicit_key,
            accepted,
            message_id,
        })
    }

    /// The request and its page, if it is a request for a page.
    pub fn page_request(&self) -> Option<(&Accepted<'c>, &Resolved<'c>)> {
        let accepted = self.accepted.as_ref().ok()?;
        Some((accepted, accepted.resolved.as_ref()?))
    }

    /// The page or tag, scrubbed for a log; for an invalid message, its id.
    pub fn logged(&self) -> String {
        if let Some((_, resolved)) = self.page_request() {
            return resolved.page.logged().to_string();
        }
        match &self.accepted {
            Ok(Accepted { request, .. }) => match &request.target {
                Target::Tag(tag) => format!("tag {} of {}", scrub::path(tag.as_str()), request.tenant),
                Target::Path(path) => format!("{}{}", request.tenant, scrub::path(path.as_str())),
            },
            Err(_) => format!("message {}", self.message_id),
        }
    }

    /// The idempotency key that a rejection keeps for a redrive: the request's, or the one attached
    /// to the message.
    pub fn key(&self) -> &str {
        match &self.accepted {
            Ok(accepted) => accepted.request.key.as_str(),
            Err(_) => match &self.explicit_key {
                Some(key) => key.as_str(),
                None => self.attached_key().unwrap_or(&self.message_id),
            },
        }
    }

    /// The key attached by an earlier rejection. An invalid key is dropped: a redrive would fail on
    /// it again.
    fn attached_key(&self) -> Option<&str> {
        self.attribute(attributes::KEY).filter(|key| IdempotencyKey::parse(key).is_ok())
    }

    /// The value of a string attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)?.string_value.as_deref()
    }

    /// This delivery, as input to the disposition.
    pub fn delivery(&self, received_ms: u64, now_ms: u64) -> Delivery {
        let (sent_ms, receive_count) = (self.sent_ms, self.receive_count);
        Delivery { sent_ms, received_ms, receive_count, now_ms, jitter: fastrand::u32(..) }
    }
}

/// Whether this worker supports the contract version in a message's attributes. Producers may omit
/// it.
fn is_supported(contract: Option<&SqsMessageAttribute>) -> bool {
    let version = |contract: &SqsMessageAttribute| contract.string_value.as_deref().and_then(|text| text.parse().ok());
    contract.is_none_or(|contract| version(contract) == Some(message::VERSION))
}

//! One record of a batch: read and checked once, here.

use std::collections::HashMap;

use aws_lambda_events::event::sqs::{SqsMessage, SqsMessageAttribute};
use everfresh_core::config::{AcceptError, Accepted, Config};
use everfresh_core::domain::disposition::Delivery;
use everfresh_core::domain::outcome::RejectReason;
use everfresh_enqueue::{IdempotencyKey, Message, MessageError, attributes, message};

/// A record, and what it asks for.
#[derive(Debug)]
pub struct Record<'c> {
    /// The queue's name for it. Never empty.
    pub message_id: String,
    /// What deletes or delays it.
    pub receipt: String,
    /// As it came.
    pub body: String,
    /// The producer's own attributes, and ours of an earlier rejection.
    pub attributes: HashMap<String, SqsMessageAttribute>,
    /// When it was sent, by the queue's clock.
    pub sent_ms: u64,
    /// How many times it was delivered, this one included.
    pub receive_count: u32,
    /// The key that the message itself carries.
    pub explicit_key: Option<IdempotencyKey>,
    /// The request, or why there is none.
    pub accepted: Result<Accepted<'c>, Unacceptable>,
}

/// Why a record is no request.
#[derive(Debug, thiserror::Error)]
pub enum Unacceptable {
    /// The body is no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The configuration knows nothing of what it asks for.
    #[error(transparent)]
    Request(#[from] AcceptError),
    /// Its attributes are of another version of the contract, whatever its body says: what they mean is not known here.
    #[error("attribute `{}` is not {}, the version that this worker speaks", attributes::CONTRACT, message::VERSION)]
    Contract,
    /// It has no body at all.
    #[error("the record has no body")]
    NoBody,
}

impl Unacceptable {
    /// The word that goes with it to the dead-letter queue.
    pub fn reason(&self) -> RejectReason {
        match self {
            Self::Message(_) | Self::Contract | Self::NoBody => RejectReason::BadMessage,
            Self::Request(error) => error.reject_reason(),
        }
    }

    /// Whether a worker of another version might have understood it.
    pub fn is_unknown_version(&self) -> bool {
        matches!(self, Self::Contract | Self::Message(MessageError::UnsupportedVersion { .. }))
    }
}

/// A record that cannot be answered for: without an id the queue would take its failure for that of the whole batch.
#[derive(Debug, thiserror::Error)]
#[error("a record without a message id: is the function invoked by something else than SQS?")]
pub struct Nameless;

impl<'c> Record<'c> {
    /// Reads the record. `now_ms` stands in for a time of sending that is missing, as in hand-made events.
    pub fn read(raw: SqsMessage, config: &'c Config, now_ms: u64) -> Result<Self, Nameless> {
        let message_id = raw.message_id.filter(|id| !id.is_empty()).ok_or(Nameless)?;
        let number = |name: &str| raw.attributes.get(name).and_then(|text| text.parse::<u64>().ok());
        let message = match &raw.body {
            None => Err(Unacceptable::NoBody),
            Some(body) => Message::parse(body.as_bytes()).map_err(Unacceptable::from),
        };
        let explicit_key = message.as_ref().ok().and_then(|message| message.idempotency_key.clone());
        let contract = raw.message_attributes.get(attributes::CONTRACT);
        let message =
            message.and_then(|message| if speaks(contract) { Ok(message) } else { Err(Unacceptable::Contract) });
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

    /// The key that a rejection keeps for a redrive: the request's own, or what came with the message.
    pub fn key(&self) -> &str {
        match &self.accepted {
            Ok(accepted) => accepted.request.key.as_str(),
            Err(_) => match &self.explicit_key {
                Some(key) => key.as_str(),
                None => self.attached_key().unwrap_or(&self.message_id),
            },
        }
    }

    /// The key of an earlier rejection. What is no key is not handed on: a redrive could not do better with it.
    fn attached_key(&self) -> Option<&str> {
        self.attribute(attributes::KEY).filter(|key| IdempotencyKey::parse(key).is_ok())
    }

    /// A text attribute of the message.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)?.string_value.as_deref()
    }

    /// This delivery, for deciding over the message.
    pub fn delivery(&self, received_ms: u64, now_ms: u64) -> Delivery {
        let (sent_ms, receive_count) = (self.sent_ms, self.receive_count);
        Delivery { sent_ms, received_ms, receive_count, now_ms, jitter: fastrand::u32(..) }
    }
}

/// Whether a message's attributes are of the version that is spoken here. Not every producer says it.
fn speaks(contract: Option<&SqsMessageAttribute>) -> bool {
    let said = |contract: &SqsMessageAttribute| contract.string_value.as_deref().and_then(|text| text.parse().ok());
    contract.is_none_or(|contract| said(contract) == Some(message::VERSION))
}

//! Names of the SQS message attributes. All are strings, all are optional.

/// The idempotency key a rejected message was handled under. It keeps the key across a redrive, which changes the
/// message id.
pub const KEY: &str = "everfresh-key";

/// Hash of the page that the sender computed. A worker that computes another one runs with another configuration: it
/// retries instead of rendering a page nobody asked for.
pub const PAGE: &str = "everfresh-page";

/// Key of the object that a reader found missing. A worker that renders the same content as before then stores it again instead of
/// calling it unchanged.
pub const LOST: &str = "everfresh-lost";

/// On a dead-lettered message: why it was rejected.
pub const REASON: &str = "reason";

/// Name of the producing service.
pub const PRODUCER: &str = "everfresh-producer";

/// Version of the producing service.
pub const VERSION: &str = "everfresh-producer-version";

/// Version of the contract that the sender keeps to, [`crate::message::VERSION`], beside the `v` of the body: for what the attributes
/// themselves mean. A worker that does not speak it rejects the message and counts it.
pub const CONTRACT: &str = "everfresh-contract";

/// W3C trace context of the producer.
pub const TRACEPARENT: &str = "traceparent";

/// Vendor part of the W3C trace context.
pub const TRACESTATE: &str = "tracestate";

/// How all attributes begin that Everfresh itself reads.
pub const PREFIX: &str = "everfresh-";

/// SQS accepts ten attributes on a message and a rejection adds [`KEY`] and [`REASON`], so this many of a producer's
/// own survive it.
pub const PRODUCER_ATTRIBUTES_KEPT: usize = 8;

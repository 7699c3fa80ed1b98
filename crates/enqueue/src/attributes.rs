//! Names of the SQS message attributes. All are strings, all are optional.

/// Idempotency key under which a rejected message was handled. Keeps the key across a redrive,
/// which changes the message id.
pub const KEY: &str = "everfresh-key";

/// Page hash as computed by the sender. A worker that computes a different hash runs with a
/// different configuration: it retries the message instead of rendering the wrong page.
pub const PAGE: &str = "everfresh-page";

/// Key of the S3 object that a reader found missing. A worker that renders unchanged content then
/// stores the object again instead of reporting the page as unchanged.
pub const LOST: &str = "everfresh-lost";

/// On a dead-lettered message: why it was rejected.
pub const REASON: &str = "reason";

/// Name of the producing service.
pub const PRODUCER: &str = "everfresh-producer";

/// Version of the producing service.
pub const VERSION: &str = "everfresh-producer-version";

/// Contract version of the sender, [`crate::message::VERSION`]. It covers the meaning of the
/// attributes, as `v` covers the body. A worker that does not support it rejects the message and
/// counts it.
pub const CONTRACT: &str = "everfresh-contract";

/// W3C trace context of the producer.
pub const TRACEPARENT: &str = "traceparent";

/// Vendor part of the W3C trace context.
pub const TRACESTATE: &str = "tracestate";

/// Prefix of all attributes that Everfresh itself reads.
pub const PREFIX: &str = "everfresh-";

/// How many of a producer's own attributes survive a rejection. SQS accepts ten attributes on a
/// message, and a rejection adds [`KEY`] and [`REASON`].
pub const PRODUCER_ATTRIBUTES_KEPT: usize = 8;

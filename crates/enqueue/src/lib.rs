//! How a service asks Everfresh to regenerate a page.
//!
//! ```no_run
//! use everfresh_enqueue::{Message, Queues, Reason, Retry, Sender};
//!
//! # async fn example(sqs: aws_sdk_sqs::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let queues = Queues {
//!     main: "https://sqs.eu-west-1.amazonaws.com/123456789012/everfresh".into(),
//!     low_priority: "https://sqs.eu-west-1.amazonaws.com/123456789012/everfresh-low-priority".into(),
//! };
//! // Kept and cloned; the client is your own.
//! let sender = Sender::new(sqs, queues).producer("shop", "1.4.2").retrying(Retry::default());
//!
//! // Somebody saved a product. A webhook that fires twice is one message.
//! sender.send_once(&Message::path("acme", "/products/42")).await?;
//!
//! // After a deployment, at most once per page. One result per message, in order.
//! let mut messages = Vec::new();
//! for path in ["/", "/products", "/about"] {
//!     let message = Message { reason: Reason::Prewarm, ..Message::path("acme", path) };
//!     messages.push(message.with_prewarm_key(17, "policy-3")?);
//! }
//! for sent in sender.send_all(&messages).await {
//!     println!("request {}", sent?.key);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`message`] | the queue message, version 1: read strictly, written one way |
//! | [`sender`] | sends it to the right queue: one, many, again under the same key, once for double fires |
//! | [`key`] | [`IdempotencyKey`], the name a producer gives to one wish |
//! | [`prewarm`] | the key under which a deployment warms a page at most once |
//! | [`trace`] | the producer's trace context |
//! | [`attributes`] | names of the message attributes that travel beside the body |
//!
//! The JSON schema for producers in other languages is `schema/message-v1.json` in this crate.

pub mod attributes;
mod explain;
pub mod key;
pub mod message;
pub mod prewarm;
pub mod sender;
pub mod trace;

pub use explain::explain;
pub use key::{IdempotencyKey, KeyError};
pub use message::{Message, MessageError, Reason, Target};
pub use prewarm::{PrewarmKeyError, prewarm_key};
pub use sender::{Fired, Queues, Retry, SendError, Sender, Sent};
pub use trace::{TraceContext, TraceError};

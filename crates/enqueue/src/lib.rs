//! Enqueues requests to regenerate pages with Everfresh.
//!
//! ```no_run
//! use everfresh_enqueue::{Message, Queues, Reason, Retry, Sender};
//!
//! # async fn example(sqs: aws_sdk_sqs::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let queues = Queues {
//!     main: "https://sqs.eu-west-1.amazonaws.com/123456789012/everfresh".into(),
//!     low_priority: "https://sqs.eu-west-1.amazonaws.com/123456789012/everfresh-low-priority".into(),
//! };
//! // Create it once and clone it. It uses your SQS client.
//! let sender = Sender::new(sqs, queues).producer("shop", "1.4.2").retrying(Retry::default());
//!
//! // A product was saved. A webhook that fires twice at once sends one message.
//! sender.send_once(&Message::path("acme", "/products/42")).await?;
//!
//! // After a deployment, prewarm each page at most once. One result per message, in order.
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
//! | [`message`] | the queue message, version 1: parsed strictly, written in one form |
//! | [`sender`] | sends messages to the right queue: single, batched, retried under one key, deduplicated |
//! | [`key`] | [`IdempotencyKey`], which identifies one request |
//! | [`prewarm`] | the key under which a deployment prewarms a page at most once |
//! | [`trace`] | the producer's trace context |
//! | [`attributes`] | names of the SQS message attributes |
//!
//! The JSON schema for producers in other languages is `schema/message-v1.json` in this crate.

#![warn(missing_docs)]

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
pub use sender::{Queues, Retry, SendError, SendOutcome, Sender, Sent};
pub use trace::{TraceContext, TraceError};

//! How a service asks Everfresh to regenerate a page.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`message`] | the queue message, version 1: read strictly, written one way |
//! | [`sender`] | sends it to the right queue |
//! | [`key`] | [`IdempotencyKey`], the name a producer gives to one wish |
//! | [`attributes`] | names of the message attributes that travel beside the body |
//!
//! The JSON schema for producers in other languages is `schema/message-v1.json` in this crate.

pub mod attributes;
mod explain;
pub mod key;
pub mod message;
pub mod sender;

pub use explain::explain;
pub use key::{IdempotencyKey, KeyError};
pub use message::{Message, MessageError, Reason, Target};
pub use sender::{Queues, SendError, Sender};

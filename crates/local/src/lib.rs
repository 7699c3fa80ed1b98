//! Everfresh on one machine: embedded DynamoDB, S3 and SQS, and what Lambda does around a function. Never part of a Lambda binary.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`dynamodb`], [`s3`], [`sqs`] | the engines: an HTTP request in, an HTTP response out |
//! | [`subscribers`] | who is told after a commit: a CDN, an event bus, a topic |
//! | [`engines`] | all of them together, in memory or in a [`data_dir`] |
//! | [`in_process`] | an HTTP client for the real SDK clients that calls the engines without a socket |
//! | [`faults`] | what goes wrong on the way: below the SDK, by script or by seed |
//! | [`gateway`] | the engines on a loopback port, for other processes |
//! | [`event_source`] | polls a queue and invokes a handler as Lambda's event source mapping does |
//! | [`stack`] | makes the table, bucket and queues of a deployment |

pub mod data_dir;
pub mod dynamodb;
pub mod engines;
pub mod event_source;
pub mod faults;
pub mod gateway;
pub mod in_process;
pub mod s3;
pub mod sqs;
pub mod stack;
pub mod subscribers;

/// The region that local mode says it is in.
pub const REGION: &str = "us-east-1";
/// The account that local mode says it is.
pub const ACCOUNT: &str = "000000000000";
/// The access key that local mode signs with. To S3 any other is as good; the gateway demands this one of all the rest.
pub const ACCESS_KEY: &str = "local";
/// The secret that belongs to it. Everybody knows it: it keeps web pages out, which cannot sign across origins, and nobody else. The
/// engines listen on loopback only.
pub const SECRET_KEY: &str = "local";

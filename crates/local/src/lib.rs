//! Local mode: embedded DynamoDB, S3 and SQS, and an SQS event source like Lambda's. Never part of
//! a Lambda binary.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`dynamodb`], [`s3`], [`sqs`] | the engines: an HTTP request in, an HTTP response out |
//! | [`functions`] | Lambda functions that are closures in this process |
//! | [`subscribers`] | CloudFront, EventBridge and SNS, which receive the notifications of a commit |
//! | [`engines`] | all of them together, in memory or in a [`data_dir`] |
//! | [`in_process`] | an HTTP client for the real SDK clients that calls the engines without a socket |
//! | [`faults`] | fault injection below the SDK, by script or by seed |
//! | [`gateway`] | the engines on a loopback port, for other processes |
//! | [`event_source`] | polls a queue and invokes a handler, as Lambda's event source mapping does |
//! | [`stack`] | creates the table, bucket and queues of a deployment |

pub mod data_dir;
pub mod dynamodb;
pub mod engines;
pub mod event_source;
pub mod faults;
pub mod functions;
pub mod gateway;
pub mod in_process;
pub mod s3;
pub mod sqs;
pub mod stack;
pub mod subscribers;

pub const REGION: &str = "us-east-1";
pub const ACCOUNT: &str = "000000000000";
/// Access key of local mode. The embedded S3 accepts any; the gateway requires this one for the
/// other services.
pub const ACCESS_KEY: &str = "local";
/// Public, so it protects only against web pages, which cannot sign requests across origins. The
/// gateway listens on loopback only.
pub const SECRET_KEY: &str = "local";

//! Everfresh's domain, its flows, and the AWS adapters below them.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`domain`] | what a page is, when it is fresh, when a request is covered: pure, no clock, no I/O |
//! | [`config`] | `everfresh.toml`, from a message to a request, and the ladder of timeouts |
//! | [`regenerate`] | the protocol: from a request to a published page |
//! | [`ledger`] | the DynamoDB side: claim, acquire, renew, commit, fail, invalidate, pin, roll back, purge, list, sweep |
//! | [`artifacts`] | the S3 side: upload, download |
//! | [`clients`] | the one place that builds SDK clients: shared HTTP client, timeouts, retries, endpoint |
//! | [`aws_error`] | an AWS SDK's error as the source of one of ours |
//! | [`aws_time`] | AWS's clock, estimated from its responses, with a bound of the error |
//! | [`branches`] | the protocol's branches by name, for a simulation to count |
//! | [`clock`] | the one source of wall-clock time; a test can hold it still or skew it |
//! | [`logs`] | JSON lines in Lambda, readable lines in a terminal |
//! | [`maintenance`] | the sweep: removes what pages no longer need |
//! | [`metrics`] | every metric by its name, in the embedded metric format |
//! | [`notifier`] | CloudFront, EventBridge and SNS, after a page is published |
//! | [`random`] | random tokens and ids that no other process draws |
//! | [`render`] | the one trait: where pages come from |
//! | [`secret_store`] | Secrets Manager, for the headers that the configuration adds |
//! | [`environment`] | a function's variables, each refused by its name |
//! | [`stack`] | the names of what a deployment consists of |
//!
//! # Invariants
//!
//! Code that keeps one of these cites it by its number.
//!
//! - **I1** No request is lost. When a `changed` request is acked, a render that began after it was
//!   sent is published, or the page is pinned and records the request, or the request is in the
//!   dead-letter queue; all this up to ε of AWS's time. When a request by tag is acked, the tag's
//!   watermark is written. `expired` and `prewarm` may also be acked while the page cools down, is
//!   paused or pinned, or if a cache at the origin has only older content.
//! - **I2** A page's commits form one line: each replaces exactly the row it saw. Version ids grow
//!   along it, except across a foreign row.
//! - **I3** A request leads to at most one commit, as long as its record lives.
//! - **I4** The body that META points at exists, and is the one that was committed.
//! - **I5** A request that was committed is never recorded as failed afterwards.
//! - **I6** When nothing moves any more, every message has been acked or is in the dead-letter
//!   queue.
//! - **I7** No tenant reads or writes another tenant's rows or objects.

pub mod artifacts;
pub mod aws_error;
pub mod aws_time;
pub mod branches;
pub mod clients;
pub mod clock;
pub mod config;
pub mod domain;
pub mod environment;
pub mod ledger;
pub mod logs;
pub mod maintenance;
pub mod metrics;
pub mod notifier;
pub mod random;
pub mod regenerate;
pub mod render;
pub mod secret_store;
pub mod stack;

//! The serving side: an HTTP request in, a page out, and a regeneration enqueued if the page is
//! stale.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`server`] | [`Server`]: its parts, and where a request goes |
//! | [`page`] | the page flow: find the content, build the response, [`PageError`](page::error::PageError) |
//! | `pass` | requests that the tenant's origin answers, of which nothing is stored |
//! | `cache` | page snapshots and bodies in memory, and how they are read from DynamoDB and S3 |
//! | [`enqueue`] | whether a page read enqueues a regeneration, and its rate limit |
//! | [`trigger`] | the signed HTTP trigger: endpoints, signature, limits, [`TriggerError`](trigger::error::TriggerError) |
//! | `regeneration_queue` | the SQS queue of both, with timeout and circuit breaker |
//! | [`preview`] | previews for editors: the signed cookie, and the request to the origin |
//! | [`http`] | pure HTTP rules: request, reply, caching headers, conditional requests, `Cache-Status` |
//! | [`lambda`] | Lambda's HTTP event, and the work between a reply and the next event |
//! | [`settings`], [`startup`] | the environment, read once; a server built from it |
//! | `access_log` | one line for each request |
//! | `metrics`, `log_throttle` | metrics in one line every ten seconds, and a problem in one line a minute |
//! | `circuit_breaker`, `token_bucket`, `panics` | small shared parts |

mod access_log;
mod cache;
mod circuit_breaker;
pub mod enqueue;
pub mod http;
pub mod lambda;
mod log_throttle;
mod metrics;
pub mod page;
mod panics;
mod pass;
pub mod preview;
mod regeneration_queue;
pub mod server;
pub mod settings;
pub mod startup;
mod token_bucket;
pub mod trigger;

pub use self::enqueue::Enqueue;
pub use self::server::{Served, Server, Stream};
pub use self::settings::Settings;

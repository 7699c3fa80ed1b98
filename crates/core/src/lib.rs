//! The domain of Everfresh, its two flows, and the AWS adapters below them.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`clients`] | the one place that builds SDK clients: shared HTTP client, time-outs, retries, endpoint |
//! | [`clock`] | the one source of wall-clock time; a test can hold it still or skew it |
//! | [`logs`] | JSON lines in Lambda, readable lines in a terminal |
//! | [`stack`] | the names of what a deployment consists of |

pub mod clients;
pub mod clock;
pub mod logs;
pub mod stack;

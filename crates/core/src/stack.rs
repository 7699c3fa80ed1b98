//! The names of what a deployment consists of.

use serde::{Deserialize, Serialize};

/// One deployment's table, bucket and queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The ledger's table.
    pub table: String,
    /// The artifacts' bucket.
    pub bucket: String,
    /// The URL of the queue for what a reader or an editor waits for.
    pub queue: String,
    /// The URL of the queue for prewarming and fan-out, which must not stand before a waiting reader.
    pub low_priority_queue: String,
    /// The URL of the queue for what was rejected.
    pub dead_letter_queue: String,
}

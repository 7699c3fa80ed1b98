//! The names of a deployment's resources.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    pub table: String,
    pub bucket: String,
    /// URL of the queue for requests that a reader or an editor waits for.
    pub queue: String,
    /// URL of the queue for prewarming and fan-out, which must not delay a waiting reader.
    pub low_priority_queue: String,
    /// URL of the queue for rejected messages.
    pub dead_letter_queue: String,
}

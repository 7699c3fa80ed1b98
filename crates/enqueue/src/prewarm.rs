//! The key under which a deployment prewarms a page at most once.

use sha2::{Digest, Sha256};

use crate::key::IdempotencyKey;
use crate::message::{Message, Reason, Target};

/// Why a message cannot have a prewarm key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrewarmKeyError {
    /// The message is not a `prewarm` request. A second change under the same key would be ignored
    /// as a duplicate of the first.
    #[error(
        "a prewarm key needs reason `prewarm`: a second `{reason}` request under it would be ignored as a duplicate"
    )]
    Reason {
        /// Reason of the message.
        reason: Reason,
    },
    /// The message is for a tag, and only a page can be prewarmed.
    #[error("a prewarm key needs a path: a tag cannot be prewarmed")]
    Tag,
}

impl Message {
    /// Sets the key of a `prewarm` message from its path, deployment and policy version, so that
    /// prewarming the same page again costs no render. The path is hashed as written, without
    /// canonicalization: write it the same way each time.
    pub fn with_prewarm_key(mut self, deployment: u64, policy: &str) -> Result<Self, PrewarmKeyError> {
        match self.reason {
            Reason::Prewarm => {}
            reason @ (Reason::Changed | Reason::Expired) => return Err(PrewarmKeyError::Reason { reason }),
        }
        let Target::Path(path) = &self.target else { return Err(PrewarmKeyError::Tag) };
        self.idempotency_key = Some(prewarm_key(&hex(&Sha256::digest(path.as_bytes())), deployment, policy));
        Ok(self)
    }
}

/// The prewarm key for a page hash, for example to look up the request. To set it on a message, use
/// [`Message::with_prewarm_key`], which refuses messages that must not have one.
pub fn prewarm_key(page_hash: &str, deployment: u64, policy: &str) -> IdempotencyKey {
    let mut digest = Sha256::new();
    // Length-prefixed, so that no two lists of fields give the same bytes.
    for field in ["everfresh-prewarm".as_bytes(), page_hash.as_bytes(), &deployment.to_be_bytes(), policy.as_bytes()] {
        digest.update((field.len() as u64).to_be_bytes());
        digest.update(field);
    }
    IdempotencyKey::of_prewarm(&hex(&digest.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prewarm(path: &str) -> Message {
        Message { reason: Reason::Prewarm, ..Message::path("acme", path) }
    }

    #[test]
    fn key_depends_on_path_deployment_and_policy() {
        let key =
            |path, deployment, policy| prewarm(path).with_prewarm_key(deployment, policy).unwrap().idempotency_key;
        let one = key("/a", 7, "p1");
        assert_eq!(key("/a", 7, "p1"), one);
        for other in [key("/b", 7, "p1"), key("/a", 8, "p1"), key("/a", 7, "p2")] {
            assert_ne!(other, one);
        }
        let one = one.unwrap();
        assert_eq!(IdempotencyKey::parse(one.as_str()), Ok(one));
    }

    #[test]
    fn other_reasons_and_tags_get_no_prewarm_key() {
        for reason in [Reason::Changed, Reason::Expired] {
            let message = Message { reason, ..Message::path("acme", "/a") };
            assert_eq!(message.with_prewarm_key(7, "p1"), Err(PrewarmKeyError::Reason { reason }));
        }
        let tag = Message { reason: Reason::Prewarm, ..Message::tag("acme", "products") };
        assert_eq!(tag.with_prewarm_key(7, "p1"), Err(PrewarmKeyError::Tag));
    }
}

//! The key under which a deployment warms a page at most once.

use sha2::{Digest, Sha256};

use crate::key::IdempotencyKey;
use crate::message::{Message, Reason, Target};

/// Why a message gets no key that can be foretold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrewarmKeyError {
    /// The second wish under the same key would be taken for the first: a change would be swallowed.
    #[error("a prewarm key is for reason prewarm: under it the second `{reason}` wish would be swallowed")]
    Reason {
        /// The message's reason.
        reason: Reason,
    },
    /// A tag is invalidated, not warmed.
    #[error("a prewarm key is for one page, not for a tag")]
    Tag,
}

impl Message {
    /// Gives a `prewarm` message the key of its page, deployment and policy version, so that warming the same again costs no render.
    /// The page is the path as it is written here; write it the same way each time.
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

/// The key itself, for who knows the page's hash. Set it by [`Message::with_prewarm_key`], which refuses it where it does harm.
pub fn prewarm_key(page_hash: &str, deployment: u64, policy: &str) -> IdempotencyKey {
    let mut digest = Sha256::new();
    // Each field after its length, so that no two lists of fields give the same bytes.
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
    fn key_follows_page_deployment_and_policy() {
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
    fn what_would_be_swallowed_gets_no_such_key() {
        for reason in [Reason::Changed, Reason::Expired] {
            let message = Message { reason, ..Message::path("acme", "/a") };
            assert_eq!(message.with_prewarm_key(7, "p1"), Err(PrewarmKeyError::Reason { reason }));
        }
        let tag = Message { reason: Reason::Prewarm, ..Message::tag("acme", "products") };
        assert_eq!(tag.with_prewarm_key(7, "p1"), Err(PrewarmKeyError::Tag));
    }
}

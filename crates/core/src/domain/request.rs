//! A request to regenerate a page, or to invalidate a tag.

use std::fmt;
use std::str::FromStr;

pub use everfresh_enqueue::{IdempotencyKey, KeyError, Reason};

use crate::domain::digest::{Digest, FieldDigest};
use crate::domain::page_key::{CanonicalPath, PageHash, Tenant};
use crate::domain::tag::Tag;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Path(CanonicalPath),
    /// Every page that carries the tag.
    Tag(Tag),
}

/// A request with every field checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub tenant: Tenant,
    pub target: Target,
    pub reason: Reason,
    /// Identifies the request within the page, or within the tenant's invalidations.
    pub key: IdempotencyKey,
}

impl Request {
    /// Digest of the producer's request: message version, tenant, canonical path or tag, and
    /// reason.
    ///
    /// A second request with the same key must have the same hash. The worker's configuration is no
    /// part of it, or every deployment would turn work in flight into a conflict; nor is the key,
    /// under which the hash is filed.
    pub fn request_hash(&self) -> Digest {
        let (kind, text) = match &self.target {
            Target::Path(path) => ("path", path.as_str()),
            Target::Tag(tag) => ("tag", tag.as_str()),
        };
        FieldDigest::new("everfresh-request")
            .number(everfresh_enqueue::message::VERSION)
            .field(self.tenant.as_str().as_bytes())
            .field(kind.as_bytes())
            .field(text.as_bytes())
            .field(self.reason.as_str().as_bytes())
            .finish()
    }

    /// The public name of this request.
    pub fn handle(&self) -> Handle {
        let key = self.key.clone();
        match &self.target {
            Target::Path(path) => Handle::Page { page: PageHash::of(path), key },
            Target::Tag(_) => Handle::Inval { key },
        }
    }
}

/// The key a message is handled under.
///
/// The message's own key wins, then the one that a rejection attached, then the queue's message id:
/// a redrive and a producer's retry change the id, and must not become a second request.
pub fn key_of_message(
    explicit: Option<IdempotencyKey>,
    attached: Option<&str>,
    message_id: &str,
) -> Result<IdempotencyKey, KeyError> {
    match (explicit, attached) {
        (Some(explicit), _) => Ok(explicit),
        (None, Some(attached)) => IdempotencyKey::parse(attached),
        (None, None) => IdempotencyKey::parse(message_id),
    }
}

/// Public name of a request: `<page hash>.<key>`, or `inval.<key>` for a tag.
///
/// A page hash holds no dot and is never `inval`, so the first dot ends it although a key may hold
/// dots too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Handle {
    /// A request for one page.
    Page {
        page: PageHash,
        /// The request's key within the page.
        key: IdempotencyKey,
    },
    Inval {
        /// The request's key within the tenant's invalidations.
        key: IdempotencyKey,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Does not begin with a page hash or `inval`, and a dot.
    #[error("handle must be <page hash>.<key> or inval.<key>")]
    Shape,
    /// What follows the `@` is no time.
    #[error("handle's time after the @ must be milliseconds")]
    Time,
    /// What follows the dot is no key.
    #[error("handle's key {0}")]
    Key(#[from] KeyError),
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Handle::Page { page, key } => write!(f, "{page}.{key}"),
            Handle::Inval { key } => write!(f, "inval.{key}"),
        }
    }
}

impl FromStr for Handle {
    type Err = HandleError;

    fn from_str(text: &str) -> Result<Self, HandleError> {
        let (front, key) = text.split_once('.').ok_or(HandleError::Shape)?;
        let page = PageHash::parse(front);
        if page.is_none() && front != "inval" {
            return Err(HandleError::Shape);
        }
        let key = IdempotencyKey::parse(key)?;
        Ok(match page {
            Some(page) => Handle::Page { page, key },
            None => Handle::Inval { key },
        })
    }
}

/// A handle with the time of sending, `<handle>@<milliseconds>`, or without it. With it, a request
/// that never gets a record has a definite end too. No key holds an `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentHandle {
    pub handle: Handle,
    /// Just before it was sent. None in a plain handle.
    pub sent_ms: Option<u64>,
}

impl fmt::Display for SentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.handle)?;
        self.sent_ms.map_or(Ok(()), |sent_ms| write!(f, "@{sent_ms}"))
    }
}

impl FromStr for SentHandle {
    type Err = HandleError;

    fn from_str(text: &str) -> Result<Self, HandleError> {
        let (handle, sent_ms) = match text.split_once('@') {
            Some((handle, sent_ms)) => (handle, Some(sent_ms.parse().map_err(|_| HandleError::Time)?)),
            None => (text, None),
        };
        Ok(Self { handle: handle.parse()?, sent_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(tenant: &str, target: Target, reason: Reason, key: &str) -> Request {
        let tenant = Tenant::parse(tenant).unwrap();
        let key = IdempotencyKey::parse(key).unwrap();
        Request { tenant, target, reason, key }
    }

    fn path(text: &str) -> Target {
        Target::Path(CanonicalPath::stored(text).unwrap())
    }

    fn tag(text: &str) -> Target {
        Target::Tag(Tag::parse(text).unwrap())
    }

    #[test]
    fn request_hash_does_not_depend_on_the_key() {
        let one = request("acme", path("/a"), Reason::Changed, "k1");
        let two = request("acme", path("/a"), Reason::Changed, "k2");
        assert_eq!(one.request_hash(), two.request_hash());
    }

    #[test]
    fn different_requests_have_different_hashes() {
        let requests = [
            request("acme", path("/a"), Reason::Changed, "k"),
            request("acme", path("/b"), Reason::Changed, "k"),
            request("acm", path("/a"), Reason::Changed, "k"),
            request("acme", path("/a"), Reason::Expired, "k"),
            request("acme", path("/a"), Reason::Prewarm, "k"),
            request("acme", tag("/a"), Reason::Changed, "k"),
        ];
        for (index, left) in requests.iter().enumerate() {
            for right in &requests[index + 1..] {
                assert_ne!(left.request_hash(), right.request_hash());
            }
        }
    }

    #[test]
    fn hash_is_stable_for_records_already_in_a_table() {
        let request = request("acme", path("/products/42?color=red"), Reason::Changed, "k");
        let known = "4ad14a7a996e7494f7a11ad7f77bddd74588a09891ed2ae9e59c1449fbb30607";
        assert_eq!(request.request_hash().to_string(), known);
    }

    #[test]
    fn redriven_message_keeps_its_key_although_its_id_is_new() {
        let explicit = IdempotencyKey::parse("mine").unwrap();
        let key = |explicit, attached| key_of_message(explicit, attached, "new-id");
        assert_eq!(key(Some(explicit.clone()), Some("old-id")).unwrap(), explicit);
        assert_eq!(key(None, Some("old-id")).unwrap().as_str(), "old-id");
        assert_eq!(key(None, None).unwrap().as_str(), "new-id");
        assert!(key(None, Some("not#allowed")).is_err());
    }

    #[test]
    fn handles_of_another_shape_are_refused() {
        let hash = "a".repeat(64);
        for text in ["", "inval", "inval.", "other.k", &hash, &format!("{hash}."), &format!("{hash}0.k")] {
            assert!(text.parse::<Handle>().is_err(), "{text}");
        }
        let bad_key = format!("{hash}.a#b").parse::<Handle>();
        assert_eq!(bad_key, Err(HandleError::Key(KeyError::BadCharacter { at: 1 })));
    }

    #[test]
    fn sent_handle_is_read_back_with_and_without_time() {
        for text in ["inval.order-1", "inval.order-1@1700000000000"] {
            assert_eq!(text.parse::<SentHandle>().unwrap().to_string(), text);
        }
        for text in ["inval.order-1@", "inval.order-1@soon", "@1", "inval.a@1@2", "inval.a@-1"] {
            assert!(text.parse::<SentHandle>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn handle_is_read_back(key in "[A-Za-z0-9._~:-]{1,128}", by_tag: bool) {
            let target = if by_tag { tag("t") } else { path("/a") };
            let handle = request("acme", target, Reason::Changed, &key).handle();
            prop_assert_eq!(handle.to_string().parse::<Handle>(), Ok(handle));
        }
    }
}

//! The queue message, version 1.
//!
//! ```json
//! {"v":1, "tenant":"acme", "path":"/products/42?color=red", "reason":"changed", "idempotency_key":"optional"}
//! ```
//!
//! Exactly one of `path` and `tag`. `reason` defaults to `changed`. An unknown, doubled, missing or mistyped field is
//! refused with its name; an absent optional field is left out, never `null`. Reading bounds its own work: a body over
//! [`MAX_MESSAGE_BYTES`] is not parsed, and nesting of any depth is skipped without recursion.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::key::{IdempotencyKey, KeyError};
use crate::message::fields::Fields;

mod fields;

/// The message version this crate reads and writes.
pub const VERSION: u64 = 1;

/// The largest body that is read. The queue's own limit is the same.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// The largest `tenant`, in bytes.
pub const MAX_TENANT_BYTES: usize = 64;

/// The largest `path`, in bytes as sent; the canonical form has a limit of its own.
pub const MAX_PATH_BYTES: usize = 4096;

/// The largest `tag`, in bytes.
pub const MAX_TAG_BYTES: usize = 256;

/// Every field of version 1, in the order it is written.
pub const FIELDS: [&str; 6] = ["v", "tenant", "path", "tag", "reason", "idempotency_key"];

/// Why somebody wants the page regenerated. It decides when the wish counts as granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The source changed: granted only by a render that began after the message was sent.
    #[default]
    Changed,
    /// The page outlived its freshness: granted by any fresh page.
    Expired,
    /// A page should be warm before readers come: granted by a fresh page of the running deployment.
    Prewarm,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 3] = [Reason::Changed, Reason::Expired, Reason::Prewarm];

    /// The word on the wire, in logs and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Changed => "changed",
            Reason::Expired => "expired",
            Reason::Prewarm => "prewarm",
        }
    }

    /// The reason with that word.
    pub fn parse(word: &str) -> Option<Reason> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a message is about, in the producer's own words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// One page, by path and query.
    Path(String),
    /// Every page that carries the tag.
    Tag(String),
}

/// One wish, as it travels through the queue.
///
/// Tenant, path and tag are texts of a bounded length here; what they mean is decided by the worker's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whose page.
    pub tenant: String,
    /// Which page or pages.
    pub target: Target,
    /// Why.
    pub reason: Reason,
    /// The producer's name for this wish; without one, the queue's message id names it.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Why a body is no message. Names the field, never repeats its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Larger than the queue lets through.
    #[error("message has {bytes} bytes, allowed are {MAX_MESSAGE_BYTES}")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Not JSON at all, or more than one value.
    #[error("message is not JSON: line {line}, column {column}")]
    NotJson {
        /// Line of the first error, from one.
        line: usize,
        /// Column of the first error, from one.
        column: usize,
    },
    /// JSON, but not an object.
    #[error("message is not a JSON object")]
    NotAnObject,
    /// A field that version 1 does not have.
    #[error("unknown field `{field}`; allowed are {}", FIELDS.join(", "))]
    UnknownField {
        /// Its name, shortened and escaped.
        field: String,
    },
    /// A field that occurs twice.
    #[error("field `{field}` occurs twice")]
    Duplicate {
        /// Its name.
        field: &'static str,
    },
    /// A field that must be there.
    #[error("field `{field}` is missing")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field of another JSON type.
    #[error("field `{field}` must be {expected}")]
    WrongType {
        /// Its name.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A version that this worker does not speak.
    #[error("field `v` is {found}; this worker reads version {VERSION}")]
    UnsupportedVersion {
        /// What the message says.
        found: u64,
    },
    /// Neither a path nor a tag.
    #[error("one of the fields `path` and `tag` is needed")]
    NoTarget,
    /// A path and a tag.
    #[error("the fields `path` and `tag` exclude each other")]
    TwoTargets,
    /// An empty text where one is needed.
    #[error("field `{field}` is empty")]
    Empty {
        /// Its name.
        field: &'static str,
    },
    /// A text beyond its limit.
    #[error("field `{field}` has {bytes} bytes, allowed are {allowed}")]
    FieldTooLong {
        /// Its name.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        allowed: usize,
    },
    /// A reason that does not exist.
    #[error("field `reason` must be one of changed, expired, prewarm")]
    UnknownReason,
    /// A key that breaks the rules for keys.
    #[error("field `idempotency_key` {0}")]
    BadKey(#[from] KeyError),
}

impl Message {
    /// A `changed` wish for one page; set the other fields as needed.
    pub fn path(tenant: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(tenant.into(), Target::Path(path.into()))
    }

    /// A `changed` wish for every page that carries the tag.
    pub fn tag(tenant: impl Into<String>, tag: impl Into<String>) -> Self {
        Self::new(tenant.into(), Target::Tag(tag.into()))
    }

    fn new(tenant: String, target: Target) -> Self {
        let reason = Reason::default();
        Self { tenant, target, reason, idempotency_key: None }
    }

    /// Reads a message body.
    pub fn parse(body: &[u8]) -> Result<Self, MessageError> {
        let fields = Fields::parse(body)?;
        // Before anything else: the fields of another version are not unknown, they are not for us.
        if let Some(found) = fields.other_version() {
            return Err(MessageError::UnsupportedVersion { found });
        }
        let mut v = None;
        let mut tenant = None;
        let mut path = None;
        let mut tag = None;
        let mut reason = None;
        let mut key = None;
        for (name, value) in fields.0 {
            match name.as_str() {
                "v" => once("v", &mut v, value.integer("v")?)?,
                "tenant" => once("tenant", &mut tenant, value.text("tenant")?)?,
                "path" => once("path", &mut path, value.text("path")?)?,
                "tag" => once("tag", &mut tag, value.text("tag")?)?,
                "reason" => once("reason", &mut reason, value.text("reason")?)?,
                "idempotency_key" => {
                    once("idempotency_key", &mut key, value.text("idempotency_key")?)?;
                }
                _ => {
                    return Err(MessageError::UnknownField { field: printable(&name) });
                }
            }
        }
        if v.is_none() {
            return Err(MessageError::Missing { field: "v" });
        }
        let message = Self {
            tenant: tenant.ok_or(MessageError::Missing { field: "tenant" })?,
            target: match (path, tag) {
                (Some(path), None) => Target::Path(path),
                (None, Some(tag)) => Target::Tag(tag),
                (None, None) => return Err(MessageError::NoTarget),
                (Some(_), Some(_)) => return Err(MessageError::TwoTargets),
            },
            reason: match reason {
                Some(word) => Reason::parse(&word).ok_or(MessageError::UnknownReason)?,
                None => Reason::default(),
            },
            idempotency_key: key.as_deref().map(IdempotencyKey::parse).transpose()?,
        };
        message.check()?;
        Ok(message)
    }

    /// Writes the message as JSON. Refuses what [`Message::parse`] would refuse, so that a producer hears of it and not
    /// the dead-letter queue.
    pub fn to_json(&self) -> Result<String, MessageError> {
        self.check()?;
        // Texts and one number into memory: there is nothing that can fail.
        serde_json::to_string(self).map_err(|_| MessageError::NotAnObject)
    }

    fn check(&self) -> Result<(), MessageError> {
        bounded("tenant", &self.tenant, MAX_TENANT_BYTES)?;
        match &self.target {
            Target::Path(path) => bounded("path", path, MAX_PATH_BYTES),
            Target::Tag(tag) => bounded("tag", tag, MAX_TAG_BYTES),
        }
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = 4 + usize::from(self.idempotency_key.is_some());
        let mut out = serializer.serialize_struct("Message", fields)?;
        out.serialize_field("v", &VERSION)?;
        out.serialize_field("tenant", &self.tenant)?;
        match &self.target {
            Target::Path(path) => out.serialize_field("path", path)?,
            Target::Tag(tag) => out.serialize_field("tag", tag)?,
        }
        out.serialize_field("reason", &self.reason)?;
        if let Some(key) = &self.idempotency_key {
            out.serialize_field("idempotency_key", key)?;
        }
        out.end()
    }
}

fn once<T>(field: &'static str, slot: &mut Option<T>, value: T) -> Result<(), MessageError> {
    if slot.is_some() {
        return Err(MessageError::Duplicate { field });
    }
    *slot = Some(value);
    Ok(())
}

fn bounded(field: &'static str, text: &str, allowed: usize) -> Result<(), MessageError> {
    if text.is_empty() {
        return Err(MessageError::Empty { field });
    }
    if text.len() > allowed {
        return Err(MessageError::FieldTooLong { field, bytes: text.len(), allowed });
    }
    Ok(())
}

/// A stranger's field name, fit for a log line and an attribute.
fn printable(name: &str) -> String {
    name.chars().take(40).flat_map(char::escape_default).collect()
}

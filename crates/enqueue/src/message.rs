//! The queue message, version 1.
//!
//! ```json
//! {"v":1, "tenant":"acme", "path":"/products/42?color=red", "reason":"changed",
//!  "idempotency_key":"optional"}
//! ```
//!
//! A message has exactly one of `path` and `tag`. `reason` defaults to `changed`. An unknown,
//! duplicate, missing or mistyped field is refused by name; an absent optional field is left out,
//! never `null`. Parsing is bounded: a body over [`MAX_MESSAGE_BYTES`] is not parsed, and nesting
//! of any depth is skipped without recursion.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::key::{IdempotencyKey, KeyError};
use crate::message::fields::Fields;

mod fields;

/// The message version this crate reads and writes.
pub const VERSION: u64 = 1;

/// The largest body that is parsed, in bytes. Equals the SQS limit.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// The largest `tenant`, in bytes.
pub const MAX_TENANT_BYTES: usize = 64;

/// The largest `path`, in bytes as sent; the canonical path has a limit of its own.
pub const MAX_PATH_BYTES: usize = 4096;

/// The largest `tag`, in bytes.
pub const MAX_TAG_BYTES: usize = 256;

/// Every field of version 1, in the order of writing.
pub const FIELDS: [&str; 6] = ["v", "tenant", "path", "tag", "reason", "idempotency_key"];

/// Why the page is to be regenerated. Decides when the request counts as covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The source changed. Covered only by a render that began after the message was sent.
    #[default]
    Changed,
    /// The page is no longer fresh. Covered by any fresh page.
    Expired,
    /// The page should be rendered before its first read. Covered by a fresh page of the running
    /// deployment.
    Prewarm,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 3] = [Reason::Changed, Reason::Expired, Reason::Prewarm];

    /// The reason's name on the wire, in logs and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Changed => "changed",
            Reason::Expired => "expired",
            Reason::Prewarm => "prewarm",
        }
    }

    /// The reason of that name, or `None` if there is none.
    pub fn parse(name: &str) -> Option<Reason> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The page or pages of a message, as written by the producer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// One page, by path and query.
    Path(String),
    /// Every page that carries the tag.
    Tag(String),
}

/// One request to regenerate a page or the pages of a tag.
///
/// Tenant, path and tag are only checked for their length. The worker resolves them against its
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Name of the tenant that the page belongs to.
    pub tenant: String,
    /// The page or pages to regenerate.
    pub target: Target,
    /// Why the page is to be regenerated.
    pub reason: Reason,
    /// Identifies this request. Without it, the SQS message id is the key.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Why a body is not a valid message. Names the field, never repeats its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message is larger than SQS accepts.
    #[error("message has {bytes} bytes, allowed are {MAX_MESSAGE_BYTES}")]
    TooLarge {
        /// Size of the body, when sending together with its attributes.
        bytes: usize,
    },
    /// The body is not JSON, or more than one JSON value.
    #[error("message is not JSON: line {line}, column {column}")]
    NotJson {
        /// Line of the first error, from one.
        line: usize,
        /// Column of the first error, from one.
        column: usize,
    },
    /// The body is JSON, but not an object.
    #[error("message is not a JSON object")]
    NotAnObject,
    /// The body has a field that version 1 does not have.
    #[error("unknown field `{field}`; allowed are {}", FIELDS.join(", "))]
    UnknownField {
        /// Name of the field, shortened and escaped.
        field: String,
    },
    /// A field occurs more than once.
    #[error("field `{field}` occurs twice")]
    Duplicate {
        /// Name of the field.
        field: &'static str,
    },
    /// A required field is missing.
    #[error("field `{field}` is missing")]
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// A field has the wrong JSON type.
    #[error("field `{field}` must be {expected}")]
    WrongType {
        /// Name of the field.
        field: &'static str,
        /// The type that is expected.
        expected: &'static str,
    },
    /// The message has a version that this crate does not read.
    #[error("field `v` is {found}; supported is version {VERSION}")]
    UnsupportedVersion {
        /// The version of the message.
        found: u64,
    },
    /// The message has neither a path nor a tag.
    #[error("one of the fields `path` and `tag` is required")]
    NoTarget,
    /// The message has both a path and a tag.
    #[error("only one of the fields `path` and `tag` is allowed")]
    TwoTargets,
    /// A required text is empty.
    #[error("field `{field}` is empty")]
    Empty {
        /// Name of the field.
        field: &'static str,
    },
    /// A text is longer than allowed.
    #[error("field `{field}` has {bytes} bytes, allowed are {allowed}")]
    FieldTooLong {
        /// Name of the field.
        field: &'static str,
        /// Length of the text in bytes.
        bytes: usize,
        /// The limit in bytes.
        allowed: usize,
    },
    /// `reason` is none of [`Reason::ALL`].
    #[error("field `reason` must be one of changed, expired, prewarm")]
    UnknownReason,
    /// `idempotency_key` is not a valid key.
    #[error("field `idempotency_key` {0}")]
    BadKey(#[from] KeyError),
}

impl Message {
    /// A `changed` request for one page; set the other fields as needed.
    pub fn path(tenant: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(tenant.into(), Target::Path(path.into()))
    }

    /// A `changed` request for every page that carries the tag.
    pub fn tag(tenant: impl Into<String>, tag: impl Into<String>) -> Self {
        Self::new(tenant.into(), Target::Tag(tag.into()))
    }

    fn new(tenant: String, target: Target) -> Self {
        let reason = Reason::default();
        Self { tenant, target, reason, idempotency_key: None }
    }

    /// Parses and validates a message body.
    pub fn parse(body: &[u8]) -> Result<Self, MessageError> {
        let fields = Fields::parse(body)?;
        // First: fields of a later version must be reported as that version, not as unknown fields.
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
                Some(name) => Reason::parse(&name).ok_or(MessageError::UnknownReason)?,
                None => Reason::default(),
            },
            idempotency_key: key.as_deref().map(IdempotencyKey::parse).transpose()?,
        };
        message.check()?;
        Ok(message)
    }

    /// Writes the message as JSON. Refuses what [`Message::parse`] would refuse, so that the error
    /// reaches the producer and not the dead-letter queue.
    pub fn to_json(&self) -> Result<String, MessageError> {
        self.check()?;
        // Strings and one number, written to memory: cannot fail.
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

/// An untrusted field name, safe for a log line and a message attribute.
fn printable(name: &str) -> String {
    name.chars().take(40).flat_map(char::escape_default).collect()
}

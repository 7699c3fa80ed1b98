//! Parses a message into a request, once.

use everfresh_enqueue::{Message, message};

use super::{Config, ResolveError, Resolved, TenantConfig};
use crate::domain::outcome::RejectReason;
use crate::domain::page_key::{Tenant, TenantError};
use crate::domain::request::{KeyError, Request, Target, key_of_message};
use crate::domain::tag::{Tag, TagError};

/// A message with its tenant and page.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted<'c> {
    pub request: Request,
    pub tenant: &'c TenantConfig,
    /// The page; none for a request by tag.
    pub resolved: Option<Resolved<'c>>,
}

/// Why a message cannot be handled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error("tenant {0} is not configured")]
    UnknownTenant(Tenant),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Tag(#[from] TagError),
    /// The attached key, or the message id, is no key.
    #[error("key {0}")]
    Key(#[from] KeyError),
}

impl AcceptError {
    pub fn reject_reason(&self) -> RejectReason {
        match self {
            AcceptError::Tenant(_) | AcceptError::UnknownTenant(_) => RejectReason::UnknownTenant,
            AcceptError::Resolve(error) => error.reject_reason(),
            AcceptError::Tag(_) => RejectReason::BadTag,
            AcceptError::Key(_) => RejectReason::BadMessage,
        }
    }
}

impl Config {
    /// Checks every field of the message. `attached_key` is its attribute `everfresh-key`.
    pub fn accept(
        &self,
        message: Message,
        attached_key: Option<&str>,
        message_id: &str,
    ) -> Result<Accepted<'_>, AcceptError> {
        let name = Tenant::parse(&message.tenant)?;
        let Some(tenant) = self.tenant(&name) else {
            return Err(AcceptError::UnknownTenant(name));
        };
        let key = key_of_message(message.idempotency_key, attached_key, message_id)?;
        let (target, resolved) = match message.target {
            message::Target::Path(path) => {
                let resolved = tenant.resolve(&path)?;
                (Target::Path(resolved.page.path().clone()), Some(resolved))
            }
            message::Target::Tag(tag) => (Target::Tag(Tag::parse(&tag)?), None),
        };
        let request = Request { tenant: name, target, reason: message.reason, key };
        Ok(Accepted { request, tenant, resolved })
    }
}

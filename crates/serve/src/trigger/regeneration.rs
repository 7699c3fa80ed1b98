//! A regeneration that a signed request enqueues.

use everfresh_core::config::TenantConfig;
use everfresh_core::domain::request::{Handle, IdempotencyKey};
use everfresh_core::domain::tag::Tag;
use everfresh_core::random;
use everfresh_enqueue::Message;

use super::endpoint::RevalidateTarget;
use super::error::TriggerError;
use crate::http::Request;

pub(super) struct Regeneration {
    pub(super) message: Message,
    pub(super) handle: Handle,
    pub(super) key: IdempotencyKey,
    /// The page's hash; none for a tag.
    pub(super) page: Option<String>,
}

impl Regeneration {
    /// Checks that the tenant has such a page, or that the tag is a valid one.
    pub(super) fn new(
        tenant: &TenantConfig,
        target: RevalidateTarget,
        request: &Request,
    ) -> Result<Self, TriggerError> {
        let key = idempotency_key(request)?;
        let name = tenant.tenant.as_str();
        let (mut message, handle, page) = match target {
            RevalidateTarget::Path(path) => {
                let resolved = tenant.resolve(&path);
                let page =
                    resolved.map_err(|error| TriggerError::bad(&error.to_string(), "Name a page of this host."))?.page;
                let handle = Handle::Page { page: page.hash(), key: key.clone() };
                (Message::path(name, page.path().as_str()), handle, Some(page.hash().to_string()))
            }
            RevalidateTarget::Tag(tag) => {
                let tag =
                    Tag::parse(&tag).map_err(|error| TriggerError::bad(&error.to_string(), "Name another tag."))?;
                (Message::tag(name, tag.as_str()), Handle::Inval { key: key.clone() }, None)
            }
        };
        message.idempotency_key = Some(key.clone());
        Ok(Self { message, handle, key, page })
    }
}

/// The caller's `x-request-id`, or a random key.
fn idempotency_key(request: &Request) -> Result<IdempotencyKey, TriggerError> {
    let key = match request.header("x-request-id") {
        Some(id) => IdempotencyKey::parse(id),
        None => IdempotencyKey::parse(&format!("http-{:032x}", random::token())),
    };
    key.map_err(|error| TriggerError::bad(&format!("x-request-id {error}"), "Send another one, or none."))
}

//! announce: who in the world outside hears that a page was published. The CDN, which keeps copies of the old one, and an event bus or a
//! topic. Both are optional.
//!
//! They are told after the commit, so a crash may lie between. META therefore carries a mark that the commit itself has written, with the
//! key of its request, and that request is not done with while its mark is there. Everything told bears an id that is made from what
//! happened, never by chance: told twice it is done once by the CDN, and a subscriber recognises it.

mod cdn;
mod events;
mod settings;

use self::cdn::Cdn;
use self::events::Events;
pub use self::settings::{EventTarget, NotifierSettings};
use crate::clients::Clients;
use crate::domain::digest::Digest;
use crate::domain::page::Meta;
use crate::domain::page_key::{PageKey, Tenant};
use crate::domain::request::IdempotencyKey;
use crate::domain::tag::Tag;
use crate::domain::version::Version;

/// Those who are told.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    cdn: Option<Cdn>,
    events: Option<Events>,
}

/// Somebody could not be told.
#[derive(Debug, thiserror::Error)]
#[error("{whom} could not be told: {why}")]
pub struct NotifyError {
    /// Who.
    pub whom: String,
    /// What the SDK says about it.
    pub why: String,
}

impl Notifier {
    /// Those whom `settings` name.
    pub fn new(clients: &Clients, settings: &NotifierSettings) -> Self {
        Self {
            cdn: settings.distribution.as_ref().map(|id| Cdn::new(clients, id, settings.by_tag)),
            events: settings.event_target.as_ref().map(|target| Events::new(clients, target)),
        }
    }

    /// Whether anybody is.
    pub fn is_configured(&self) -> bool {
        self.cdn.is_some() || self.events.is_some()
    }

    /// Tells everybody that this version of the page is published.
    pub async fn notify_page(&self, page: &PageKey, version: &Version, meta: &Meta) -> Result<(), NotifyError> {
        let id = format!("page.{}", Digest::of(format!("{page}\n{version}").as_bytes()));
        // In this order: what is told again because the other failed, the CDN takes for what it is.
        if let Some(cdn) = &self.cdn {
            cdn.invalidate_page(page, &id).await?;
        }
        match &self.events {
            Some(events) => events.page_regenerated(page, version, meta, &id).await,
            None => Ok(()),
        }
    }

    /// Tells the CDN that every page with this tag is outdated, by the request that said so. Nothing is regenerated yet, so nobody else is told.
    pub async fn notify_tag(&self, tenant: &Tenant, tag: &Tag, key: &IdempotencyKey) -> Result<(), NotifyError> {
        let Some(cdn) = &self.cdn else { return Ok(()) };
        let id = format!("tag.{}", Digest::of(format!("{tenant}\n{tag}\n{key}").as_bytes()));
        cdn.invalidate_tag(tenant, tag, &id).await
    }
}

//! Notifications about published pages: to the CDN, which caches the old version, and to an event
//! bus or topic. Both are optional.
//!
//! Notifications follow the commit, so a worker may crash in between. The commit therefore writes
//! the key of its request into META (`pending_notification`), and the request is not acked while it
//! is there. Every notification has an id that is derived from the version or the request, never
//! random: the CDN executes a repeated one once, and a subscriber recognises it.

mod cdn;
mod events;
mod settings;

use self::cdn::Cdn;
use self::events::Events;
pub use self::settings::{EventTarget, Invalidate, NotifierSettings};
use crate::aws_error::AwsError;
use crate::clients::Clients;
use crate::domain::digest::Digest;
use crate::domain::page::{ANY_REQUEST, Meta, PendingNotification, PendingScope};
use crate::domain::page_key::{PageKey, Tenant};
use crate::domain::request::IdempotencyKey;
use crate::domain::tag::Tag;
use crate::domain::version::Version;

#[derive(Clone, Debug, Default)]
pub struct Notifier {
    cdn: Option<Cdn>,
    invalidate: Invalidate,
    events: Option<Events>,
}

/// The CDN, the bus or the topic did not take a notification. It is sent again later.
#[derive(Debug, thiserror::Error)]
#[error("notification of {target} failed: {source}")]
pub struct NotifyError {
    /// The distribution, or the ARN of the bus or topic.
    pub target: String,
    pub source: AwsError,
}

impl Notifier {
    pub fn new(clients: &Clients, settings: &NotifierSettings) -> Self {
        Self {
            cdn: settings.distribution.as_ref().map(|id| Cdn::new(clients, id, settings.by_tag)),
            invalidate: settings.invalidate,
            events: settings.event_target.as_ref().map(|target| Events::new(clients, target)),
        }
    }

    pub fn is_configured(&self) -> bool {
        self.cdn.is_some() || self.events.is_some()
    }

    /// Whether a version of this content has to be notified, or only the CDN of it.
    pub fn is_notified_of(&self, meta: &Meta, cdn_only: bool) -> bool {
        (self.events.is_some() && !cdn_only) || self.invalidates(meta)
    }

    fn invalidates(&self, meta: &Meta) -> bool {
        self.cdn.is_some() && (self.invalidate == Invalidate::All || must_invalidate(meta))
    }

    /// Notifies CDN and subscribers, if they need it, that this version of the page is published.
    pub async fn notify_page(&self, page: &PageKey, version: &Version, meta: &Meta) -> Result<(), NotifyError> {
        let id = format!("page.{}", Digest::of(format!("{page}\n{version}").as_bytes()));
        // The CDN first: if the event fails and both are repeated, the CDN recognises its id and
        // does nothing.
        if let Some(cdn) = self.cdn.as_ref().filter(|_| self.invalidates(meta)) {
            cdn.invalidate_page(page, &id).await?;
        }
        let pending = meta.pending_notification.as_ref();
        let cdn_only = pending.is_some_and(|pending| pending.scope == PendingScope::CdnOnly);
        match self.events.as_ref().filter(|_| !cdn_only) {
            Some(events) => events.page_regenerated(page, version, meta, &id).await,
            None => Ok(()),
        }
    }

    /// Invalidates every page with this tag at the CDN, once per request, unless it is notified of
    /// withdrawals only. No event: nothing is regenerated yet.
    pub async fn notify_tag(&self, tenant: &Tenant, tag: &Tag, key: &IdempotencyKey) -> Result<(), NotifyError> {
        let Some(cdn) = self.cdn.as_ref().filter(|_| self.invalidate == Invalidate::All) else { return Ok(()) };
        let id = format!("tag.{}", Digest::of(format!("{tenant}\n{tag}\n{key}").as_bytes()));
        cdn.invalidate_tag(tenant, tag, &id).await
    }
}

/// Whether the CDN is invalidated whatever the setting says: a page that was taken down must not
/// live on there, and what an operator changed must be seen. An operator's version carries no
/// request's key.
pub fn must_invalidate(meta: &Meta) -> bool {
    let taken_down = !meta.has_body() || meta.status.is_some_and(|status| status != 200);
    let pending = meta.pending_notification.as_ref();
    let by_mark =
        |pending: &PendingNotification| pending.key == ANY_REQUEST || pending.scope == PendingScope::AfterTakedown;
    taken_down || pending.is_some_and(by_mark)
}

//! Where pages come from: the one trait of Everfresh. Its implementations live with the worker, for the serving function must not
//! carry them.

use std::error::Error;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::config::Render;
use crate::domain::artifact::Rendered;
use crate::domain::outcome::ErrorClass;
use crate::domain::page_key::PageKey;

/// What a renderer is asked for. Where to ask comes from the configuration, never from a message.
#[derive(Clone, Copy, Debug)]
pub struct RenderRequest<'a> {
    /// The page.
    pub page: &'a PageKey,
    /// The tenant's renderer, as configured.
    pub render: &'a Render,
    /// The tenant's first host name: the site that the page belongs to.
    pub host: &'a str,
    /// Whether caches on the way must ask the origin anew: the page is known to have changed.
    pub no_cache: bool,
    /// The largest body that can be used; reading more is a waste.
    pub max_bytes: u64,
    /// How much time there is. The caller stops waiting then; a renderer that knows it can give up in better order.
    pub time: Duration,
}

/// Renders a page. It has no side effects that a second render would repeat: a page may be rendered more than once.
pub trait Renderer: Send + Sync {
    /// Asks for the page once. Any complete answer of the origin is `Ok`, whatever its status: the publish gate judges it.
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>>;
}

/// Why there is no answer to judge.
#[derive(Debug, thiserror::Error)]
pub enum RenderFailure {
    /// The origin could not be reached, or broke off.
    #[error("the origin could not be reached or broke off")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// The origin was too slow.
    #[error("the origin did not answer in time")]
    TimedOut,
    /// The origin may not be asked, or not like this.
    #[error("the origin may not be asked: {0}")]
    Forbidden(String),
    /// The origin's answer has a form that cannot be turned into a page.
    #[error("the origin's answer cannot be read")]
    Unreadable(#[source] Box<dyn Error + Send + Sync>),
    /// The body is larger than the cap.
    #[error("the body is larger than {max_bytes} bytes")]
    TooLarge {
        /// The cap.
        max_bytes: u64,
    },
    /// A built-in template is broken.
    #[error("a template is broken")]
    Template(#[source] Box<dyn Error + Send + Sync>),
}

impl RenderFailure {
    /// The class under which the failure is recorded.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable(_) => ErrorClass::OriginUnreachable,
            Self::TimedOut => ErrorClass::OriginTimeout,
            Self::Forbidden(_) => ErrorClass::OriginForbidden,
            Self::Unreadable(_) | Self::TooLarge { .. } => ErrorClass::Gate,
            // Served by the origin's own code, so to speak: trying again after a fix helps.
            Self::Template(_) => ErrorClass::OriginStatus,
        }
    }
}

//! Where pages come from: the one trait of Everfresh. Its implementations are in the worker's
//! crate: the serving function must not contain them.

use std::error::Error;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::config::Render;
use crate::domain::artifact::Rendered;
use crate::domain::outcome::ErrorClass;
use crate::domain::page_key::PageKey;
use crate::domain::validators::Condition;

/// A render. The origin comes from the configuration, never from a message.
#[derive(Clone, Copy, Debug)]
pub struct RenderRequest<'a> {
    pub page: &'a PageKey,
    /// The tenant's renderer, as configured.
    pub render: &'a Render,
    /// The site that the page belongs to: the tenant's first host name, with a port in `everfresh
    /// dev`.
    pub host: &'a str,
    /// Caches on the way must revalidate at the origin: the page is known to have changed.
    pub no_cache: bool,
    /// The tenant's own headers, by name in lower case.
    pub headers: &'a [(&'a str, &'a str)],
    /// With it the origin may answer 304, without a body, if the page is still the published one. A
    /// renderer need not know it.
    pub condition: Option<Condition<'a>>,
    /// The largest body that can be published; a renderer need not read more.
    pub max_bytes: u64,
    /// The caller's timeout. A renderer that knows it can report a better error.
    pub time: Duration,
}

/// Renders a page. It has no side effects that a second render would repeat: a page may be rendered
/// more than once.
pub trait Renderer: Send + Sync {
    /// Requests the page once. Any complete response of the origin is `Ok`, whatever its status:
    /// the publish gate judges it.
    fn render<'a>(&'a self, request: RenderRequest<'a>) -> BoxFuture<'a, Result<Rendered, RenderFailure>>;
}

#[derive(Debug, thiserror::Error)]
pub enum RenderFailure {
    #[error("the origin could not be reached or broke off")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    #[error("the origin did not answer in time")]
    TimedOut,
    #[error("requests to the origin are not allowed: {0}")]
    Forbidden(String),
    #[error("the origin's response cannot be read")]
    Unreadable(#[source] Box<dyn Error + Send + Sync>),
    #[error("the body is larger than {max_bytes} bytes")]
    TooLarge {
        max_bytes: u64,
        /// Status and headers, if an HTTP origin answered: they say whether the page itself is too
        /// large, or only an error page or an outdated answer.
        head: Option<Box<Rendered>>,
    },
    /// The function ran and failed.
    #[error("the function failed")]
    Function(#[source] Box<dyn Error + Send + Sync>),
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
            // As an error status of an origin: a retry after a fix helps.
            Self::Function(_) | Self::Template(_) => ErrorClass::OriginStatus,
        }
    }
}

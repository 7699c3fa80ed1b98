//! The publish gate: which of an origin's responses becomes the page, which withdraws it, and which
//! changes nothing.
//!
//! | Stored | Bypass | Failure |
//! |---|---|---|
//! | 200, 301 and 308 within the site, 404, 410, if they may be shared | a response that may not be shared; 401, 403, 451; other redirects; 204 and other 2xx; too large | 5xx, 408, 421, 425, 429, 1xx; truncated or malformed; empty or refused by the route's gate, if it may be shared |
//! | with a lifetime of their own: 302, 303 and 307 within the site; a redirect without a target; other 2xx with a whole body; any other 4xx, if no page is published | any other 4xx, if no page is published | any other 4xx, if a page is published |
//!
//! A bypass withdraws the published page and passes readers to the origin. A failure keeps it.

use serde::Deserialize;

use crate::domain::artifact::{Artifact, Rendered};
use crate::domain::bypass::BypassReason;
use crate::domain::fragment_headers::FRAGMENT_HEADERS;
use crate::domain::headers::{self, HeaderError};
use crate::domain::outcome::ErrorClass;
use crate::domain::page::Meta;
use crate::domain::page_key::{CanonicalPath, NormalPath};
use crate::domain::response_sharing::{self, OriginRules, Sharing, values};

/// The largest body by default. Base64 makes four thirds of it, and a Lambda function answers with
/// at most 6 MB.
pub const MAX_BODY_BYTES: u64 = 4 * 1024 * 1024;

/// The request headers that say for which host a page is rendered.
const HOST_HEADERS: [&str; 2] = ["host", "x-forwarded-host"];

/// The longest life of "not found", "gone" and "moved".
pub const SHORT_LIFE_SECONDS: u64 = 30;

/// A route's requirements on a page's body, beyond those for all routes. They apply to status 200.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateRules {
    /// At least so many bytes.
    pub min_bytes: u64,
    /// The largest allowed loss of the previous size: 0.5 allows half of it.
    pub max_shrink: Option<f64>,
    /// This text must occur.
    pub must_contain: Option<String>,
}

#[derive(Clone, Copy)]
pub struct Gate<'a> {
    pub page: &'a CanonicalPath,
    pub rules: &'a GateRules,
    pub origin_rules: OriginRules,
    /// The route's `pass_when`: stored pages are the answers without these headers.
    pub pass_when: &'a [String],
    /// The tenant's host names: where a redirect may lead.
    pub hosts: &'a [String],
    /// The host for which it is rendered, with a port in `everfresh dev`.
    pub site: &'a str,
    pub max_bytes: u64,
    /// A page is published: a version that is no bypass, and no [client error](is_client_error).
    pub has_page: bool,
    /// Size of the last published body with status 200.
    pub previous_bytes: Option<u64>,
}

/// What becomes of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Store(Storable),
    Bypass(BypassReason),
    Failure(GateError),
}

/// A response that may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storable {
    pub artifact: Artifact,
    pub life: Life,
    pub sharing: Sharing,
}

/// How long a response is fresh, unless the origin says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// As long as the route says.
    Route,
    /// At most [`SHORT_LIFE_SECONDS`]: a page that is missing now may exist soon.
    Short,
}

impl Life {
    /// In seconds, for a route whose pages are fresh for `revalidate_seconds`.
    pub fn seconds(self, revalidate_seconds: u64) -> u64 {
        match self {
            Life::Route => revalidate_seconds,
            Life::Short => revalidate_seconds.min(SHORT_LIFE_SECONDS),
        }
    }
}

/// What becomes of a 304.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotModified {
    Keep { headers: Vec<(String, String)>, sharing: Sharing },
    Bypass(BypassReason),
    Failure(GateError),
}

/// Why a response leaves everything as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The origin failed, or refused this request for a while.
    #[error("status {status} is a failure of the origin")]
    Status { status: u16 },
    /// Status 200 without a body.
    #[error("body is empty")]
    Empty,
    #[error("body has {actual} bytes, declared were {declared}")]
    Truncated { declared: u64, actual: u64 },
    /// Headers that cannot be stored.
    #[error(transparent)]
    Headers(#[from] HeaderError),
    #[error("body has {bytes} bytes, the route requires {min_bytes}")]
    TooSmall { bytes: u64, min_bytes: u64 },
    /// Much smaller than the published one.
    #[error("body shrank from {previous_bytes} to {bytes} bytes, more than the route allows")]
    Shrunk { bytes: u64, previous_bytes: u64 },
    /// The route's `must_contain` does not occur.
    #[error("body lacks the text that the route requires")]
    MarkerMissing,
}

impl GateError {
    /// How the failed attempt is counted.
    pub fn class(&self) -> ErrorClass {
        match self {
            GateError::Status { .. } => ErrorClass::OriginStatus,
            GateError::Truncated { .. } => ErrorClass::OriginUnreachable,
            GateError::Empty
            | GateError::Headers(_)
            | GateError::TooSmall { .. }
            | GateError::Shrunk { .. }
            | GateError::MarkerMissing => ErrorClass::Gate,
        }
    }

    /// Whether a rule about the body refused it, so that it helps to look at it. All of them come
    /// after the rules about sharing: what belongs to one reader is never refused with these.
    pub fn is_about_body(&self) -> bool {
        match self {
            GateError::TooSmall { .. } | GateError::Shrunk { .. } | GateError::MarkerMissing => true,
            GateError::Status { .. } | GateError::Empty | GateError::Truncated { .. } | GateError::Headers(_) => false,
        }
    }
}

/// What a status alone says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Page,
    /// Nothing is there, or it has moved.
    Absent,
    PermanentRedirect,
    /// Stored only with a lifetime of its own: it may well be one reader's way to a log-in page.
    TemporaryRedirect,
    /// Another success with a whole body. Stored only with a lifetime of its own.
    OtherSuccess,
    Bypass(BypassReason),
    Failure,
    /// A refusal of the request that is neither about the reader nor known to pass. Stored only with
    /// a lifetime of its own, and only where it replaces no page.
    ClientError,
}

/// Whether a version with this status is a refusal that was stored for its lifetime. It is no page
/// that a later refusal must not replace.
pub fn is_client_error(status: u16) -> bool {
    Meaning::of(status) == Meaning::ClientError
}

impl Meaning {
    fn of(status: u16) -> Self {
        match status {
            200 => Meaning::Page,
            301 | 308 => Meaning::PermanentRedirect,
            302 | 303 | 307 => Meaning::TemporaryRedirect,
            404 | 410 => Meaning::Absent,
            // A part of a page, a reset of a form, a difference to another page.
            205 | 206 | 226 => Meaning::Bypass(BypassReason::NoContent),
            201..=299 => Meaning::OtherSuccess,
            300 | 305 | 306 | 309..=399 => Meaning::Bypass(BypassReason::Redirect),
            401 => Meaning::Bypass(BypassReason::Unauthorized),
            403 => Meaning::Bypass(BypassReason::Forbidden),
            451 => Meaning::Bypass(BypassReason::LegalReasons),
            // 304 to a request without a condition makes no sense.
            304 | 408 | 421 | 425 | 429 => Meaning::Failure,
            400..=499 => Meaning::ClientError,
            _ => Meaning::Failure,
        }
    }

    /// The bypass that such a response is without a lifetime of its own.
    fn without_lifetime(self) -> Option<BypassReason> {
        match self {
            Meaning::OtherSuccess => Some(BypassReason::NoContent),
            Meaning::ClientError => Some(BypassReason::ClientError),
            Meaning::Page
            | Meaning::Absent
            | Meaning::PermanentRedirect
            | Meaning::TemporaryRedirect
            | Meaning::Bypass(_)
            | Meaning::Failure => None,
        }
    }
}

/// Why a response is not stored.
enum NotStored {
    Bypass(BypassReason),
    Failure(GateError),
}

impl Gate<'_> {
    pub fn judge(&self, rendered: Rendered) -> Verdict {
        match self.stored(rendered) {
            Ok(storable) => Verdict::Store(storable),
            Err(NotStored::Bypass(reason)) => Verdict::Bypass(reason),
            Err(NotStored::Failure(error)) => Verdict::Failure(error),
        }
    }

    /// What becomes of a response whose body is too large to be read: as of any other, by its
    /// status.
    pub fn judge_too_large(&self, head: &Rendered) -> Verdict {
        match self.meaning(head.status) {
            Ok(meaning) => Verdict::Bypass(meaning.without_lifetime().unwrap_or(BypassReason::TooLarge)),
            Err(NotStored::Bypass(reason)) => Verdict::Bypass(reason),
            Err(NotStored::Failure(error)) => Verdict::Failure(error),
        }
    }

    /// What becomes of a 304 about the version `published`: the same as of a 200 with these headers
    /// and the published body, which has passed this gate before.
    pub fn judge_not_modified(&self, answer: &Rendered, published: &Meta) -> NotModified {
        let keyed = |name: &str| self.is_keyed(name);
        let sharing = match response_sharing::sharing(answer, self.origin_rules, keyed) {
            Ok(sharing) => sharing,
            Err(reason) => return NotModified::Bypass(reason),
        };
        match headers::updated(&published.headers, &answer.headers) {
            Ok(headers) => NotModified::Keep { headers, sharing: sharing.or_known(answer, published) },
            Err(error) => NotModified::Failure(error.into()),
        }
    }

    /// What the status says, if such a response may be stored.
    fn meaning(&self, status: u16) -> Result<Meaning, NotStored> {
        match Meaning::of(status) {
            Meaning::Bypass(reason) => Err(NotStored::Bypass(reason)),
            Meaning::ClientError if !self.has_page => Ok(Meaning::ClientError),
            Meaning::Failure | Meaning::ClientError => Err(NotStored::Failure(GateError::Status { status })),
            meaning @ (Meaning::Page
            | Meaning::Absent
            | Meaning::PermanentRedirect
            | Meaning::TemporaryRedirect
            | Meaning::OtherSuccess) => Ok(meaning),
        }
    }

    fn stored(&self, mut rendered: Rendered) -> Result<Storable, NotStored> {
        let bypass = |reason| Err(NotStored::Bypass(reason));
        let failure = |error: GateError| Err(NotStored::Failure(error));
        let meaning = self.meaning(rendered.status)?;
        if let Some(reason) = meaning.without_lifetime()
            && !self.has_lifetime(&rendered)
        {
            return bypass(reason);
        }
        let bytes = rendered.body.len() as u64;
        if bytes > self.max_bytes {
            return bypass(BypassReason::TooLarge);
        }
        if let Some(declared) = rendered.declared_bytes.filter(|declared| *declared != bytes) {
            return failure(GateError::Truncated { declared, actual: bytes });
        }
        // Before the rules of the route: a page that has become one reader's own is taken down,
        // whatever its body. The limit of withdrawals guards against error pages with status 200.
        let keyed = |name: &str| self.is_keyed(name);
        let sharing = response_sharing::sharing(&rendered, self.origin_rules, keyed).map_err(NotStored::Bypass)?;
        let life = match meaning {
            Meaning::TemporaryRedirect if sharing.fresh_s.is_none() => return bypass(BypassReason::Redirect),
            Meaning::PermanentRedirect | Meaning::TemporaryRedirect => {
                // Without a target it leads nowhere: it is stored for as long as the origin says.
                if sharing.fresh_s.is_none() || values(&rendered, "location").next().is_some() {
                    self.check_redirect(&rendered).map_err(NotStored::Bypass)?;
                }
                Life::Short
            }
            Meaning::Page => {
                self.check_body(&rendered.body).map_err(NotStored::Failure)?;
                Life::Route
            }
            // "Still working on it" is no page: readers ask the origin, as they do without a lifetime.
            Meaning::OtherSuccess if rendered.status != 204 && self.check_body(&rendered.body).is_err() => {
                return bypass(BypassReason::NoContent);
            }
            Meaning::Absent | Meaning::OtherSuccess | Meaning::Bypass(_) | Meaning::Failure | Meaning::ClientError => {
                Life::Short
            }
        };
        if !matches!(meaning, Meaning::PermanentRedirect | Meaning::TemporaryRedirect) {
            // Meaningless with another status, and its target was not checked.
            rendered.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("location"));
        }
        let artifact = Artifact::new(rendered).map_err(|error| NotStored::Failure(error.into()))?;
        Ok(Storable { artifact, life, sharing })
    }

    /// Whether the origin allows that this response is shared, and says for how long.
    fn has_lifetime(&self, rendered: &Rendered) -> bool {
        let sharing = response_sharing::sharing(rendered, self.origin_rules, |name| self.is_keyed(name));
        sharing.is_ok_and(|sharing| sharing.fresh_s.is_some())
    }

    /// Whether all requests for the stored page have the same value of this header. One of those
    /// that pass is absent; the worker renders for the tenant's first host.
    fn is_keyed(&self, name: &str) -> bool {
        let absent = FRAGMENT_HEADERS.contains(&name) || self.pass_when.iter().any(|own| own == name);
        let one_host = matches!(self.hosts, [host] if !host.contains('*'));
        absent || (one_host && HOST_HEADERS.contains(&name))
    }

    fn check_body(&self, body: &[u8]) -> Result<(), GateError> {
        let bytes = body.len() as u64;
        if bytes == 0 {
            return Err(GateError::Empty);
        }
        let min_bytes = self.rules.min_bytes;
        if bytes < min_bytes {
            return Err(GateError::TooSmall { bytes, min_bytes });
        }
        if let (Some(max_shrink), Some(previous_bytes)) = (self.rules.max_shrink, self.previous_bytes) {
            let least = previous_bytes as f64 * (1.0 - max_shrink);
            if (bytes as f64) < least {
                return Err(GateError::Shrunk { bytes, previous_bytes });
            }
        }
        match &self.rules.must_contain {
            Some(marker) if !contains(body, marker.as_bytes()) => Err(GateError::MarkerMissing),
            Some(_) | None => Ok(()),
        }
    }

    fn check_redirect(&self, rendered: &Rendered) -> Result<(), BypassReason> {
        let location = values(rendered, "location").next().ok_or(BypassReason::Redirect)?;
        let path = self.path_within_hosts(location).ok_or(BypassReason::Redirect)?;
        let path = path.split_once('#').map_or(path, |(path, _)| path);
        let target = NormalPath::parse(path).map_err(|_| BypassReason::Redirect)?;
        // Whatever the query: dropped parameters would lead back to this page.
        if target.path() == self.page.path() {
            return Err(BypassReason::Redirect);
        }
        Ok(())
    }

    /// Path and query of a redirect that stays on the tenant's hosts.
    fn path_within_hosts<'l>(&self, location: &'l str) -> Option<&'l str> {
        if location.starts_with('/') {
            return Some(location);
        }
        let rest = location.strip_prefix("https://").or_else(|| location.strip_prefix("http://"))?;
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let hosts = self.hosts.iter().map(String::as_str).chain([self.site]);
        let known = hosts.into_iter().any(|known| known.eq_ignore_ascii_case(host));
        match path {
            _ if !known => None,
            "" => Some("/"),
            path => Some(path),
        }
    }
}

fn contains(body: &[u8], marker: &[u8]) -> bool {
    marker.is_empty() || body.windows(marker.len()).any(|window| window == marker)
}

#[cfg(test)]
#[path = "publish_gate_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "publish_gate_table_tests.rs"]
mod table_tests;

//! The publish gate: which of an origin's responses may become a public page.
//!
//! A response that is refused here never replaces the published page.

use serde::Deserialize;

use crate::domain::artifact::{Artifact, Rendered};
use crate::domain::cache_control::{self, Syntax};
use crate::domain::headers::HeaderError;
use crate::domain::outcome::ErrorClass;
use crate::domain::page_key::{CanonicalPath, NormalPath};

/// The largest body by default. Base64 makes four thirds of it, and a Lambda function answers with
/// at most 6 MB.
pub const MAX_BODY_BYTES: u64 = 4 * 1024 * 1024;

/// The longest life of "not found", "gone" and "moved".
pub const SHORT_LIFE_SECONDS: u64 = 30;

/// The headers with which an origin restricts caching.
const CACHE_CONTROLS: [(&str, Syntax); 3] = [
    ("cache-control", Syntax::CacheControl),
    ("cdn-cache-control", Syntax::WithParameters),
    ("surrogate-control", Syntax::WithParameters),
];

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

#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    pub page: &'a CanonicalPath,
    pub rules: &'a GateRules,
    /// The tenant's host names: where a redirect may lead.
    pub hosts: &'a [String],
    pub max_bytes: u64,
    /// Size of the published body, if its status was 200.
    pub previous_bytes: Option<u64>,
}

/// A response that may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    pub artifact: Artifact,
    pub life: Life,
}

/// How long a response is fresh.
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

/// Why a response may not be published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Errors, 204, partial responses, temporary redirects, log-in walls.
    #[error("status {status} is not published")]
    Status { status: u16 },
    /// Status 200 without a body.
    #[error("body is empty")]
    Empty,
    #[error("body has {actual} bytes, declared were {declared}")]
    Truncated { declared: u64, actual: u64 },
    #[error("body has {bytes} bytes, allowed are {allowed}")]
    TooLarge { bytes: u64, allowed: u64 },
    /// It may be meant for one reader only.
    #[error("response sets a cookie")]
    SetCookie,
    /// `private` or `no-store`.
    #[error("response is marked {directive}")]
    NotShared { directive: &'static str },
    #[error("{header} cannot be parsed, so the response counts as private")]
    BadCacheControl { header: &'static str },
    /// It varies by something that is not part of the page's key.
    #[error("response varies by {header}")]
    Varies {
        /// `*`, `cookie` or `authorization`.
        header: &'static str,
    },
    /// The body is compressed, and not every reader can undo that.
    #[error("body has a content encoding")]
    Encoded,
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
    /// A redirect without a usable target, or out of the tenant's hosts.
    #[error("redirect leads nowhere or to another site")]
    BadRedirect,
    /// A redirect to the page itself: an endless loop for readers.
    #[error("redirect leads to its own page")]
    RedirectLoop,
}

impl GateError {
    /// How the failed attempt is counted.
    pub fn class(&self) -> ErrorClass {
        match self {
            GateError::Status { .. } => ErrorClass::OriginStatus,
            GateError::Truncated { .. } => ErrorClass::OriginUnreachable,
            GateError::Empty
            | GateError::TooLarge { .. }
            | GateError::SetCookie
            | GateError::NotShared { .. }
            | GateError::BadCacheControl { .. }
            | GateError::Varies { .. }
            | GateError::Encoded
            | GateError::Headers(_)
            | GateError::TooSmall { .. }
            | GateError::Shrunk { .. }
            | GateError::MarkerMissing
            | GateError::BadRedirect
            | GateError::RedirectLoop => ErrorClass::Gate,
        }
    }
}

impl Gate<'_> {
    /// Published are 200, 404 and 410, and the permanent redirects 301 and 308 within the tenant's
    /// hosts. A temporary redirect is not: it is how origins send one reader to a log-in page.
    pub fn check(&self, mut rendered: Rendered) -> Result<Passed, GateError> {
        let life = match rendered.status {
            200 => Life::Route,
            301 | 308 | 404 | 410 => Life::Short,
            status => return Err(GateError::Status { status }),
        };
        check_length(&rendered, self.max_bytes)?;
        check_shared(&rendered)?;
        match rendered.status {
            200 => self.check_body(&rendered.body)?,
            301 | 308 => self.check_redirect(&rendered)?,
            _ => {}
        }
        if !matches!(rendered.status, 301 | 308) {
            // Meaningless with another status, and its target was not checked.
            rendered.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("location"));
        }
        let artifact = Artifact::new(rendered)?;
        Ok(Passed { artifact, life })
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

    fn check_redirect(&self, rendered: &Rendered) -> Result<(), GateError> {
        let location = values(rendered, "location").next().ok_or(GateError::BadRedirect)?;
        let path = self.path_within_hosts(location).ok_or(GateError::BadRedirect)?;
        let path = path.split_once('#').map_or(path, |(path, _)| path);
        let target = NormalPath::parse(path).map_err(|_| GateError::BadRedirect)?;
        // Whatever the query: dropped parameters would lead back to this page.
        if target.path() == self.page.path() {
            return Err(GateError::RedirectLoop);
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
        let known = self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
        match path {
            _ if !known => None,
            "" => Some("/"),
            path => Some(path),
        }
    }
}

fn check_length(rendered: &Rendered, max_bytes: u64) -> Result<(), GateError> {
    let actual = rendered.body.len() as u64;
    if actual > max_bytes {
        return Err(GateError::TooLarge { bytes: actual, allowed: max_bytes });
    }
    match rendered.declared_bytes {
        Some(declared) if declared != actual => Err(GateError::Truncated { declared, actual }),
        Some(_) | None => Ok(()),
    }
}

fn check_shared(rendered: &Rendered) -> Result<(), GateError> {
    if values(rendered, "set-cookie").next().is_some() {
        return Err(GateError::SetCookie);
    }
    for (header, syntax) in CACHE_CONTROLS {
        for value in values(rendered, header) {
            check_cache_control(header, value, syntax)?;
        }
    }
    for header in ["*", "cookie", "authorization"] {
        if lists(rendered, "vary", header) {
            return Err(GateError::Varies { header });
        }
    }
    let identity = |value: &str| value.is_empty() || value.eq_ignore_ascii_case("identity");
    if !values(rendered, "content-encoding").all(|value| identity(value.trim())) {
        return Err(GateError::Encoded);
    }
    Ok(())
}

fn check_cache_control(header: &'static str, value: &str, syntax: Syntax) -> Result<(), GateError> {
    let directives = cache_control::directives(value, syntax).ok_or(GateError::BadCacheControl { header })?;
    for directive in ["private", "no-store"] {
        if directives.iter().any(|name| name.eq_ignore_ascii_case(directive)) {
            return Err(GateError::NotShared { directive });
        }
    }
    Ok(())
}

fn values<'r>(rendered: &'r Rendered, name: &'r str) -> impl Iterator<Item = &'r str> {
    let named = rendered.headers.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str())
}

/// Whether a comma-separated header names `word`, with or without an argument.
fn lists(rendered: &Rendered, name: &str, word: &str) -> bool {
    values(rendered, name).flat_map(|value| value.split(',')).any(|item| {
        let item = item.split_once('=').map_or(item, |(item, _)| item);
        item.trim().eq_ignore_ascii_case(word)
    })
}

fn contains(body: &[u8], marker: &[u8]) -> bool {
    marker.is_empty() || body.windows(marker.len()).any(|window| window == marker)
}

#[cfg(test)]
#[path = "publish_gate_tests.rs"]
mod tests;

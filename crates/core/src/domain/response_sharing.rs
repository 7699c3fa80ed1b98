//! What an origin's headers say about storing its answer: whether it may be shared, for how long,
//! and under which tags.
//!
//! | Header | Read for |
//! |---|---|
//! | `Everfresh-CDN-Cache-Control`, `CDN-Cache-Control` (RFC 9213), `Surrogate-Control` | everything; the first of these that is there replaces the next line |
//! | `Cache-Control`, `Expires` | sharing, lifetime, time stale |
//! | `Set-Cookie`, `Vary`, `Content-Encoding` | sharing |
//! | `Cache-Tag`, `Surrogate-Key`, `Cache-Groups` (RFC 9875) | tags |

use serde::Deserialize;

use crate::domain::artifact::Rendered;
use crate::domain::bypass::BypassReason;
use crate::domain::cache_control::{self, Directive, Syntax};
use crate::domain::page::Meta;
use crate::domain::tag::Tag;

/// What a route makes of the origin's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginRules {
    pub cookies: CookieRule,
    pub cache_control: CacheControlRule,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CookieRule {
    /// An answer that sets a cookie, or depends on one, is for one reader.
    #[default]
    Obey,
    /// The cookies mean nothing: they are dropped, and so is `Vary: Cookie`.
    Strip,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheControlRule {
    #[default]
    Obey,
    /// The route alone says how long its pages live, and that they are shared.
    Ignore,
}

/// What the origin says of an answer that may be shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// How long it is fresh, in seconds; none leaves it to the route.
    pub fresh_s: Option<u64>,
    /// How long it may be served stale after that; none leaves it to the route.
    pub stale_s: Option<u64>,
    /// How long it may be served stale while no newer version can be had; none if that is not said.
    pub stale_if_error_s: Option<u64>,
    /// It must not be served beyond that, even if the origin does not answer.
    pub must_revalidate: bool,
    /// Each once; at most [`MAX_ORIGIN_TAGS`].
    pub tags: Vec<Tag>,
}

impl Sharing {
    /// What a 304 says, and what it leaves unsaid as the `published` version has it.
    pub fn or_known(self, answer: &Rendered, published: &Meta) -> Self {
        let says = |names: &[&str]| names.iter().any(|name| values(answer, name).next().is_some());
        let tags = if says(&TAG_HEADERS) { self.tags } else { published.tags.clone() };
        if says(&TARGETED) || says(&["cache-control", "expires"]) {
            return Self { tags, ..self };
        }
        Self {
            fresh_s: published.validators.as_ref().and_then(|known| known.fresh_s),
            stale_s: published.max_stale_seconds,
            stale_if_error_s: published.stale_if_error_seconds,
            must_revalidate: published.must_revalidate,
            tags,
        }
    }
}

const TAG_HEADERS: [&str; 3] = ["cache-tag", "surrogate-key", "cache-groups"];

/// Tags that are read from one answer. Others are ignored.
pub const MAX_ORIGIN_TAGS: usize = 49;

/// The longest lifetime that is believed: a year.
const LONGEST_S: u64 = 31_536_000;

/// In the order in which they are obeyed.
const TARGETED: [&str; 3] = ["everfresh-cdn-cache-control", "cdn-cache-control", "surrogate-control"];

/// `Vary` on these separates no readers: bodies are stored decoded, and a site has one scheme.
const HARMLESS_VARY: [&str; 2] = ["accept-encoding", "x-forwarded-proto"];

/// Whether the answer may be stored for all readers. `keyed` are the request headers of which all
/// requests for a stored page have the same value or none, in lower case.
pub fn sharing(rendered: &Rendered, rules: OriginRules, keyed: impl Fn(&str) -> bool) -> Result<Sharing, BypassReason> {
    let strip = rules.cookies == CookieRule::Strip;
    if !strip && values(rendered, "set-cookie").next().is_some() {
        return Err(BypassReason::SetCookie);
    }
    let mut sharing = match rules.cache_control {
        CacheControlRule::Obey => by_cache_control(rendered)?,
        CacheControlRule::Ignore => Sharing::default(),
    };
    for name in list(rendered, "vary") {
        let name = name.to_ascii_lowercase();
        let harmless = HARMLESS_VARY.contains(&name.as_str()) || keyed(&name) || (strip && name == "cookie");
        if !harmless {
            return Err(BypassReason::Vary);
        }
    }
    let identity = |value: &str| value.is_empty() || value.eq_ignore_ascii_case("identity");
    if !list(rendered, "content-encoding").all(identity) {
        return Err(BypassReason::Encoded);
    }
    sharing.tags = tags(rendered);
    Ok(sharing)
}

fn by_cache_control(rendered: &Rendered) -> Result<Sharing, BypassReason> {
    for header in TARGETED {
        let lines: Vec<&str> = values(rendered, header).collect();
        if lines.iter().all(|line| line.trim().is_empty()) {
            continue;
        }
        match directives(&lines, Syntax::WithParameters) {
            Some(directives) => return by_directives(&directives, true),
            // To be ignored (RFC 9213, 2.2), unless it seems to forbid storing.
            None if lines.iter().any(|line| mentions_restriction(line)) => return Err(BypassReason::Private),
            None => {}
        }
    }
    let lines: Vec<&str> = values(rendered, "cache-control").collect();
    let directives = directives(&lines, Syntax::CacheControl).ok_or(BypassReason::Private)?;
    let mut sharing = by_directives(&directives, false)?;
    let has_age = directives.iter().any(|(name, _)| is(name, "max-age") || is(name, "s-maxage"));
    if !has_age && let Some(seconds) = expires_s(rendered) {
        sharing.fresh_s = Some(seconds).filter(|seconds| *seconds > 0);
    }
    Ok(sharing)
}

/// `targeted`: the field is addressed to caches like this one, and not to browsers as well.
fn by_directives(directives: &[Directive<'_>], targeted: bool) -> Result<Sharing, BypassReason> {
    let has = |wanted: &str| directives.iter().any(|(name, _)| is(name, wanted));
    if has("private") {
        return Err(BypassReason::Private);
    }
    if has("no-store") {
        return Err(BypassReason::NoStore);
    }
    let shared_s = if targeted {
        seconds(directives, "s-maxage").or_else(|| seconds(directives, "max-age"))
    } else {
        seconds(directives, "s-maxage")
    };
    // With field names as argument it is about those fields, and none of them is stored.
    let no_cache = directives.iter().any(|(name, argument)| is(name, "no-cache") && argument.is_none());
    if (no_cache && (targeted || shared_s.is_none())) || shared_s == Some(0) {
        return Err(BypassReason::NoCache);
    }
    // `max-age=0` and `must-revalidate` alone are for browsers: the route decides.
    let fresh_s = shared_s.or_else(|| seconds(directives, "max-age").filter(|seconds| *seconds > 0));
    let revalidate = has("must-revalidate") || has("proxy-revalidate");
    let stale = |directive| seconds(directives, directive).map(|seconds| seconds.min(LONGEST_S));
    let stale_if_error_s = stale("stale-if-error");
    Ok(Sharing {
        fresh_s: fresh_s.map(|seconds| seconds.min(LONGEST_S)),
        stale_s: stale("stale-while-revalidate").or(stale_if_error_s),
        // A page that must be revalidated is never served stale, errors or not.
        stale_if_error_s: stale_if_error_s.filter(|_| !revalidate),
        must_revalidate: (revalidate || shared_s.is_some()) && fresh_s.is_some(),
        tags: Vec::new(),
    })
}

fn directives<'v>(lines: &[&'v str], syntax: Syntax) -> Option<Vec<Directive<'v>>> {
    let mut all = Vec::new();
    for line in lines {
        all.extend(cache_control::directives(line, syntax)?);
    }
    Some(all)
}

/// The smallest value of a directive. One that is no number of seconds counts as zero, as RFC 9111
/// recommends for freshness that cannot be read.
fn seconds(directives: &[Directive<'_>], wanted: &str) -> Option<u64> {
    let named = directives.iter().filter(|(name, _)| is(name, wanted));
    named.map(|(_, argument)| argument.and_then(delta_seconds).unwrap_or(0)).min()
}

/// `Surrogate-Control` may add a time stale: `3600+600`.
fn delta_seconds(text: &str) -> Option<u64> {
    let text = text.split_once('+').map_or(text, |(fresh, _)| fresh);
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Seconds from `Date` to `Expires`; zero if it cannot be read, which is how `Expires: 0` is meant.
fn expires_s(rendered: &Rendered) -> Option<u64> {
    let expires = values(rendered, "expires").next()?;
    let date = values(rendered, "date").next().and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    let (Ok(expires), Some(date)) = (httpdate::parse_http_date(expires.trim()), date) else { return Some(0) };
    Some(expires.duration_since(date).map_or(0, |life| life.as_secs().min(LONGEST_S)))
}

fn mentions_restriction(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["private", "no-store", "no-cache"].iter().any(|word| line.contains(word))
}

/// The answer's own tags. What is no tag here is left out: other caches allow more characters.
fn tags(rendered: &Rendered) -> Vec<Tag> {
    let by_space = values(rendered, "surrogate-key").flat_map(str::split_whitespace);
    // Strings of a structured field; a parameter after one means nothing here.
    let groups = list(rendered, "cache-groups").filter_map(|item| item.strip_prefix('"')?.split('"').next());
    let mut tags = Vec::new();
    for tag in list(rendered, "cache-tag").chain(by_space).chain(groups).filter_map(|text| Tag::parse(text).ok()) {
        if tags.len() < MAX_ORIGIN_TAGS && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags
}

fn is(name: &str, wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted)
}

pub(crate) fn values<'r>(rendered: &'r Rendered, name: &'r str) -> impl Iterator<Item = &'r str> {
    let named = rendered.headers.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str())
}

/// The elements of a comma-separated header.
fn list<'r>(rendered: &'r Rendered, name: &'r str) -> impl Iterator<Item = &'r str> {
    values(rendered, name).flat_map(|value| value.split(',')).map(str::trim).filter(|item| !item.is_empty())
}

#[cfg(test)]
#[path = "response_sharing_tests.rs"]
mod tests;

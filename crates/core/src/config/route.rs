//! Routes: the settings of all paths that match a pattern.

use std::cmp::Ordering;

use serde::Deserialize;

use super::{ConfigError, Duration, Pattern, RESERVED, TagTemplate, is_reserved, wrong};
use crate::domain::freshness::Policy;
use crate::domain::path::MAX_PARAMETERS;
use crate::domain::publish_gate::GateRules;
use crate::domain::response_sharing::{CacheControlRule, CookieRule, OriginRules};

/// The most tags a page may carry: CloudFront reads fifty, and the page's own is one of them.
pub const MAX_TAGS: usize = 49;

/// The most versions a route may keep.
pub const MAX_HISTORY: u32 = 1000;

/// The shortest `history_age` and `expire_after`.
const LEAST_KEPT_SECONDS: u64 = 3_600;

/// The most headers of `pass_when`.
const MAX_PASS_WHEN: usize = 32;

/// A route whose paths are pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub path: Pattern,
    /// How long a page is fresh, unless the origin says otherwise.
    pub revalidate: Duration,
    /// The longest life that an origin may give a page; a year if not set.
    pub max_revalidate: Option<Duration>,
    /// How long it may be served stale after that; for ever if not set.
    pub max_stale: Option<Duration>,
    /// Query parameters that are part of the page's key. All others are dropped.
    pub query: Vec<String>,
    pub tags: Vec<TagTemplate>,
    /// Versions that are kept for rollback; with 0 only the published one.
    pub history: u32,
    /// How long a kept version stays; without limit if not set. The published one always does.
    pub history_age: Option<Duration>,
    /// How long after its life and its time stale a page that is not read any more is kept; for ever
    /// if not set.
    pub expire_after: Option<Duration>,
    /// Requirements on a body to be published.
    pub gate: GateRules,
    /// How the origin's headers are read.
    pub origin_rules: OriginRules,
    /// Request headers, in lower case, with which a request goes to the origin.
    pub pass_when: Vec<String>,
}

impl Route {
    pub fn policy(&self, deploy: u64, epsilon_ms: u64) -> Policy {
        let max_stale_seconds = self.max_stale.map(Duration::seconds);
        Policy { deploy, max_stale_seconds, epsilon_ms }
    }
}

/// How requests are proxied, of which nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proxied {
    /// With every method, body, cookie and query.
    Pass,
    /// Without cookies: the same file for every reader.
    Asset,
}

/// A pattern and what is behind it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    Page(Box<Route>),
    Proxied { path: Pattern, how: Proxied },
}

impl Entry {
    pub(super) fn path(&self) -> &Pattern {
        match self {
            Entry::Page(route) => &route.path,
            Entry::Proxied { path, .. } => path,
        }
    }

    /// Orders entries so that the first one that matches is the most specific one.
    pub(super) fn cmp_specificity(&self, other: &Self) -> Ordering {
        self.path().cmp_specificity(other.path())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Page,
    Pass,
    Asset,
}

/// A route as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteFile {
    path: Pattern,
    #[serde(default)]
    mode: Mode,
    revalidate: Option<Duration>,
    max_revalidate: Option<Duration>,
    max_stale: Option<Duration>,
    query: Option<Vec<String>>,
    tags: Option<Vec<TagTemplate>>,
    history: Option<u32>,
    history_age: Option<Duration>,
    expire_after: Option<Duration>,
    gate: Option<GateRules>,
    cookies: Option<CookieRule>,
    cache_control: Option<CacheControlRule>,
    pass_when: Option<Vec<String>>,
}

/// The routes of the tenant at `at` in the file, each checked.
pub(super) fn parse_all(at: &str, files: Vec<RouteFile>) -> Result<Vec<Entry>, ConfigError> {
    let mut entries: Vec<Entry> = Vec::with_capacity(files.len());
    for (index, file) in files.into_iter().enumerate() {
        let at_route = format!("{at}.route[{index}]");
        let entry = entry(&at_route, file)?;
        let twin = entries.iter().position(|other| other.path().same_paths(entry.path()));
        if let Some(twin) = twin {
            let problem = format!("matches the same paths as {at}.route[{twin}]");
            return Err(wrong(format!("{at_route}.path"), problem));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry(at: &str, file: RouteFile) -> Result<Entry, ConfigError> {
    if is_reserved(&file.path.to_string()) {
        return Err(wrong(format!("{at}.path"), format!("{RESERVED} belongs to Everfresh itself: no page is there")));
    }
    let how = match file.mode {
        Mode::Page => return page(at, file).map(|route| Entry::Page(Box::new(route))),
        Mode::Pass => Proxied::Pass,
        Mode::Asset => Proxied::Asset,
    };
    let only_pages = [
        ("revalidate", file.revalidate.is_some()),
        ("max_revalidate", file.max_revalidate.is_some()),
        ("max_stale", file.max_stale.is_some()),
        ("query", file.query.is_some()),
        ("tags", file.tags.is_some()),
        ("history", file.history.is_some()),
        ("history_age", file.history_age.is_some()),
        ("expire_after", file.expire_after.is_some()),
        ("gate", file.gate.is_some()),
        ("cookies", file.cookies.is_some()),
        ("cache_control", file.cache_control.is_some()),
        ("pass_when", file.pass_when.is_some()),
    ];
    match only_pages.into_iter().find(|(_, set)| *set) {
        Some((field, _)) => Err(wrong(format!("{at}.{field}"), "is for pages: nothing of this route is stored")),
        None => Ok(Entry::Proxied { path: file.path, how }),
    }
}

fn page(at: &str, file: RouteFile) -> Result<Route, ConfigError> {
    let Some(revalidate) = file.revalidate else {
        return Err(wrong(at, "missing field `revalidate`: how long a page is fresh, like \"60s\""));
    };
    let route = Route {
        path: file.path,
        revalidate,
        max_revalidate: file.max_revalidate,
        max_stale: file.max_stale,
        query: file.query.unwrap_or_default(),
        tags: file.tags.unwrap_or_default(),
        history: file.history.unwrap_or_default(),
        history_age: file.history_age,
        expire_after: file.expire_after,
        gate: file.gate.unwrap_or_default(),
        origin_rules: OriginRules {
            cookies: file.cookies.unwrap_or_default(),
            cache_control: file.cache_control.unwrap_or_default(),
        },
        pass_when: file.pass_when.unwrap_or_default(),
    };
    check(at, &route)?;
    Ok(route)
}

fn check(at: &str, route: &Route) -> Result<(), ConfigError> {
    if route.revalidate.seconds() == 0 {
        let problem = "must be at least \"1s\": a page that is never fresh is enqueued with every read";
        return Err(wrong(format!("{at}.revalidate"), problem));
    }
    if route.max_revalidate.is_some_and(|most| most < route.revalidate) {
        let problem = "must be at least revalidate: it bounds what the origin says beyond it";
        return Err(wrong(format!("{at}.max_revalidate"), problem));
    }
    if route.query.len() > MAX_PARAMETERS {
        return Err(wrong(format!("{at}.query"), format!("at most {MAX_PARAMETERS} parameters")));
    }
    for (index, name) in route.query.iter().enumerate() {
        let at = format!("{at}.query[{index}]");
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(wrong(at, "must be the name of a query parameter"));
        }
        if route.query[..index].contains(name) {
            return Err(wrong(at, format!("{name:?} occurs twice")));
        }
    }
    if route.tags.len() > MAX_TAGS {
        return Err(wrong(format!("{at}.tags"), format!("at most {MAX_TAGS} tags")));
    }
    for (index, template) in route.tags.iter().enumerate() {
        if let Some(name) = template.names().find(|name| !route.path.has(name)) {
            let problem = format!("{{{name}}} does not occur in the route's path");
            return Err(wrong(format!("{at}.tags[{index}]"), problem));
        }
    }
    if route.history > MAX_HISTORY {
        return Err(wrong(format!("{at}.history"), format!("must be 0 to {MAX_HISTORY}")));
    }
    for (field, age) in [("history_age", route.history_age), ("expire_after", route.expire_after)] {
        if age.is_some_and(|age| age.seconds() < LEAST_KEPT_SECONDS) {
            let problem = "must be at least \"1h\": younger ones may belong to a render in flight";
            return Err(wrong(format!("{at}.{field}"), problem));
        }
    }
    if route.gate.max_shrink.is_some_and(|part| !(0.0..=1.0).contains(&part)) {
        let problem = "must be 0.0 to 1.0: the part of the page that may vanish";
        return Err(wrong(format!("{at}.gate.max_shrink"), problem));
    }
    if route.gate.must_contain.as_deref() == Some("") {
        return Err(wrong(format!("{at}.gate.must_contain"), "must not be empty"));
    }
    if route.pass_when.len() > MAX_PASS_WHEN {
        return Err(wrong(format!("{at}.pass_when"), format!("at most {MAX_PASS_WHEN} headers")));
    }
    for (index, name) in route.pass_when.iter().enumerate() {
        let in_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || !name.bytes().all(in_name) {
            let problem = "must be the name of a request header in lower case, like \"rsc\"";
            return Err(wrong(format!("{at}.pass_when[{index}]"), problem));
        }
        // With these, every request of a browser would pass.
        if matches!(name.as_str(), "accept" | "accept-encoding" | "accept-language" | "cookie" | "host" | "user-agent")
        {
            let problem = format!("browsers send {name} with every request: make it a route with mode = \"pass\"");
            return Err(wrong(format!("{at}.pass_when[{index}]"), problem));
        }
    }
    Ok(())
}

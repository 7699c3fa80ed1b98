//! Routes: the settings of all pages that match a pattern.

use serde::Deserialize;

use super::{ConfigError, Duration, Pattern, RESERVED, TagTemplate, is_reserved, wrong};
use crate::domain::freshness::Policy;
use crate::domain::path::MAX_PARAMETERS;
use crate::domain::publish_gate::GateRules;

/// The most tags a page may carry: CloudFront reads fifty, and the page's own is one of them.
pub const MAX_TAGS: usize = 49;

/// The most versions a route may keep.
pub const MAX_HISTORY: u32 = 1000;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    pub path: Pattern,
    /// How long a page is fresh.
    pub revalidate: Duration,
    /// How long it may be served stale after that; for ever if not set.
    #[serde(default)]
    pub max_stale: Option<Duration>,
    /// Query parameters that are part of the page's key. All others are dropped.
    #[serde(default)]
    pub query: Vec<String>,
    #[serde(default)]
    pub tags: Vec<TagTemplate>,
    /// Versions that are kept for rollback; with 0 only the published one.
    #[serde(default)]
    pub history: u32,
    /// Requirements on a body to be published.
    #[serde(default)]
    pub gate: GateRules,
}

impl Route {
    pub fn policy(&self, deploy: u64, epsilon_ms: u64) -> Policy {
        let max_stale_seconds = self.max_stale.map(Duration::seconds);
        Policy { deploy, max_stale_seconds, epsilon_ms }
    }
}

/// Refuses routes with values that do not fit together. `at` is their tenant's place in the
/// file.
pub(super) fn check_all(at: &str, routes: &[Route]) -> Result<(), ConfigError> {
    for (index, route) in routes.iter().enumerate() {
        check(&format!("{at}.route[{index}]"), route)?;
        let twin = routes[..index].iter().position(|other| other.path.same_paths(&route.path));
        if let Some(twin) = twin {
            let problem = format!("matches the same paths as {at}.route[{twin}]");
            return Err(wrong(format!("{at}.route[{index}].path"), problem));
        }
    }
    Ok(())
}

fn check(at: &str, route: &Route) -> Result<(), ConfigError> {
    if is_reserved(&route.path.to_string()) {
        return Err(wrong(format!("{at}.path"), format!("{RESERVED} belongs to Everfresh itself: no page is there")));
    }
    if route.revalidate.seconds() == 0 {
        let problem = "must be at least \"1s\": a page that is never fresh is enqueued with every read";
        return Err(wrong(format!("{at}.revalidate"), problem));
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
    if route.gate.max_shrink.is_some_and(|part| !(0.0..=1.0).contains(&part)) {
        let problem = "must be 0.0 to 1.0: the part of the page that may vanish";
        return Err(wrong(format!("{at}.gate.max_shrink"), problem));
    }
    if route.gate.must_contain.as_deref() == Some("") {
        return Err(wrong(format!("{at}.gate.must_contain"), "must not be empty"));
    }
    Ok(())
}

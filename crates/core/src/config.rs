//! `everfresh.toml`: which tenants there are, where their pages come from, and how long they live.
//!
//! ```toml
//! [tenant.acme]
//! hosts  = ["www.acme.example"]
//! render = { http = "https://origin.acme.example" }   # or { lambda = "name" }, { templates = "site/" }
//! placeholder = "<!doctype html><title>One moment</title>This page is being made."
//!
//! [[tenant.acme.route]]
//! path       = "/products/{id}"
//! revalidate = "60s"
//! max_stale  = "1d"
//! query      = ["color", "page"]
//! tags       = ["products", "product-{id}"]
//! history    = 10
//! gate       = { min_bytes = 512, max_shrink = 0.5, must_contain = "</html>" }
//! ```
//!
//! `render = { http = "https://origin.internal", private_network = true }` is an origin in a
//! private network (see [`origin_address`](crate::domain::origin_address) for what that is);
//! `keep_alive = false` gives every request to the origin a connection of its own.
//!
//! Only `hosts`, `render`, `path` and `revalidate` are required. A field that does not exist or has
//! a wrong value is refused with its name, its place, and what is allowed there. A path that
//! matches no route is no page, nor is anything below `/_everfresh`.
//!
//! # Which route
//!
//! Patterns are compared segment by segment from the left: a literal goes before `{name}`, which
//! goes before `{*rest}`. The order in the file does not matter, and two patterns that match the
//! same paths are refused.

mod accept_message;
mod duration;
mod http_origin;
mod jitter;
mod ladder;
mod load;
mod pattern;
mod render;
mod route;
mod tag_template;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use self::accept_message::{AcceptError, Accepted};
pub use self::duration::{Duration, DurationError};
pub use self::http_origin::HttpOrigin;
pub use self::jitter::jittered;
pub use self::ladder::{Ladder, LadderError, Rung};
pub use self::load::LoadError;
pub use self::pattern::{Params, Pattern, PatternError};
pub use self::render::{Render, RenderError};
pub use self::route::{MAX_HISTORY, MAX_TAGS, Route};
pub use self::tag_template::{TagTemplate, TemplateError};
use crate::domain::outcome::RejectReason;
use crate::domain::page_key::{KeyLayout, NormalPath, PageKey, PathError, Tenant, TenantError};
use crate::domain::tag::{Tag, TagError};

/// Reserved for Everfresh itself on every host: there are no pages below it.
pub const RESERVED: &str = "/_everfresh";

pub fn is_reserved(path: &str) -> bool {
    path.strip_prefix(RESERVED).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    tenants: BTreeMap<Tenant, TenantConfig>,
    hosts: BTreeMap<String, Tenant>,
}

/// One tenant: its hosts, its renderer and its routes.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantConfig {
    pub tenant: Tenant,
    /// Host names it answers to, in lower case.
    pub hosts: Vec<String>,
    /// Where its pages come from.
    pub render: Render,
    /// HTML for readers while the first render of a page takes longer than the response deadline.
    pub placeholder: Option<String>,
    /// Most specific first.
    routes: Vec<Route>,
}

/// A path's page, route and tags.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved<'c> {
    pub page: PageKey,
    pub route: &'c Route,
    /// The tags it carries, each once, in the order of the route.
    pub tags: Vec<Tag>,
}

/// Why a path is no page of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// It has no canonical form.
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("no route matches the path")]
    NoRoute,
    /// A tag would become too long.
    #[error(transparent)]
    Tag(#[from] TagError),
}

impl ResolveError {
    /// Why a message with such a path is rejected.
    pub fn reject_reason(&self) -> RejectReason {
        match self {
            ResolveError::Path(_) | ResolveError::Tag(_) => RejectReason::BadPath,
            ResolveError::NoRoute => RejectReason::NoRoute,
        }
    }
}

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not TOML, a field that does not exist, or a value that is none. Shows the line.
    #[error("{0}")]
    File(#[from] toml::de::Error),
    #[error("tenant.{name:?}: {source}")]
    Tenant { name: String, source: TenantError },
    /// A value that does not fit the others.
    #[error("{at}: {problem}")]
    At {
        /// Where, like `tenant.acme.route[2].tags`.
        at: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: BTreeMap<String, TenantFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantFile {
    hosts: Vec<String>,
    render: Render,
    #[serde(default)]
    placeholder: Option<String>,
    #[serde(default)]
    route: Vec<Route>,
}

impl Config {
    /// Reads and checks the file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text)?;
        let mut config = Config { tenants: BTreeMap::new(), hosts: BTreeMap::new() };
        for (name, tenant_file) in file.tenant {
            let tenant = Tenant::parse(&name).map_err(|source| ConfigError::Tenant { name: name.clone(), source })?;
            config.add(tenant, tenant_file)?;
        }
        if config.tenants.is_empty() {
            return Err(wrong("tenant", "at least one tenant is needed, as in [tenant.acme]"));
        }
        Ok(config)
    }

    fn add(&mut self, tenant: Tenant, file: TenantFile) -> Result<(), ConfigError> {
        let at = format!("tenant.{tenant}");
        if file.hosts.is_empty() {
            return Err(wrong(format!("{at}.hosts"), "at least one host name is needed"));
        }
        let mut hosts = Vec::new();
        for (index, host) in file.hosts.iter().enumerate() {
            let at = format!("{at}.hosts[{index}]");
            let host = normal_host(host).ok_or_else(|| {
                wrong(&at, "must be a host name like \"www.acme.example\", without scheme, port and path")
            })?;
            if let Some(other) = self.hosts.insert(host.clone(), tenant.clone()) {
                return Err(wrong(at, format!("host {host} belongs to tenant {other} already")));
            }
            hosts.push(host);
        }
        let mut routes = file.route;
        route::check_all(&at, &routes)?;
        routes.sort_by(|left, right| left.path.cmp_specificity(&right.path));
        let (render, placeholder) = (file.render, file.placeholder);
        let config = TenantConfig { tenant: tenant.clone(), hosts, render, placeholder, routes };
        self.tenants.insert(tenant, config);
        Ok(())
    }

    /// Refuses a file that does not fit the table: where keys name no tenant, two tenants would
    /// share their pages (I7).
    pub fn check_layout(&self, layout: KeyLayout) -> Result<(), ConfigError> {
        if layout.single_tenant && self.tenants.len() > 1 {
            return Err(wrong("tenant", "the table is set up for a single tenant, and the file has several"));
        }
        Ok(())
    }

    /// Refuses an origin at an address to which no request may be sent. `loopback` allows the
    /// machine itself, for development.
    pub fn check_origins(&self, loopback: bool) -> Result<(), ConfigError> {
        for tenant in self.tenants() {
            if let Render::Http(origin) = &tenant.render {
                let checked = origin.check_address(loopback);
                checked
                    .map_err(|refused| wrong(format!("tenant.{}.render.http", tenant.tenant), refused.to_string()))?;
            }
        }
        Ok(())
    }

    /// All tenants, by name.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantConfig> {
        self.tenants.values()
    }

    pub fn tenant(&self, tenant: &Tenant) -> Option<&TenantConfig> {
        self.tenants.get(tenant)
    }

    /// The tenant that answers to a Host header. Case, a final dot and the port do not matter;
    /// nothing else is guessed.
    pub fn tenant_of_host(&self, host: &str) -> Option<&TenantConfig> {
        self.tenant(self.hosts.get(&host_name(host)?)?)
    }
}

impl TenantConfig {
    /// Its routes, most specific first.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The page at `raw`, a path with its query. Serving function and worker both use it,
    /// so with the same file they mean the same page.
    pub fn resolve(&self, raw: &str) -> Result<Resolved<'_>, ResolveError> {
        let normal = NormalPath::parse(raw)?;
        if is_reserved(normal.path()) {
            return Err(ResolveError::NoRoute);
        }
        for route in &self.routes {
            let Some(params) = route.path.matches(normal.path()) else {
                continue;
            };
            let page = PageKey::new(self.tenant.clone(), normal.keep(&route.query)?);
            let mut tags = Vec::with_capacity(route.tags.len());
            for template in &route.tags {
                let tag = template.fill(&params)?;
                if !tags.contains(&tag) {
                    tags.push(tag);
                }
            }
            return Ok(Resolved { page, route, tags });
        }
        Err(ResolveError::NoRoute)
    }
}

/// The name in a Host header, by which a tenant is found: in lower case, without port and final
/// dot. None if it is no host name.
pub fn host_name(host: &str) -> Option<String> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    normal_host(name)
}

/// A host name in lower case without its final dot; none if it is no host name.
fn normal_host(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        let inside = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && inside && !label.starts_with('-') && !label.ends_with('-')
    };
    let valid = host.len() <= 253 && host.split('.').all(label);
    valid.then(|| host.to_ascii_lowercase())
}

fn wrong(at: impl Into<String>, problem: impl Into<String>) -> ConfigError {
    ConfigError::At { at: at.into(), problem: problem.into() }
}

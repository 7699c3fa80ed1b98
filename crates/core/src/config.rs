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
//! `keep_alive = false` gives every request to the origin a connection of its own, and
//! `host = "public"` names the site in its `Host` header. `concurrency = 20` limits the requests
//! that one process sends at a time.
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
mod added_headers;
mod destination;
mod duration;
mod http_origin;
mod jitter;
mod ladder;
mod load;
mod pattern;
mod preset;
mod render;
mod route;
mod secrets;
mod tag_template;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use self::accept_message::{AcceptError, Accepted};
pub use self::added_headers::{AddedHeaders, HeaderProblem, Reference, Secret};
pub use self::destination::{Destination, Fallback};
pub use self::duration::{Duration, DurationError};
use self::http_origin::is_this_machine;
pub use self::http_origin::{HttpOrigin, SentHost};
pub use self::jitter::jittered;
pub use self::ladder::{Ladder, LadderError, Rung};
pub use self::load::LoadError;
pub use self::pattern::{Params, Pattern, PatternError};
pub use self::preset::Preset;
pub use self::render::{Render, RenderError};
use self::route::{Entry, RouteFile};
pub use self::route::{MAX_HISTORY, MAX_TAGS, Proxied, Route};
pub use self::secrets::{SecretError, Sends};
pub use self::tag_template::{TagTemplate, TemplateError};
use crate::domain::outcome::RejectReason;
use crate::domain::page_key::{KeyLayout, PageKey, PathError, Tenant, TenantError};
use crate::domain::tag::{Tag, TagError};

/// Reserved for Everfresh itself on every host: there are no pages below it.
pub const RESERVED: &str = "/_everfresh";

/// A takedown of more pages at once is rather a firewall in front of the origin than an editor.
pub const DEFAULT_WITHDRAWALS: u32 = 100;

const NEEDS_ORIGIN: &str = "requests can only be passed to an HTTP origin: render = { http = … }";

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
    /// The host that its pages are rendered for: the first one, with a port in `everfresh dev`.
    pub site: String,
    /// Where its pages come from.
    pub render: Render,
    /// Sent with every request to the origin.
    pub origin_headers: AddedHeaders,
    /// Sent with renders only.
    pub render_headers: AddedHeaders,
    /// HTML for readers while the first render of a page takes longer than the response deadline.
    pub placeholder: Option<String>,
    /// What is behind a path that matches no route.
    pub fallback: Fallback,
    /// Paths with the extension of a static file are assets, unless a route names them.
    pub assets: bool,
    /// Its framework's routes are known.
    pub presets: Vec<Preset>,
    /// How many published pages its origin may withdraw within ten minutes.
    pub withdrawals: u32,
    /// Most specific first.
    entries: Vec<Entry>,
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
    origin_headers: AddedHeaders,
    #[serde(default)]
    render_headers: AddedHeaders,
    #[serde(default)]
    placeholder: Option<String>,
    fallback: Option<Fallback>,
    assets: Option<bool>,
    #[serde(default)]
    presets: Vec<Preset>,
    withdrawals: Option<u32>,
    #[serde(default)]
    route: Vec<RouteFile>,
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
        let has_origin = matches!(file.render, Render::Http(_));
        let mut entries = route::parse_all(&at, file.route)?;
        let proxied = entries.iter().position(|entry| matches!(entry, Entry::Proxied { .. }));
        if let Some(index) = proxied.filter(|_| !has_origin) {
            return Err(wrong(format!("{at}.route[{index}].mode"), NEEDS_ORIGIN));
        }
        if file.fallback == Some(Fallback::Pass) && !has_origin {
            return Err(wrong(format!("{at}.fallback"), NEEDS_ORIGIN));
        }
        for (field, set) in [("presets", !file.presets.is_empty()), ("assets", file.assets == Some(true))] {
            if set && !has_origin {
                return Err(wrong(format!("{at}.{field}"), NEEDS_ORIGIN));
            }
        }
        let has_templates = matches!(file.render, Render::Templates(_));
        let added = [("origin_headers", &file.origin_headers), ("render_headers", &file.render_headers)];
        if let Some((field, _)) = added.into_iter().find(|(_, headers)| has_templates && !headers.is_empty()) {
            return Err(wrong(format!("{at}.{field}"), "templates receive no headers"));
        }
        if file.withdrawals == Some(0) {
            let problem = "must be at least 1: with 0 a page that its origin takes down would stay for ever";
            return Err(wrong(format!("{at}.withdrawals"), problem));
        }
        for preset in &file.presets {
            let added = preset.entries().map_err(|error| wrong(format!("{at}.presets"), error.to_string()))?;
            // A route of the tenant's own replaces the preset's.
            let new = added.into_iter().filter(|entry| !entries.iter().any(|own| own.path().same_paths(entry.path())));
            let new: Vec<Entry> = new.collect();
            entries.extend(new);
        }
        entries.sort_by(Entry::cmp_specificity);
        let config = TenantConfig {
            tenant: tenant.clone(),
            site: hosts.first().cloned().unwrap_or_default(),
            hosts,
            render: file.render,
            origin_headers: file.origin_headers,
            render_headers: file.render_headers,
            placeholder: file.placeholder,
            fallback: file.fallback.unwrap_or(if has_origin { Fallback::Pass } else { Fallback::NotFound }),
            assets: file.assets.unwrap_or(has_origin),
            presets: file.presets,
            withdrawals: file.withdrawals.unwrap_or(DEFAULT_WITHDRAWALS),
            entries,
        };
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

    /// Names the port of the sites whose host is this machine itself, as `everfresh dev` serves
    /// them: what an origin builds from its host would else lead to another server.
    #[must_use]
    pub fn served_at(mut self, port: u16) -> Self {
        for tenant in self.tenants.values_mut().filter(|tenant| is_this_machine(&tenant.site)) {
            tenant.site = format!("{}:{port}", tenant.site);
        }
        self
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
    /// The routes of its pages, most specific first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Page(route) => Some(route.as_ref()),
            Entry::Proxied { .. } => None,
        })
    }

    /// The patterns whose requests are proxied, most specific first.
    pub fn proxied(&self) -> impl Iterator<Item = (&Pattern, Proxied)> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Page(_) => None,
            Entry::Proxied { path, how } => Some((path, *how)),
        })
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

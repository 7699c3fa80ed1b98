//! The pages of a simulation.

use std::collections::BTreeMap;

use everfresh_core::config::Config;
use everfresh_core::domain::page_key::{KeyLayout, PageKey};

/// Two tenants with the same paths; routes with and without history; pages that become stale within
/// a run, and one route whose pages do not, so that no request follows its last change; one route
/// whose pages are removed when they are not regenerated any more.
pub const CONFIG: &str = r#"
[tenant.acme]
hosts  = ["www.acme.example"]
render = { templates = "site/" }
withdrawals = 1

[[tenant.acme.route]]
path       = "/p/{id}"
revalidate = "60s"
max_stale  = "1h"
tags       = ["all", "p-{id}"]
gate       = { min_bytes = 10, must_contain = "</html>" }

[[tenant.acme.route]]
path       = "/kept/{id}"
revalidate = "90s"
tags       = ["all"]
history    = 5
gate       = { must_contain = "</html>" }

[tenant.globex]
hosts  = ["globex.example"]
render = { templates = "site/" }

[[tenant.globex.route]]
path       = "/p/{id}"
revalidate = "60s"
expire_after = "1h"
gate       = { must_contain = "</html>" }

[[tenant.globex.route]]
path       = "/slow/{id}"
revalidate = "1d"
gate       = { must_contain = "</html>" }
"#;

/// Pages of this route are removed when they were not regenerated for long enough.
const EXPIRING: &str = "globex/p/";

/// Pages of both tenants and of each route.
const PATHS: [(&str, &str); 12] = [
    ("www.acme.example", "/p/1"),
    ("www.acme.example", "/p/2"),
    ("www.acme.example", "/p/3"),
    ("www.acme.example", "/kept/1"),
    ("www.acme.example", "/kept/2"),
    ("www.acme.example", "/kept/3"),
    ("globex.example", "/p/1"),
    ("globex.example", "/p/2"),
    ("globex.example", "/p/3"),
    ("globex.example", "/slow/1"),
    ("globex.example", "/slow/2"),
    ("globex.example", "/slow/3"),
];

/// Pages by name (`tenant/path`) and by partition.
#[derive(Debug)]
pub struct Pages {
    keys: Vec<(String, PageKey)>,
    pk_of: BTreeMap<String, String>,
    name_of: BTreeMap<String, String>,
    /// How many pages the origin of a tenant may take down in ten minutes.
    withdrawals: BTreeMap<String, u32>,
}

impl Pages {
    /// `count` random pages of `config`.
    pub fn new(config: &Config, count: usize, rng: &mut fastrand::Rng) -> Self {
        let mut paths = PATHS;
        rng.shuffle(&mut paths);
        let withdrawals = config.tenants().map(|tenant| (tenant.tenant.to_string(), tenant.withdrawals)).collect();
        let mut pages = Self { keys: Vec::new(), pk_of: BTreeMap::new(), name_of: BTreeMap::new(), withdrawals };
        for (host, path) in paths.into_iter().take(count) {
            let Some(Ok(resolved)) = config.tenant_of_host(host).map(|tenant| tenant.resolve(path)) else { continue };
            let (name, pk) = (resolved.page.to_string(), resolved.page.pk(KeyLayout::default()));
            pages.pk_of.insert(name.clone(), pk.clone());
            pages.name_of.insert(pk, name.clone());
            pages.keys.push((name, resolved.page));
        }
        pages
    }

    /// A random page.
    pub fn any(&self, rng: &mut fastrand::Rng) -> &PageKey {
        &self.keys[rng.usize(0..self.keys.len())].1
    }

    pub fn by_name(&self, name: &str) -> Option<PageKey> {
        self.keys.iter().find(|(known, _)| known == name).map(|(_, page)| page.clone())
    }

    /// The name of the page with this partition.
    pub fn by_pk(&self, pk: &str) -> Option<String> {
        self.name_of.get(pk).cloned()
    }

    /// How many pages the origin of a tenant may take down in ten minutes.
    pub fn withdrawals(&self, tenant: &str) -> u32 {
        self.withdrawals.get(tenant).copied().unwrap_or_default()
    }

    /// Whether the sweep may remove the page.
    pub fn may_expire(&self, page: &str) -> bool {
        page.starts_with(EXPIRING)
    }

    /// All names with their partitions.
    pub fn all(&self) -> impl Iterator<Item = (&String, &String)> {
        self.pk_of.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &PageKey> {
        self.keys.iter().map(|(_, page)| page)
    }
}

//! Where a reader's request goes: to a page, or to the tenant's origin.

use serde::Deserialize;

use super::route::{Entry, Proxied};
use super::{Render, ResolveError, Resolved, TenantConfig, is_reserved};
use crate::domain::page_key::{NormalPath, PageKey};

/// What is behind a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Destination<'c> {
    Page(Resolved<'c>),
    /// The tenant's origin answers, and nothing is stored.
    Origin(Proxied),
    NotFound,
}

/// What is behind a path that matches no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    Pass,
    NotFound,
}

/// Extensions of files that are the same for every reader, as CDNs take them to be. Documents are
/// not among them: `.html`, `.xml`, `.json` and `.txt` may well be pages.
const ASSET_EXTENSIONS: [&str; 37] = [
    "apng",
    "avif",
    "bmp",
    "css",
    "csv",
    "eot",
    "flac",
    "gif",
    "ico",
    "jpeg",
    "jpg",
    "js",
    "jxl",
    "m4a",
    "map",
    "mid",
    "mjs",
    "mp3",
    "mp4",
    "oga",
    "ogg",
    "ogv",
    "otf",
    "pdf",
    "png",
    "svg",
    "svgz",
    "tif",
    "tiff",
    "ttf",
    "wasm",
    "wav",
    "webm",
    "webmanifest",
    "webp",
    "woff",
    "woff2",
];

impl TenantConfig {
    /// Where a reader's request for `raw`, a path with its query, goes.
    pub fn destination(&self, raw: &str) -> Result<Destination<'_>, ResolveError> {
        let normal = NormalPath::parse(raw)?;
        if is_reserved(normal.path()) {
            return Ok(Destination::NotFound);
        }
        let matching = self.entries.iter().find(|entry| entry.path().matches(normal.path()).is_some());
        // A route that passes its requests keeps their cookies, whatever the file is.
        let is_general = match matching {
            Some(Entry::Page(route)) => route.path.ends_in_rest(),
            Some(Entry::Proxied { .. }) => false,
            None => true,
        };
        if is_general && self.assets && is_asset(normal.path()) {
            return Ok(Destination::Origin(Proxied::Asset));
        }
        match matching {
            Some(Entry::Proxied { how, .. }) => Ok(Destination::Origin(*how)),
            Some(Entry::Page(_)) => self.resolve(raw).map(Destination::Page),
            None => Ok(match self.fallback {
                Fallback::Pass => Destination::Origin(Proxied::Pass),
                Fallback::NotFound => Destination::NotFound,
            }),
        }
    }

    /// The page at `raw`, a path with its query. Serving function and worker both use it,
    /// so with the same file they mean the same page.
    pub fn resolve(&self, raw: &str) -> Result<Resolved<'_>, ResolveError> {
        let normal = NormalPath::parse(raw)?;
        if is_reserved(normal.path()) {
            return Err(ResolveError::NoRoute);
        }
        for entry in &self.entries {
            let Some(params) = entry.path().matches(normal.path()) else {
                continue;
            };
            let Entry::Page(route) = entry else { break };
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

    /// Whether requests can be passed to its origin.
    pub fn has_origin(&self) -> bool {
        matches!(self.render, Render::Http(_))
    }
}

/// Whether the last segment has the extension of a static file.
fn is_asset(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.rsplit_once('.').is_some_and(|(name, extension)| {
        !name.is_empty() && ASSET_EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_files_are_recognised_by_their_extension() {
        for path in ["/a.css", "/img/a.b.PNG", "/x.min.js", "/fonts/a.woff2"] {
            assert!(is_asset(path), "{path}");
        }
        for path in ["/", "/a", "/a.html", "/feed.xml", "/.css", "/a.css/", "/css", "/a.css/b"] {
            assert!(!is_asset(path), "{path}");
        }
        assert!(ASSET_EXTENSIONS.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

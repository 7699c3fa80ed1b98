//! Presets: the routes and headers that a framework needs, under one name.

use serde::Deserialize;

use super::route::{Entry, Proxied};
use super::{Pattern, PatternError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    Astro,
    Django,
    Next,
    Nuxt,
    SvelteKit,
}

impl Preset {
    fn patterns(self) -> &'static [(&'static str, Proxied)] {
        match self {
            Preset::Astro => &[
                ("/_astro/{*file}", Proxied::Asset),
                ("/_image", Proxied::Pass),
                ("/_actions/{*rest}", Proxied::Pass),
                ("/_server-islands/{*rest}", Proxied::Pass),
            ],
            Preset::Django => &[
                ("/static/{*file}", Proxied::Asset),
                ("/media/{*file}", Proxied::Asset),
                ("/admin/{*rest}", Proxied::Pass),
            ],
            // The image optimiser answers by the Accept header, and names it in Vary.
            Preset::Next => &[
                ("/_next/static/{*file}", Proxied::Asset),
                ("/_next/image", Proxied::Asset),
                ("/_next/{*rest}", Proxied::Pass),
            ],
            Preset::Nuxt => &[
                ("/_nuxt/{*file}", Proxied::Asset),
                ("/_ipx/{*file}", Proxied::Asset),
                ("/__nuxt_error", Proxied::Pass),
            ],
            Preset::SvelteKit => &[("/_app/immutable/{*file}", Proxied::Asset), ("/_app/{*rest}", Proxied::Pass)],
        }
    }

    /// The routes that this preset adds to a tenant's own.
    pub(super) fn entries(self) -> Result<Vec<Entry>, PatternError> {
        let entry = |(path, how): &(&str, Proxied)| Ok(Entry::Proxied { path: Pattern::parse(path)?, how: *how });
        self.patterns().iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_routes_that_can_be_parsed() {
        for preset in [Preset::Astro, Preset::Django, Preset::Next, Preset::Nuxt, Preset::SvelteKit] {
            assert!(!preset.entries().unwrap().is_empty());
        }
    }
}

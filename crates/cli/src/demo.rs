//! The demo site, which `dev` serves when no configuration or origin is given.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use everfresh_core::config::Render;
use everfresh_local::data_dir::DataDir;

/// Paths relative to the demo folder, with their contents.
const FILES: [(&str, &str); 9] = [
    ("everfresh.toml", include_str!("../demo/everfresh.toml")),
    ("site/404.html", include_str!("../demo/site/404.html")),
    ("site/_card.html", include_str!("../demo/site/_card.html")),
    ("site/_layout.html", include_str!("../demo/site/_layout.html")),
    ("site/about.html", include_str!("../demo/site/about.html")),
    ("site/data.json", include_str!("../demo/site/data.json")),
    ("site/index.html", include_str!("../demo/site/index.html")),
    ("site/products.html", include_str!("../demo/site/products.html")),
    ("site/products/_.html", include_str!("../demo/site/products/_.html")),
];

/// Pages that `dev` prewarms.
pub(crate) const PAGES: [&str; 3] = ["/", "/products", "/about"];

/// Writes the demo into the data folder, where it can be edited, and returns the path of its
/// configuration. Existing files are kept: they may have been edited.
pub(crate) fn write_demo(dir: &DataDir) -> anyhow::Result<PathBuf> {
    let folder = dir.file("demo");
    for (name, text) in FILES {
        let file = folder.join(name);
        if !file.exists() {
            write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        }
    }
    Ok(folder.join("everfresh.toml"))
}

/// Writes a configuration that renders every path from one server, and returns its path.
pub(crate) fn for_origin(dir: &DataDir, origin: &str) -> anyhow::Result<PathBuf> {
    Render::http(origin).with_context(|| format!("--origin {origin}"))?;
    // Private addresses are allowed: the user named the origin, which may be a container or another
    // machine on the network.
    let file = dir.file("origin").join("everfresh.toml");
    let text = format!(
        "[tenant.demo]\nhosts  = [\"localhost\", \"127.0.0.1\"]\n\
         # The origin sees the host that the browser does: frameworks compare it with a form's Origin.\n\
         render = {{ http = {origin:?}, private_network = true, host = \"public\" }}\n\
         # Assets and internal paths of these frameworks; none of them is in another's way.\n\
         presets = [\"astro\", \"django\", \"next\", \"nuxt\", \"sveltekit\"]\n\n\
         [[tenant.demo.route]]\npath = \"/{{*rest}}\"\nrevalidate = \"10s\"\nmax_stale = \"1h\"\n"
    );
    write(&file, &text).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text)
}

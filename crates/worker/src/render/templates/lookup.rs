//! Maps a path to the template that renders it.

use everfresh_core::domain::page_key::CanonicalPath;
use percent_encoding::percent_decode_str;

use super::page::{DATA, NOT_FOUND};
use super::source::Names;

const CONTENT_TYPES: [(&str, &str); 8] = [
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain; charset=utf-8"),
    ("webmanifest", "application/manifest+json"),
    ("xml", "application/xml"),
];

/// The content type of a template's output; `None` if the template cannot be a page.
pub(super) fn content_type(name: &str) -> Option<&'static str> {
    let extension = extension(name);
    CONTENT_TYPES.iter().find(|(known, _)| *known == extension).map(|(_, content_type)| *content_type)
}

pub(super) fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// The path's segments, decoded. The last one is empty for `/` and for a path that ends in a slash.
pub(super) fn segments(path: &CanonicalPath) -> Vec<String> {
    path.path().trim_start_matches('/').split('/').map(decode).collect()
}

/// Undoes percent-encoding. A canonical path decodes to UTF-8.
pub(super) fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The most specific template. Compared from the left, a literal name ranks before `_`.
pub(super) fn page<'n>(names: &'n Names, segments: &[String]) -> Option<&'n str> {
    let ranked = names.iter().filter_map(|name| Some((rank(name, segments)?, name.as_str())));
    ranked.min().map(|(_, name)| name)
}

/// How closely a template matches, segment by segment; `None` if it does not.
fn rank(name: &str, segments: &[String]) -> Option<Vec<Fit>> {
    if name == DATA || name == NOT_FOUND || content_type(name).is_none() {
        return None;
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() != segments.len() {
        return None;
    }
    let (file, folders) = parts.split_last()?;
    let (last, front) = segments.split_last()?;
    let mut fits = Vec::with_capacity(parts.len());
    for (folder, segment) in folders.iter().zip(front) {
        fits.push(fit(folder, segment)?);
    }
    fits.push(fit_file(file, last)?);
    Some(fits)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The file of exactly this name.
    File,
    /// The name, with or without an added `.html`.
    Name,
    /// `_`.
    Any,
}

fn fit(part: &str, segment: &str) -> Option<Fit> {
    match part {
        "_" if !segment.is_empty() => Some(Fit::Any),
        // Not pages: layouts, fragments, hidden files.
        _ if part.starts_with(['_', '.']) => None,
        _ => (part == segment).then_some(Fit::Name),
    }
}

fn fit_file(file: &str, segment: &str) -> Option<Fit> {
    let stem = file.strip_suffix(".html");
    match stem {
        Some("index") => segment.is_empty().then_some(Fit::Name),
        Some(stem) if !stem.is_empty() => fit(stem, segment),
        // A path with an extension is the file of that name, except `.html`: each page has one
        // path.
        Some(_) => None,
        None => fit(file, segment).map(|_| Fit::File),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str], path: &str) -> Option<String> {
        let names: Names = names.iter().map(|name| (*name).to_owned()).collect();
        let path = CanonicalPath::stored(path).unwrap();
        page(&names, &segments(&path)).map(str::to_owned)
    }

    const SITE: [&str; 14] = [
        "404.html",
        "_/42.html",
        "_/_.html",
        "_layout.html",
        "about.html",
        "café.html",
        "data.json",
        "docs/index.html",
        "feed.xml",
        "index.html",
        "logo.png",
        "products/42.html",
        "products/_.html",
        "products/_card.html",
    ];

    #[test]
    fn most_specific_template_is_selected() {
        for (path, template) in [
            ("/", "index.html"),
            ("/about", "about.html"),
            ("/caf%C3%A9", "café.html"),
            ("/docs/", "docs/index.html"),
            ("/feed.xml", "feed.xml"),
            ("/products/42", "products/42.html"),
            ("/products/43", "products/_.html"),
            ("/products/_card", "products/_.html"),
            ("/others/42", "_/42.html"),
            ("/others/43", "_/_.html"),
        ] {
            assert_eq!(found(&SITE, path).as_deref(), Some(template), "{path}");
        }
    }

    #[test]
    fn left_literal_ranks_before_right_literal() {
        assert_eq!(found(&["_/b.html", "a/_.html"], "/a/b").as_deref(), Some("a/_.html"));
        assert_eq!(found(&["feed.xml.html", "feed.xml"], "/feed.xml").as_deref(), Some("feed.xml"));
    }

    #[test]
    fn layouts_data_and_404_template_are_not_pages() {
        for path in
            ["/404", "/_layout", "/_", "/data.json", "/logo.png", "/about.html", "/index", "/docs", "/about/", "/a/b/c"]
        {
            assert_eq!(found(&SITE, path), None, "{path}");
        }
        assert_eq!(found(&["_.html", ".html", "_.xml"], "/"), None);
    }
}

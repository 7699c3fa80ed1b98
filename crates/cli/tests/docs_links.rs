//! Links and paths in the documentation lead somewhere.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod pages;

use std::fs;

use pages::{Page, code_spans, pages, root};

#[test]
fn relative_links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages() {
        for rest in page.prose().split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.path.clone() } else { page.path.parent().unwrap().join(file) };
            let there = root().join(&path);
            let anchored = || Page { text: fs::read_to_string(&there).unwrap(), path }.anchors().contains(anchor);
            if !there.exists() || !(anchor.is_empty() || anchored()) {
                broken.push(format!("{}: {target}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links lead nowhere: {broken:#?}");
    assert!(links > 40, "only {links} links were found");
}

#[test]
fn paths_in_code_spans_exist() {
    let folders = ["crates/", "scripts/", "infra/", "events/", "producers/", "fuzz/", "docs/"];
    let mut missing = Vec::new();
    for page in pages() {
        for span in code_spans(&page.prose()) {
            let path = span.split_whitespace().next().unwrap_or_default();
            if folders.iter().any(|folder| path.starts_with(folder)) && !root().join(path).exists() {
                missing.push(format!("{}: {path}", page.path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

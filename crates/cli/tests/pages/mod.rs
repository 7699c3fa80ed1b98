//! The pages of the documentation, as the tests read them.
#![allow(dead_code, reason = "each suite uses its part")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A page of documentation.
pub(crate) struct Page {
    /// Relative to the repository.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn page(path: &str) -> Page {
    Page { text: fs::read_to_string(root().join(path)).unwrap(), path: path.into() }
}

pub(crate) fn pages() -> Vec<Page> {
    let mut paths = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            paths.push(format!("docs/{name}"));
        }
    }
    paths.iter().map(|path| page(path)).collect()
}

impl Page {
    /// The text without fenced blocks; their lines are empty.
    pub(crate) fn prose(&self) -> String {
        let mut fenced = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            let fence = line.trim_start().starts_with("```");
            if !fenced && !fence {
                prose.push_str(line);
            }
            fenced ^= fence;
            prose.push('\n');
        }
        assert!(!fenced, "{}: a fence is not closed", self.path.display());
        prose
    }

    /// The anchors of its headings, as GitHub makes them.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let heading = line.trim_start_matches('#').trim().to_lowercase();
                let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let slug: String = heading.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect();
                let times = seen.entry(slug.clone()).or_default();
                *times += 1;
                if *times == 1 { slug } else { format!("{slug}-{}", *times - 1) }
            })
            .collect()
    }

    /// The rows of the first table below a heading, without its header.
    pub(crate) fn table(&self, heading: &str) -> Vec<Vec<String>> {
        let name = self.path.display();
        let below = self.text.split_once(&format!("\n{heading}\n"));
        let (_, below) = below.unwrap_or_else(|| panic!("{name} has no heading {heading:?}"));
        let rows = below.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
        let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        let rows: Vec<Vec<String>> = rows.skip(2).map(cells).collect();
        assert!(!rows.is_empty(), "{name} has no table below {heading:?}");
        rows
    }

    /// The same by name: what each row says in its second cell, under each name that its first cell
    /// has in code.
    pub(crate) fn named(&self, heading: &str) -> BTreeMap<String, Vec<String>> {
        let mut named = BTreeMap::new();
        for row in self.table(heading) {
            for name in code_spans(&row[0]) {
                assert!(named.insert(name.clone(), row[1..].to_vec()).is_none(), "{name} has two rows");
            }
        }
        named
    }
}

/// Everything between backticks, paragraph by paragraph.
pub(crate) fn code_spans(text: &str) -> Vec<String> {
    let spans = |paragraph: &str| paragraph.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    text.split("\n\n").flat_map(spans).collect()
}

/// The value in code, if a cell is one.
pub(crate) fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

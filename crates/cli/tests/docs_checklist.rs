//! The checklist counts its rows, and names what exists. `docs_links` checks its paths.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use pages::{code_spans, page};

/// The cells of every row of a requirement.
fn requirements() -> Vec<[String; 3]> {
    let checklist = page("docs/checklist.md");
    let headings = checklist.text.lines().filter(|line| line.starts_with("## ") && *line != "## States");
    let rows = headings.flat_map(|heading| checklist.table(heading));
    rows.map(|row| <[String; 3]>::try_from(row).expect("a row has three cells")).collect()
}

#[test]
fn counts_of_states_are_those_of_the_rows() {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for [_, state, _] in requirements() {
        *counted.entry(state).or_default() += 1;
    }
    let stated = page("docs/checklist.md").table("## States");
    let stated = stated.into_iter().map(|row| (row[0].clone(), row[2].parse().unwrap()));
    assert_eq!(counted, stated.collect());
}

#[test]
fn each_requirement_occurs_once_and_has_an_explanation() {
    let mut seen = BTreeSet::new();
    for [requirement, _, explanation] in requirements() {
        assert!(!explanation.is_empty(), "{requirement}: where, or why not?");
        assert!(seen.insert(requirement.clone()), "{requirement} occurs twice");
    }
    assert!(seen.len() > 200, "{}", seen.len());
}

#[test]
fn commands_of_the_checklist_exist() {
    let spans = code_spans(&page("docs/checklist.md").prose());
    let commands: BTreeSet<&str> = spans.iter().filter_map(|span| span.strip_prefix("everfresh ")).collect();
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let arguments = command.split_whitespace().chain(["--help"]);
        let ran = Command::new(env!("CARGO_BIN_EXE_everfresh")).args(arguments).output().unwrap();
        assert!(ran.status.success(), "everfresh {command}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

//! Every dependency has a licence that `deny.toml` allows. `scripts/supply-chain` checks more, with
//! a tool that takes minutes to build; this part needs none.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn allowed() -> Vec<String> {
    let rules: toml::Table = std::fs::read_to_string(workspace().join("deny.toml")).unwrap().parse().unwrap();
    let allow = rules["licenses"]["allow"].as_array().unwrap();
    allow.iter().map(|licence| licence.as_str().unwrap().to_owned()).collect()
}

/// The packages of a build for this platform: only they are available offline for certain.
fn packages() -> Vec<Value> {
    let rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into())).arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", host])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Whether `allowed` satisfies an SPDX licence expression. `MIT/Apache-2.0` is the old form of OR.
fn satisfies(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let satisfied = any_of(&mut words, allowed);
    assert!(words.next().is_none(), "{expression} cannot be parsed");
    satisfied
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut satisfied = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        satisfied |= all_of(words, allowed);
    }
    satisfied
}

fn all_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut satisfied = term(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        satisfied &= term(words, allowed);
    }
    satisfied
}

fn term(words: &mut Words<'_>, allowed: &[String]) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let satisfied = any_of(words, allowed);
        assert_eq!(words.next(), Some(")"));
        return satisfied;
    }
    let licence = words.next().unwrap_or_default();
    let exception = words.next_if_eq(&"WITH").and_then(|_| words.next());
    let whole = exception.map_or(licence.to_owned(), |exception| format!("{licence} WITH {exception}"));
    allowed.contains(&whole)
}

#[test]
fn every_package_has_an_allowed_licence() {
    let allowed = allowed();
    let packages = packages();
    assert!(packages.len() > 200, "only {} packages: some are missing", packages.len());
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(|licence| satisfies(licence, &allowed)))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn every_package_comes_from_crates_io_or_the_workspace() {
    let foreign = |package: &&Value| {
        let from = package["source"].as_str();
        from.is_some_and(|from| from != "registry+https://github.com/rust-lang/crates.io-index")
    };
    let packages = packages();
    let foreign: Vec<&Value> = packages.iter().filter(foreign).map(|package| &package["id"]).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned()];
    for (expression, satisfied) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("", false),
        ("MIT OR GPL-3.0-only", true),
        ("GPL-3.0-only/MIT", true),
        ("GPL-3.0-only / MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT AND ISC", true),
        ("(MIT OR GPL-3.0-only) AND ISC", true),
        ("GPL-3.0-only AND (MIT OR ISC)", false),
        // AND binds more tightly.
        ("MIT OR ISC AND GPL-3.0-only", true),
        ("MIT WITH some-exception", false),
    ] {
        assert_eq!(satisfies(expression, &allowed), satisfied, "{expression}");
    }
}

//! The results as text and as JSON.

use std::fmt::Write as _;
use std::time::Instant;

use crate::check::{SearchResult, check, try_removal};
use crate::guards::Guards;
use crate::properties::all;
use crate::removals::{Expect, KNOWN_LIMITS, REMOVALS, Removal};
use crate::scopes::{Scope, scope, scopes};

/// One line of a table.
#[derive(Clone, Debug)]
pub struct Line {
    /// The scope, the removed guards, or the limit.
    pub name: String,
    pub found: SearchResult,
    pub result: String,
    /// The result is the expected one.
    pub ok: bool,
}

#[derive(Clone, Debug)]
pub struct Report {
    /// With all guards on.
    pub scopes: Vec<Line>,
    pub removals: Vec<Line>,
    /// Known limits: a property is expected to break.
    pub limits: Vec<Line>,
    pub seconds: f64,
}

impl Report {
    /// Runs all searches, with `quick` those that fit into a minute.
    pub fn run(quick: bool, mut progress: impl FnMut(&str)) -> Report {
        let start = Instant::now();
        let mut report = Report { scopes: Vec::new(), removals: Vec::new(), limits: Vec::new(), seconds: 0.0 };
        for scope in scopes().filter(|scope| scope.quick || !quick) {
            progress(scope.name);
            report.scopes.push(scope_line(scope));
        }
        for removal in REMOVALS.iter().filter(|removal| !quick || removal.quick()) {
            progress(&removal.name());
            report.removals.push(removal_line(removal));
        }
        for (name, property, reason) in KNOWN_LIMITS {
            progress(name);
            report.limits.extend(limit_line(name, property, reason));
        }
        report.seconds = start.elapsed().as_secs_f64();
        report
    }

    /// Whether every result is the expected one.
    pub fn ok(&self) -> bool {
        self.lines().all(|(_, line)| line.ok)
    }

    fn lines(&self) -> impl Iterator<Item = (&'static str, &Line)> {
        let scopes = self.scopes.iter().map(|line| ("scope", line));
        let removals = self.removals.iter().map(|line| ("removal", line));
        let limits = self.limits.iter().map(|line| ("limit", line));
        scopes.chain(removals).chain(limits)
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        table(&mut out, "Scope (all guards on)", &self.scopes);
        table(&mut out, "Guard removed", &self.removals);
        table(&mut out, "Known limit (all guards on)", &self.limits);
        let verdict = if self.ok() { "all results as expected" } else { "UNEXPECTED RESULTS" };
        let _ = writeln!(out, "{verdict}, {:.0} s", self.seconds);
        out
    }

    pub fn json(&self) -> String {
        let lines: Vec<String> = self.lines().map(|(kind, line)| json_line(kind, line)).collect();
        format!("{{\"ok\":{},\"seconds\":{:.1},\"lines\":[{}]}}", self.ok(), self.seconds, lines.join(","))
    }
}

/// Checks a scope with all guards on: every property holds and every required event is reached.
pub fn scope_line(scope: Scope) -> Line {
    let found = check(scope, Guards::all(), None);
    let held = all().len() - usize::from(found.broken.is_some());
    let reached = scope.reaches.len() - found.missing.len();
    let mut result = format!("{held}/{} hold, {reached}/{} reached", all().len(), scope.reaches.len());
    if let Some(example) = &found.broken {
        let _ = write!(result, "; BROKEN {} in {} steps", example.property, example.steps());
    }
    if !found.missing.is_empty() {
        let _ = write!(result, "; NOT REACHED {:?}", found.missing);
    }
    Line { name: scope.name.to_owned(), ok: found.broken.is_none() && found.missing.is_empty(), found, result }
}

/// Tries a removal and compares the result with the expected one.
pub fn removal_line(removal: &Removal) -> Line {
    let found = try_removal(removal);
    let (ok, result) = match (&found.broken, removal.expect) {
        (Some(example), expect) => (
            expect == Expect::Breaks(example.property),
            format!("breaks {} ({}, {} steps)", example.property, example.scope, example.steps()),
        ),
        (None, Expect::Nothing(reason)) => (true, format!("nothing breaks: {reason}")),
        (None, Expect::Breaks(property)) => (false, format!("nothing breaks, expected {property}")),
    };
    Line { name: removal.name(), found, result, ok }
}

fn limit_line(name: &str, property: &str, reason: &str) -> Option<Line> {
    let found = check(scope(name)?, Guards::all(), None);
    let broken = found.broken.as_ref();
    let ok = broken.is_some_and(|example| example.property == property);
    let result = match broken {
        Some(example) => format!("{} ({} steps): {reason}", example.property, example.steps()),
        None => format!("holds now, expected to break: {property}"),
    };
    Some(Line { name: name.to_owned(), found, result, ok })
}

fn table(out: &mut String, title: &str, lines: &[Line]) {
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0).max(title.len());
    let _ = writeln!(out, "{title:<width$}  {:>9} {:>5} {:>6}  result", "states", "depth", "s");
    for line in lines {
        let mark = if line.ok { "" } else { "  <-- UNEXPECTED" };
        let _ = writeln!(
            out,
            "{:<width$}  {:>9} {:>5} {:>6.1}  {}{mark}",
            line.name,
            line.found.states,
            line.found.depth,
            line.found.time.as_secs_f64(),
            line.result,
        );
    }
    let _ = writeln!(out);
}

fn json_line(kind: &str, line: &Line) -> String {
    let broken = match &line.found.broken {
        Some(example) => format!(
            "{{\"property\":\"{}\",\"scope\":\"{}\",\"steps\":{}}}",
            example.property,
            example.scope,
            example.steps()
        ),
        None => "null".to_owned(),
    };
    // Names and reasons are constants of this crate without characters that JSON escapes.
    format!(
        "{{\"kind\":\"{kind}\",\"name\":\"{}\",\"ok\":{},\"states\":{},\"depth\":{},\"seconds\":{:.2},\"broken\":{broken},\"result\":\"{}\"}}",
        line.name,
        line.ok,
        line.found.states,
        line.found.depth,
        line.found.time.as_secs_f64(),
        line.result,
    )
}

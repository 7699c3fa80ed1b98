//! Runs the checker and keeps its results.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::guards::Guards;
use crate::properties::all;
use crate::scopes::{Scope, scope};
use crate::{Action, Event, Everfresh, Expect, Removal, State};

#[derive(Clone, Debug)]
pub struct SearchResult {
    /// Number of distinct states.
    pub states: usize,
    /// Length of the longest path.
    pub depth: usize,
    pub time: Duration,
    /// The property that broke first, with a shortest path to its violation.
    pub broken: Option<Counterexample>,
    /// Events that the scope requires and the search did not reach.
    pub missing: Vec<Event>,
}

/// A path to a state in which a property does not hold.
#[derive(Clone, Debug)]
pub struct Counterexample {
    pub property: &'static str,
    pub scope: &'static str,
    /// The states, each with the step taken from it.
    pub path: Vec<(State, Option<Action>)>,
}

impl Counterexample {
    pub fn steps(&self) -> usize {
        self.path.len() - 1
    }
}

/// Larger searches are not repeated to shorten the path; it is at most a step or two too long.
const SHORTEN_BELOW: usize = 500_000;

/// Searches a scope until a property breaks (with `only`: until that one breaks) or to its end.
pub fn check(scope: Scope, guards: Guards, only: Option<&'static str>) -> SearchResult {
    let start = Instant::now();
    let mut found = search(scope, guards, only, usize::MAX);
    while let Some(example) = &found.broken
        && found.states < SHORTEN_BELOW
    {
        // The search ends some states after the first violation and keeps the last path.
        let shorter = search(scope, guards, only, example.steps());
        if shorter.broken.is_none() {
            break;
        }
        found.broken = shorter.broken;
    }
    found.time = start.elapsed();
    found
}

/// Searches the scopes of a removal, one after the other, until a property breaks.
pub fn try_removal(removal: &Removal) -> SearchResult {
    let mut guards = Guards::all();
    for &guard in removal.guards {
        guards = guards.without(guard);
    }
    let mut sum = SearchResult { states: 0, depth: 0, time: Duration::ZERO, broken: None, missing: Vec::new() };
    let only = match removal.expect {
        Expect::Breaks(property) => Some(property),
        Expect::Nothing(_) => None,
    };
    for scope in removal.scopes.iter().filter_map(|name| scope(name)) {
        let found = check(scope, guards, only);
        sum.states += found.states;
        sum.depth = sum.depth.max(found.depth);
        sum.time += found.time;
        sum.broken = found.broken;
        if sum.broken.is_some() {
            break;
        }
    }
    sum
}

/// Searches paths of fewer than `steps` steps.
fn search(scope: Scope, guards: Guards, only: Option<&'static str>, steps: usize) -> SearchResult {
    let start = Instant::now();
    let mut builder = Everfresh::new(scope, guards).checker().finish_when(match only {
        Some(property) => HasDiscoveries::AnyOf(BTreeSet::from([property])),
        None => HasDiscoveries::AnyFailures,
    });
    if steps != usize::MAX {
        // stateright counts the initial state as depth one and excludes the given depth.
        builder = builder.target_max_depth(steps + 1);
    }
    let checker = builder.spawn_bfs().join();
    let mut examples: Vec<Counterexample> = Vec::new();
    let mut discoveries = checker.discoveries();
    for property in all() {
        if only.is_some_and(|only| only != property.name) {
            continue;
        }
        if let Some(path) = discoveries.remove(property.name) {
            examples.push(first_violation(checker.model(), scope.name, property, path));
        }
    }
    let missing = |event: &&Event| !checker.model().has_reached(**event);
    SearchResult {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        time: start.elapsed(),
        broken: examples.into_iter().min_by_key(Counterexample::steps),
        missing: scope.reaches.iter().filter(missing).copied().collect(),
    }
}

/// Truncates a path at the first state in which the property does not hold.
fn first_violation(
    model: &Everfresh,
    scope: &'static str,
    property: stateright::Property<Everfresh>,
    path: Path<State, Action>,
) -> Counterexample {
    let mut path = path.into_vec();
    let end = path.iter().position(|(s, _)| !(property.condition)(model, s));
    if let Some(end) = end {
        path.truncate(end + 1);
        path[end].1 = None;
    }
    Counterexample { property: property.name, scope, path }
}

//! A few seeds in every build; `scripts/simulate` runs thousands.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_simulation::guards::Guard;
use everfresh_simulation::known::Known;
use everfresh_simulation::profile::LEAST_MESSAGES;
use everfresh_simulation::run::run;

/// Seeds that once had violations. The content of a seed changes with the simulation, so the bugs
/// that they found have tests of their own.
const ONCE_BROKEN: [u64; 2] = [84, 121];

#[test]
fn some_runs_keep_every_invariant() {
    for seed in (0..4).chain(ONCE_BROKEN) {
        let report = run(seed, None, false).unwrap();
        assert_eq!(report.violations, [], "scripts/simulate --replay {seed}");
        assert!(report.figures.fewest_messages >= Some(LEAST_MESSAGES));
        assert!(report.figures.commits > 0 && report.figures.reads > 0);
    }
}

#[test]
fn trace_is_deterministic_per_seed() {
    let trace = |seed| run(seed, None, false).unwrap().trace;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

/// A guard whose absence shows in almost every run.
#[test]
fn missing_guard_is_found() {
    let found = (0..20).any(|seed| !run(seed, Some(Guard::BusyIsNotAcked), false).unwrap().violations.is_empty());
    assert!(found);
}

/// A name that is not in [`Known`] would not be checked by a proof.
#[test]
fn every_counted_name_is_known() {
    let (figures, known) = (run(0, None, false).unwrap().figures, Known::all());
    for (counted, known) in
        [(figures.faults, known.faults), (figures.checks, known.properties), (figures.branches, known.branches)]
    {
        for name in counted.keys() {
            assert!(known.contains(&name.as_str()), "{name}");
        }
    }
}

//! A few seeds in every build; `scripts/simulate` runs thousands.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_simulation::profile::LEAST_MESSAGES;
use everfresh_simulation::run::run;
use everfresh_simulation::sabotage::Sabotage;

/// Seeds that broke something when they were new; CHANGELOG.md tells what, and of which commit. What they meet moves with every change of
/// the simulation, so the bugs have tests of their own too.
const BROKE_ONCE: [u64; 2] = [84, 121];

#[test]
fn some_runs_hold_every_invariant() {
    for seed in (0..4).chain(BROKE_ONCE) {
        let report = run(seed, None, false).unwrap();
        assert_eq!(report.violations, [], "scripts/simulate --replay {seed}");
        assert!(report.figures.fewest_messages >= Some(LEAST_MESSAGES));
        assert!(report.figures.commits > 0 && report.figures.reads > 0);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another_one() {
    let trace = |seed| run(seed, None, false).unwrap().trace;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

/// A guard whose absence shows in almost every run: if this is not found, the checker sees nothing.
#[test]
fn a_missing_guard_is_found() {
    let found = (0..20).any(|seed| !run(seed, Some(Sabotage::BusyIsNotAcked), false).unwrap().violations.is_empty());
    assert!(found);
}

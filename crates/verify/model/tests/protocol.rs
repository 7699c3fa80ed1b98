//! The protocol holds in every small scope, every guard has its reason, and the known limits are known.

use everfresh_model::{Expect, Guards, KNOWN, LIMITS, REMOVALS, check, removal_line, scope, scope_line, scopes};

#[test]
fn every_property_holds_and_every_situation_is_reached() {
    for scope in scopes().filter(|scope| scope.quick) {
        let line = scope_line(scope);
        assert!(line.ok, "{}: {}", line.name, line.result);
    }
}

#[test]
fn each_guard_removed_breaks_its_property() {
    for removal in REMOVALS.iter().filter(|removal| removal.quick()) {
        let line = removal_line(removal);
        assert!(line.ok, "{}: {}", line.name, line.result);
    }
}

#[test]
fn known_limits_break_where_they_are_said_to() {
    for (name, property, _) in KNOWN {
        let limit = scope(name).unwrap();
        let example = check(limit, Guards::all(), None).broken.unwrap();
        assert_eq!(example.property, *property, "{name}");
    }
    assert_eq!(KNOWN.len(), LIMITS.len());
}

#[test]
fn experiments_name_existing_scopes() {
    for removal in REMOVALS {
        for name in removal.scopes {
            assert!(scope(name).is_some(), "{name}");
        }
    }
}

#[test]
fn a_guard_that_only_saves_work_says_what_stands_behind_it() {
    for removal in REMOVALS {
        if let Expect::Nothing(reason) = removal.expect {
            assert!(!reason.is_empty(), "{}", removal.name());
        }
    }
}

//! The properties hold in every small scope, each guard protects one, and the known limits break as
//! documented.

use everfresh_model::{Expect, Guards, KNOWN_LIMITS, REMOVALS, check, limits, removal_line, scope, scope_line, scopes};

#[test]
fn every_property_holds_and_required_events_are_reached() {
    for scope in scopes().filter(|scope| scope.quick) {
        let line = scope_line(scope);
        assert!(line.ok, "{}: {}", line.name, line.result);
    }
}

#[test]
fn removing_a_guard_breaks_its_property() {
    for removal in REMOVALS.iter().filter(|removal| removal.quick()) {
        let line = removal_line(removal);
        assert!(line.ok, "{}: {}", line.name, line.result);
    }
}

#[test]
fn known_limits_break_the_documented_property() {
    for (name, property, _) in KNOWN_LIMITS {
        let limit = scope(name).unwrap();
        let example = check(limit, Guards::all(), None).broken.unwrap();
        assert_eq!(example.property, *property, "{name}");
    }
    assert_eq!(KNOWN_LIMITS.len(), limits().count());
}

#[test]
fn removals_name_existing_scopes() {
    for removal in REMOVALS {
        for name in removal.scopes {
            assert!(scope(name).is_some(), "{name}");
        }
    }
}

#[test]
fn redundant_guards_have_a_reason() {
    for removal in REMOVALS {
        if let Expect::Nothing(reason) = removal.expect {
            assert!(!reason.is_empty(), "{}", removal.name());
        }
    }
}

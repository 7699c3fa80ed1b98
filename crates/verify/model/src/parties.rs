//! Scopes with others beside the workers: operators, the sweep, another language's helper.

use crate::events::Event;
use crate::faults::{BASE, NOTHING, change, repeat};
use crate::operator::Verb;
use crate::scopes::{Plan, Scope, Sender, Simultaneous};
use crate::state::Budget;

const UNPIN: Plan = Plan { key: 2, hash: 0, changes_source: false, sender: Sender::Operator };

/// Every scope with others beside the workers.
pub(crate) const PARTIES: &[Scope] = &[
    Scope {
        name: "rollback",
        about: "roll back and unpin beside two changes; the tool may die",
        messages: &[change(0), change(1), UNPIN],
        script: &[Verb::RollBack, Verb::Unpin],
        last_tick: 1,
        budget: Budget { duplicates: 1, operator_crashes: 1, lease_ages: 1, ..NOTHING },
        reaches: &[
            Event::RolledBack,
            Event::Replayed,
            Event::Unpinned,
            Event::WantedRecorded,
            Event::WantedRefused,
            Event::OperatorDied,
            Event::Superseded,
        ],
        quick: false,
        ..BASE
    },
    Scope {
        name: "pin-skew",
        about: "pin and unpin by a tool whose clock is off, and workers whose clocks are off",
        messages: &[change(0), change(1), UNPIN],
        script: &[Verb::Pin, Verb::Unpin],
        last_tick: 4,
        epsilon: 2,
        workers: 1,
        runs: 3,
        skews: &[Some(1)],
        operator_skews: &[-1],
        budget: Budget { operator_crashes: 1, ..NOTHING },
        reaches: &[
            Event::Pinned,
            Event::Unpinned,
            Event::WantedRecorded,
            Event::OperatorDied,
            Event::WatermarkAnswered,
        ],
        quick: false,
        ..BASE
    },
    Scope {
        name: "pin-unbounded",
        about: "pin and unpin where no worker can bound its clock error",
        messages: &[change(0), change(1), UNPIN],
        script: &[Verb::Pin, Verb::Unpin],
        last_tick: 2,
        workers: 1,
        skews: &[None],
        wild_skew: 4,
        budget: Budget { operator_crashes: 1, ..NOTHING },
        reaches: &[Event::Unpinned, Event::WantedRecorded, Event::CommitWithUnboundedClock],
        ..BASE
    },
    Scope {
        name: "purge",
        about: "purge beside a render in flight and requests in the queue, then unpin",
        messages: &[change(0), UNPIN],
        script: &[Verb::Purge, Verb::Unpin],
        last_tick: 1,
        budget: Budget { operator_crashes: 1, lease_ages: 1, ..NOTHING },
        reaches: &[Event::Purged, Event::Superseded, Event::WantedRecorded],
        ..BASE
    },
    Scope {
        name: "sweep",
        about: "a sweep of orphans beside slow, dead and thawed workers",
        script: &[Verb::Sweep],
        last_tick: 0,
        budget: Budget { crashes: 1, lease_ages: 2, claim_ages: 1, ..NOTHING },
        reaches: &[Event::Swept, Event::Reacquired, Event::ReacquireRefused],
        ..BASE
    },
    Scope {
        name: "foreign",
        about: "another language's helper that replaces META whole under its own lease",
        last_tick: 1,
        budget: Budget { foreign_runs: 2, lease_ages: 1, ..NOTHING },
        clocks_in_doubt: true,
        reaches: &[Event::ForeignCommitted, Event::ForeignRefused, Event::ForeignRowReplaced, Event::LateWorkerRefused],
        quick: false,
        ..BASE
    },
    Scope {
        name: "foreign-pin",
        about: "a foreign row that is pinned while a render for it is in flight",
        messages: &[change(0), change(1), UNPIN],
        script: &[Verb::Pin, Verb::Unpin],
        workers: 1,
        last_tick: 1,
        budget: Budget { foreign_runs: 1, lease_ages: 1, ..NOTHING },
        reaches: &[Event::ForeignCommitted, Event::Pinned, Event::Unpinned, Event::Superseded, Event::WantedRecorded],
        ..BASE
    },
    Scope {
        name: "economy",
        about: "three requests sent at the same moment, no change after, no faults",
        messages: &[change(0), repeat(1), repeat(2)],
        last_tick: 4,
        epsilon: 2,
        skews: &[Some(-1), Some(1)],
        simultaneous: Simultaneous::TwoCommits,
        runs: 4,
        reaches: &[Event::TooClose, Event::AlreadyCovered, Event::Unchanged],
        quick: false,
        ..BASE
    },
];

/// Worlds with one thing in them that the protocol cannot refuse: what breaks there is known.
pub const LIMITS: &[Scope] = &[
    Scope {
        name: "foreign-late",
        about: "a copy of the helper's LOCK write that arrives after our commit",
        last_tick: 0,
        messages: &[change(0)],
        budget: Budget { foreign_runs: 1, foreign_late: 1, lease_ages: 1, ..NOTHING },
        ..BASE
    },
    Scope {
        name: "economy-renders",
        about: "the same requests at the same moment, counting renders instead of commits",
        messages: &[change(0), repeat(1), repeat(2)],
        last_tick: 4,
        epsilon: 2,
        simultaneous: Simultaneous::TwoRenders,
        runs: 4,
        ..BASE
    },
    Scope {
        name: "sweep-late",
        about: "a copy of a worker's LOCK write that arrives after the sweep let the lease go",
        last_tick: 0,
        messages: &[change(0)],
        script: &[Verb::Sweep],
        budget: Budget { late: 1, lease_ages: 1, ..NOTHING },
        ..BASE
    },
];

//! Scopes with other actors than the workers: operators, the sweep, a foreign writer.

use crate::events::Event;
use crate::operator::Command;
use crate::scopes::{Plan, Scope, Sender, Simultaneous};
use crate::state::FaultBudget;
use crate::worker_scopes::{BASE, NOTHING, change, repeat};

pub(crate) const UNPIN: Plan =
    Plan { key: 2, hash: 0, changes_source: false, expired: false, sender: Sender::Operator };

pub(crate) const ACTOR_SCOPES: &[Scope] = &[
    Scope {
        name: "rollback",
        about: "roll back and unpin during two changes; the CLI may crash",
        messages: &[change(0), change(1), UNPIN],
        script: &[Command::RollBack, Command::Unpin],
        last_tick: 1,
        budget: FaultBudget { duplicates: 1, operator_crashes: 1, lease_ages: 1, ..NOTHING },
        reaches: &[
            Event::RolledBack,
            Event::Replayed,
            Event::Unpinned,
            Event::WantedRecorded,
            Event::WantedRefused,
            Event::OperatorCrashed,
            Event::Superseded,
        ],
        quick: false,
        ..BASE
    },
    Scope {
        name: "pin-skew",
        about: "pin and unpin where the clocks of CLI and workers are off",
        messages: &[change(0), change(1), UNPIN],
        script: &[Command::Pin, Command::Unpin],
        last_tick: 4,
        epsilon: 2,
        workers: 1,
        runs: 3,
        skews: &[Some(1)],
        operator_skews: &[-1],
        budget: FaultBudget { operator_crashes: 1, ..NOTHING },
        reaches: &[
            Event::Pinned,
            Event::Unpinned,
            Event::WantedRecorded,
            Event::OperatorCrashed,
            Event::WatermarkAnswered,
        ],
        quick: false,
        ..BASE
    },
    Scope {
        name: "pin-unbounded",
        about: "pin and unpin where no worker can bound its clock error",
        messages: &[change(0), change(1), UNPIN],
        script: &[Command::Pin, Command::Unpin],
        last_tick: 2,
        workers: 1,
        skews: &[None],
        wild_skew: 4,
        budget: FaultBudget { operator_crashes: 1, ..NOTHING },
        reaches: &[Event::Unpinned, Event::WantedRecorded, Event::CommitWithUnboundedClock],
        ..BASE
    },
    Scope {
        name: "purge",
        about: "purge during a render in flight and requests in the queue, then unpin",
        messages: &[change(0), UNPIN],
        script: &[Command::Purge, Command::Unpin],
        last_tick: 1,
        budget: FaultBudget { operator_crashes: 1, lease_ages: 1, ..NOTHING },
        reaches: &[Event::Purged, Event::Superseded, Event::WantedRecorded],
        ..BASE
    },
    Scope {
        name: "sweep",
        about: "a sweep of orphaned bodies with slow, crashed and resumed workers",
        script: &[Command::Sweep],
        last_tick: 0,
        budget: FaultBudget { crashes: 1, lease_ages: 2, claim_ages: 1, ..NOTHING },
        reaches: &[Event::Swept, Event::Reacquired, Event::ReacquireRefused],
        ..BASE
    },
    Scope {
        name: "foreign",
        about: "a foreign writer that replaces the whole META row under its own lease",
        last_tick: 1,
        budget: FaultBudget { foreign_runs: 2, lease_ages: 1, ..NOTHING },
        clocks_in_doubt: true,
        reaches: &[Event::ForeignCommitted, Event::ForeignRefused, Event::ForeignRowReplaced, Event::LateWorkerRefused],
        quick: false,
        ..BASE
    },
    Scope {
        name: "foreign-pin",
        about: "a foreign row that is pinned while a render for it is in flight",
        messages: &[change(0), change(1), UNPIN],
        script: &[Command::Pin, Command::Unpin],
        workers: 1,
        last_tick: 1,
        budget: FaultBudget { foreign_runs: 1, lease_ages: 1, ..NOTHING },
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

/// Scopes with an event that the protocol cannot refuse: a known property breaks in each.
pub(crate) const LIMITS: &[Scope] = &[
    Scope {
        name: "foreign-late",
        about: "a duplicate of the foreign writer's LOCK write that arrives after our commit",
        last_tick: 0,
        messages: &[change(0)],
        budget: FaultBudget { foreign_runs: 1, foreign_late: 1, lease_ages: 1, ..NOTHING },
        ..BASE
    },
    Scope {
        name: "economy-renders",
        about: "the requests of economy, counting renders instead of commits",
        messages: &[change(0), repeat(1), repeat(2)],
        last_tick: 4,
        epsilon: 2,
        simultaneous: Simultaneous::TwoRenders,
        runs: 4,
        ..BASE
    },
    Scope {
        name: "sweep-late",
        about: "a duplicate of a worker's LOCK write that arrives after the sweep released the lease",
        last_tick: 0,
        messages: &[change(0)],
        script: &[Command::Sweep],
        budget: FaultBudget { late: 1, lease_ages: 1, ..NOTHING },
        ..BASE
    },
];

//! Scopes in which the origin's answer may be a bypass, a 404 or an old page: withdrawal, its
//! guard, and what readers are served.

use crate::actor_scopes::UNPIN;
use crate::events::Event;
use crate::operator::Command;
use crate::scopes::{Plan, Scope};
use crate::state::FaultBudget;
use crate::worker_scopes::{BASE, NOTHING, change, repeat};

const fn expired(key: u8) -> Plan {
    Plan { expired: true, ..repeat(key) }
}

pub(crate) const BYPASS_SCOPES: &[Scope] = &[
    Scope {
        name: "bypass",
        about: "any render may be a bypass; two workers, two changes, duplicate, expiry of lease and claim",
        last_tick: 1,
        budget: FaultBudget { bypasses: 2, duplicates: 1, lease_ages: 1, claim_ages: 1, ..NOTHING },
        reaches: &[
            Event::Bypassed,
            Event::BypassUnchanged,
            Event::Withdrawn,
            Event::PublishedAgain,
            Event::AlreadyCovered,
            Event::Superseded,
        ],
        quick: false,
        ..BASE
    },
    Scope {
        name: "bypass-late",
        about: "a bypass that arrives at any later moment during another request's commits",
        last_tick: 0,
        budget: FaultBudget { bypasses: 1, late: 1, lease_ages: 1, claim_ages: 1, ..NOTHING },
        reaches: &[Event::Bypassed, Event::LateWriteWithoutEffect, Event::LateWriteWithEffect],
        quick: false,
        ..BASE
    },
    Scope {
        name: "bypass-lost",
        about: "bypasses whose responses are lost, with a crash, a duplicate and a takeover",
        last_tick: 0,
        budget: FaultBudget {
            bypasses: 1,
            lost: 1,
            crashes: 1,
            duplicates: 1,
            lease_ages: 1,
            claim_ages: 1,
            ..NOTHING
        },
        reaches: &[Event::Bypassed, Event::LostCommitFoundDone, Event::TakenOver, Event::LateWorkerRefused],
        quick: false,
        ..BASE
    },
    Scope {
        name: "bypass-cached",
        about: "a cache at the origin answers with a page from before the bypass; clocks are off",
        runs: 1,
        last_tick: 4,
        epsilon: 2,
        skews: &[Some(-1), Some(1)],
        budget: FaultBudget { bypasses: 1, cached: 1, ..NOTHING },
        reaches: &[Event::Bypassed, Event::OriginStale, Event::CachedAnswerPublished],
        quick: false,
        ..BASE
    },
    Scope {
        name: "bypass-pin",
        about: "roll back and unpin during two changes that may be bypasses",
        messages: &[change(0), change(1), UNPIN],
        script: &[Command::RollBack, Command::Unpin],
        workers: 1,
        runs: 4,
        last_tick: 2,
        budget: FaultBudget { bypasses: 2, lease_ages: 1, ..NOTHING },
        reaches: &[Event::Bypassed, Event::RolledBack, Event::Unpinned, Event::PublishedAgain, Event::Superseded],
        ..BASE
    },
    Scope {
        name: "withdrawals",
        about: "two changes, an expired request and another page share a limit of one withdrawal",
        messages: &[change(0), expired(1), change(2)],
        withdrawal_limit: 1,
        last_tick: 1,
        budget: FaultBudget { bypasses: 2, absences: 1, checks: 1, other_withdrawals: 1, buckets: 1, ..NOTHING },
        reaches: &[
            Event::Withdrawn,
            Event::WithdrawalRefused,
            Event::BypassNotDue,
            Event::PublishedAgain,
            Event::BypassUnchanged,
        ],
        quick: false,
        ..BASE
    },
    Scope {
        name: "serve",
        about: "an instance with two readers at a time, stale reads and outages during withdrawals",
        messages: &[change(0), change(1), change(2)],
        workers: 1,
        runs: 3,
        last_tick: 2,
        budget: FaultBudget { bypasses: 1, reads: 3, stale_reads: 1, outages: 1, ..NOTHING },
        reaches: &[
            Event::Withdrawn,
            Event::PublishedAgain,
            Event::StaleReadIgnored,
            Event::GoodStandsIn,
            Event::GoodDropped,
            Event::LateServedIgnored,
        ],
        quick: false,
        ..BASE
    },
    Scope {
        name: "serve-absent",
        about: "the same where the page is replaced by a stored 404",
        messages: &[change(0), change(1)],
        workers: 1,
        last_tick: 1,
        budget: FaultBudget { absences: 1, reads: 3, stale_reads: 1, outages: 1, ..NOTHING },
        reaches: &[Event::Withdrawn, Event::StaleReadIgnored, Event::GoodStandsIn, Event::LateServedIgnored],
        ..BASE
    },
    Scope {
        name: "serve-purge",
        about: "the same with purge and unpin",
        messages: &[change(0), UNPIN],
        script: &[Command::Purge, Command::Unpin],
        workers: 1,
        runs: 3,
        last_tick: 1,
        budget: FaultBudget { bypasses: 1, reads: 3, stale_reads: 1, outages: 1, ..NOTHING },
        reaches: &[Event::Purged, Event::Unpinned, Event::StaleReadIgnored, Event::GoodDropped],
        quick: false,
        ..BASE
    },
    Scope {
        name: "serve-foreign",
        about: "the same with a foreign writer",
        messages: &[change(0), change(1)],
        workers: 1,
        runs: 2,
        last_tick: 1,
        budget: FaultBudget { bypasses: 1, reads: 3, stale_reads: 1, outages: 1, foreign_runs: 1, ..NOTHING },
        reaches: &[Event::ForeignCommitted, Event::Withdrawn, Event::ReadAgainConsistently, Event::GoodDropped],
        quick: false,
        ..BASE
    },
];

//! Scopes with workers only: faults, keys, batches and clocks.

use crate::events::Event;
use crate::scopes::{Plan, Scope, Sender, Simultaneous};
use crate::state::FaultBudget;

pub(crate) const fn change(key: u8) -> Plan {
    Plan { key, hash: 0, changes_source: true, expired: false, sender: Sender::Producer }
}

pub(crate) const fn repeat(key: u8) -> Plan {
    Plan { changes_source: false, ..change(key) }
}

const fn other_payload(key: u8) -> Plan {
    Plan { hash: 1, ..change(key) }
}

pub(crate) const NOTHING: FaultBudget = FaultBudget {
    crashes: 0,
    lost: 0,
    late: 0,
    duplicates: 0,
    lease_ages: 0,
    claim_ages: 0,
    ttl: 0,
    failures: 0,
    silent_changes: 0,
    cached: 0,
    bypasses: 0,
    absences: 0,
    checks: 0,
    other_withdrawals: 0,
    buckets: 0,
    reads: 0,
    stale_reads: 0,
    outages: 0,
    operator_crashes: 0,
    foreign_runs: 0,
    foreign_late: 0,
};

pub(crate) const BASE: Scope = Scope {
    name: "",
    about: "",
    workers: 2,
    runs: 2,
    attempt_limit: 3,
    withdrawal_limit: u8::MAX,
    messages: &[change(0), change(1)],
    last_tick: 2,
    epsilon: 1,
    skews: &[Some(0)],
    operator_skews: &[0],
    wild_skew: 0,
    clocks_in_doubt: false,
    batches: false,
    simultaneous: Simultaneous::No,
    page_exists: true,
    only_commits_late: false,
    script: &[],
    budget: NOTHING,
    reaches: &[],
    quick: true,
};

pub(crate) const WORKER_SCOPES: &[Scope] = &[
    Scope {
        name: "cached",
        about: "a cache at the origin answers two changes with old content; clocks are off",
        runs: 2,
        last_tick: 4,
        epsilon: 2,
        skews: &[Some(-1), Some(1)],
        budget: FaultBudget { cached: 1, ..NOTHING },
        reaches: &[Event::OriginStale, Event::CachedAnswerPublished, Event::Committed, Event::AlreadyCovered],
        ..BASE
    },
    Scope {
        name: "settled",
        about: "a batch whose leader another worker covers and settles while its commit is in flight",
        last_tick: 1,
        batches: true,
        messages: &[change(0), repeat(1), change(2)],
        budget: FaultBudget { lost: 1, lease_ages: 1, claim_ages: 1, duplicates: 1, ..NOTHING },
        reaches: &[Event::CoveredRecordSettled, Event::LostCommitFoundDone],
        quick: false,
        ..BASE
    },
    Scope {
        name: "core",
        about: "two workers, two changes; crash, duplicate, expiry of lease and claim",
        last_tick: 1,
        budget: FaultBudget { crashes: 1, duplicates: 1, lease_ages: 1, claim_ages: 1, ..NOTHING },
        reaches: &[
            Event::Committed,
            Event::AlreadyCovered,
            Event::Replayed,
            Event::Busy,
            Event::TakenOver,
            Event::TakeoverRefused,
            Event::AcquireLost,
            Event::Superseded,
            Event::LateWorkerRefused,
            Event::Reacquired,
            Event::ReacquireRefused,
            Event::Renewed,
        ],
        ..BASE
    },
    Scope {
        name: "lost",
        about: "responses that are lost, with a duplicate and a takeover",
        last_tick: 0,
        budget: FaultBudget { lost: 2, duplicates: 1, lease_ages: 1, claim_ages: 1, ..NOTHING },
        reaches: &[
            Event::ClaimMineAlready,
            Event::LostCommitFoundDone,
            Event::TakenOver,
            Event::Replayed,
            Event::LateWorkerRefused,
        ],
        quick: false,
        ..BASE
    },
    Scope {
        name: "late",
        about: "writes, or copies of them, that arrive at any later moment; no page yet",
        last_tick: 0,
        budget: FaultBudget { late: 2, duplicates: 1, lease_ages: 1, claim_ages: 1, ..NOTHING },
        messages: &[change(0)],
        reaches: &[
            Event::LateWriteWithoutEffect,
            Event::LateWriteWithEffect,
            Event::LostCommitSentAgain,
            Event::FailRefused,
        ],
        page_exists: false,
        ..BASE
    },
    Scope {
        name: "late-two",
        about: "a late write of one request during another request's commits",
        last_tick: 0,
        runs: 2,
        budget: FaultBudget { late: 1, lease_ages: 1, claim_ages: 1, ..NOTHING },
        reaches: &[Event::LateWriteWithoutEffect, Event::LateWriteWithEffect],
        ..BASE
    },
    Scope {
        name: "failures",
        about: "failed renders, cooldown, exhausted attempts",
        last_tick: 1,
        attempt_limit: 2,
        messages: &[change(0)],
        runs: 2,
        budget: FaultBudget { failures: 2, lost: 1, late: 1, claim_ages: 1, lease_ages: 1, duplicates: 1, ..NOTHING },
        reaches: &[Event::Failed, Event::FailRefused, Event::CooldownWaits, Event::AttemptsExhausted],
        quick: false,
        ..BASE
    },
    Scope {
        name: "keys",
        about: "one key sent twice, the same key with another payload, and a ttl that passes",
        messages: &[change(0), repeat(0), other_payload(0)],
        last_tick: 1,
        budget: FaultBudget { duplicates: 1, crashes: 1, ttl: 1, ..NOTHING },
        reaches: &[Event::Replayed, Event::OtherPayloadRejected, Event::ExpiredReqTakenOver, Event::Unchanged],
        ..BASE
    },
    Scope {
        name: "batches",
        about: "batches of two with one leader",
        messages: &[change(0), change(1), repeat(2)],
        last_tick: 1,
        budget: FaultBudget { duplicates: 1, ..NOTHING },
        batches: true,
        reaches: &[Event::FollowersCovered, Event::NextLeads, Event::Unchanged, Event::Replayed],
        ..BASE
    },
    Scope {
        name: "batches-lost",
        about: "a batch whose commit result is unknown while another worker takes the leader over",
        messages: &[change(0), change(1)],
        runs: 1,
        last_tick: 1,
        budget: FaultBudget { late: 1, silent_changes: 1, duplicates: 1, claim_ages: 1, lease_ages: 1, ..NOTHING },
        batches: true,
        only_commits_late: true,
        reaches: &[Event::FollowersCovered, Event::NextLeads],
        quick: false,
        ..BASE
    },
    Scope {
        name: "skew",
        about: "clocks that are off by one with an epsilon of two, and one that cannot be bounded",
        last_tick: 3,
        epsilon: 2,
        skews: &[Some(-1), Some(1), None],
        wild_skew: 4,
        budget: FaultBudget { duplicates: 1, ..NOTHING },
        reaches: &[Event::TooClose, Event::AlreadyCovered, Event::Replayed, Event::CommitWithUnboundedClock],
        quick: false,
        ..BASE
    },
    Scope {
        name: "doubt",
        about: "two workers may disagree on whether a lease or claim has expired; no page yet",
        last_tick: 0,
        clocks_in_doubt: true,
        budget: FaultBudget { duplicates: 1, lease_ages: 2, claim_ages: 2, ..NOTHING },
        reaches: &[Event::LateWorkerRefused, Event::Reacquired, Event::ReacquireRefused, Event::TakeoverRefused],
        page_exists: false,
        ..BASE
    },
];

//! A counterexample as text: each step and the rows after it.

use std::fmt::Write as _;

use crate::check::Counterexample;
use crate::state::State;
use crate::worker::{Delivery, Step};
use crate::{Action, Env};

/// One line per step.
pub fn trace(example: &Counterexample) -> String {
    let mut out = format!("{} is broken in scope {}:\n", example.property, example.scope);
    for pair in example.path.windows(2) {
        let [(before, Some(action)), (after, _)] = pair else {
            continue;
        };
        let _ = writeln!(out, "  {:<44} {}", describe(before, action), rows(after));
    }
    out
}

fn describe(s: &State, action: &Action) -> String {
    match action {
        Action::Worker(w, Step::Go { delivery, .. }) => {
            let at = format!("{:?}", s.workers[*w as usize].at);
            let verb = at.split('(').next().unwrap_or_default().to_owned();
            match delivery {
                Delivery::Answered => format!("worker {w}: {verb}"),
                Delivery::AnswerLost | Delivery::Late | Delivery::Duplicated => {
                    format!("worker {w}: {verb} ({delivery:?})")
                }
            }
        }
        Action::Worker(w, step) => format!("worker {w}: {step:?}"),
        Action::Env(Env::Deliver { worker, lead, followers: 0 }) => format!("message {lead} to worker {worker}"),
        Action::Env(Env::Deliver { worker, lead, .. }) => {
            format!("batch led by message {lead} to worker {worker}")
        }
        Action::Env(Env::Send(m)) => format!("message {m} is sent"),
        Action::Env(env) => format!("{env:?}"),
        Action::Operator(step) => format!("operator: {step:?}"),
        Action::Reader(step) => format!("reader: {step:?}"),
        Action::Foreign(step) => format!("foreign writer: {step:?}"),
    }
}

fn rows(s: &State) -> String {
    let meta = s.meta.map_or("none".to_owned(), |meta| {
        format!("{:?} v{:?} rev {} source_ms {:?}", meta.kind, meta.version, meta.rev, meta.source_ms)
    });
    let lock = s.lock.map_or("-".to_owned(), |lock| format!("{}{}", lock.token, if lock.aged { " aged" } else { "" }));
    format!("t{} source {} | META {meta} | LOCK {lock}", s.clock, s.source)
}

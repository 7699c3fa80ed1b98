//! `everfresh request tail`: each event of a request once, in order, until its end.

use std::time::{Duration, Instant};

use anyhow::Context;
use everfresh_core::config;
use everfresh_core::domain::request_events::after;
use serde_json::json;

use super::args::TailArgs;
use super::named::Named;
use super::stage;
use super::state::{State, States};
use crate::args::TargetArgs;
use crate::config::tenant;
use crate::exit::{self, Exit};
use crate::output::say;
use crate::target::Target;

const POLL: Duration = Duration::from_millis(500);

pub(crate) async fn tail(args: TailArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let as_json = target.json;
    let timeout = args.timeout.as_deref().map(config::Duration::parse).transpose().context("--timeout")?;
    let deadline = timeout.map(|time| Instant::now() + Duration::from_secs(time.seconds()));
    let target = Target::resolve(target).await?;
    let config = target.config().await?;
    let states = States::new(&target, tenant(&config, args.tenant.as_deref())?);
    let named = Named::find(&states.ledger, states.tenant, &args.request, args.page.as_deref()).await?;
    let mut seen = args.after;
    loop {
        let state = states.of(&named.sent, named.known()).await?;
        if let State::Recorded(row) = &state {
            for event in after(&row.events, seen) {
                match as_json {
                    true => {
                        let line = json!({"seq": event.seq, "at_ms": event.at_ms, "stage": stage(event)});
                        say!("{line}")?;
                    }
                    false => {
                        let first_ms = row.events.first().map_or(0, |event| event.at_ms);
                        say!("{:>5}  +{:>6} ms  {}", event.seq, event.at_ms.saturating_sub(first_ms), stage(event))?;
                    }
                }
                seen = event.seq;
            }
        }
        if state.is_final() {
            return end(&state, &states, as_json);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let text = format!("{} after --timeout; go on with --after {seen}", state.word());
            return Err(exit::after_result(Exit::Unfinished, text));
        }
        tokio::time::sleep(POLL).await;
    }
}

fn end(state: &State, states: &States<'_>, as_json: bool) -> anyhow::Result<()> {
    let explained = state.explained(states.ledger.time().now_ms());
    match as_json {
        true => {
            let mut line = state.details();
            line["state"] = state.word().into();
            say!("{line}")?;
        }
        false => say!("{}{}", state.word(), explained.map_or(String::new(), |text| format!(": {text}")))?,
    }
    match state.word() {
        "rejected" => Err(exit::after_result(Exit::Failed, "the request is in the dead-letter queue")),
        _ => Ok(()),
    }
}

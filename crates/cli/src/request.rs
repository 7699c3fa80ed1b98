//! `everfresh request`: state, events and records of requests.

mod args;
mod named;
pub(crate) mod records;
pub(crate) mod state;
mod tail;

use everfresh_core::domain::page::ReqStatus;
use everfresh_core::domain::request_events::Event;
use everfresh_core::domain::seconds;

pub(crate) use self::args::{CleanupArgs, ListArgs, TailArgs};
use self::named::Named;
pub(crate) use self::records::{cleanup, list};
use self::state::{State, States};
pub(crate) use self::tail::tail;

use crate::args::{RequestArgs, TargetArgs};
use crate::config::tenant;
use crate::output::{self, say};
use crate::page::show::in_words;
use crate::target::Target;
use crate::words::age;

pub(crate) async fn show(args: RequestArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let json = target.json;
    let target = Target::resolve(target).await?;
    let config = target.config().await?;
    let tenant = tenant(&config, args.tenant.as_deref())?;
    let states = States::new(&target, tenant);
    let named = Named::find(&states.ledger, tenant, &args.handle, args.page.as_deref()).await?;
    let sent = &named.sent;
    let state = states.of(sent, named.known()).await?;
    let now_ms = states.ledger.time().now_ms();
    let State::Recorded(row) = &state else {
        // Not an error: a request has no record before its first delivery, and never gets one if it
        // is already covered then.
        let explained = state.explained(now_ms).unwrap_or_default();
        if json {
            let mut shown = state.details();
            shown["handle"] = sent.to_string().into();
            shown["state"] = state.word().into();
            shown["sent_ms"] = sent.sent_ms.into();
            shown["explanation"] = explained.into();
            output::json(&shown)?;
        } else {
            say!("state     {}", state.word())?;
            say!("because   {explained}")?;
        }
        return Ok(());
    };
    if json {
        let events: Vec<_> = row
            .events
            .iter()
            .map(|event| serde_json::json!({"seq": event.seq, "at_ms": event.at_ms, "stage": stage(event)}))
            .collect();
        let mut shown = state.details();
        for (name, value) in [
            ("handle", sent.to_string().into()),
            ("state", state.word().into()),
            ("attempts", row.attempts.into()),
            ("stale_answers", row.stale_answers.into()),
            ("error_class", row.error_class.map(|class| class.as_str()).into()),
            ("claim_expires_ms", row.claim_expires_ms.into()),
            ("rejected_at_ms", row.rejected_at_ms.into()),
            ("events", events.into()),
        ] {
            shown[name] = value;
        }
        output::json(&shown)?;
        return Ok(());
    }
    say!("state     {}", state.word())?;
    say!("attempts  {}", row.attempts)?;
    if row.stale_answers > 0 {
        say!("stale     {} answers from a cache at the origin", row.stale_answers)?;
    }
    if let Some(class) = row.error_class {
        say!("error     {}", class.as_str())?;
    }
    if let (ReqStatus::Started, Some(until_ms)) = (row.status, row.claim_expires_ms) {
        match until_ms > now_ms {
            true => say!("claim     held for another {}", in_words(seconds::ceil(until_ms - now_ms)))?,
            false => say!("claim     expired: the next delivery takes it over")?,
        }
    }
    if let Some(at_ms) = row.rejected_at_ms {
        let reason = row.reject_reason.as_deref().map_or(String::new(), |reason| format!(" ({reason})"));
        say!("rejected  {}{reason}: see `everfresh dlq list`", age(at_ms, now_ms))?;
    }
    if let Some(version) = row.result_version {
        say!("version   {version}")?;
    }
    if let Some(etag) = &row.result_etag {
        say!("etag      {etag}")?;
    }
    if let Some(key) = row.result_s3_key.as_ref().filter(|_| state.word() == "completed") {
        say!("result    {}", target.shown_object(&tenant.tenant, key))?;
    }
    let first_ms = row.events.first().map_or(0, |event| event.at_ms);
    for event in &row.events {
        say!("  {:>5}  +{:>6} ms  {}", event.seq, event.at_ms.saturating_sub(first_ms), stage(event))?;
    }
    Ok(())
}

/// The stage's name, or its number if a newer version of Everfresh wrote it.
fn stage(event: &Event) -> String {
    event.stage().map_or_else(|| (event.seq % 100).to_string(), |stage| stage.as_str().to_owned())
}

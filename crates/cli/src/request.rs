//! `everfresh request show`: state and events of a request.

use anyhow::Context;
use everfresh_core::domain::page::NO_RECORD;
use everfresh_core::domain::request::Handle;
use everfresh_core::domain::request_events::Event;

use crate::args::{RequestArgs, TargetArgs};
use crate::config::tenant;
use crate::output::{self, say};
use crate::target::Target;

pub(crate) async fn show(args: RequestArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let handle: Handle = args.handle.parse().with_context(|| format!("{:?}", args.handle))?;
    let json = target.json;
    let target = Target::resolve(target).await?;
    let config = target.config().await?;
    let tenant = tenant(&config, args.tenant.as_deref())?;
    let ledger = target.ledger();
    let Some(row) = ledger.request_by_handle(&tenant.tenant, &handle).await? else {
        // Not an error: a request has no record before its first delivery, and never gets one if it
        // is already covered then.
        if json {
            let shown = serde_json::json!({"handle": handle.to_string(), "state": NO_RECORD});
            output::json(&shown)?;
        } else {
            say!(
                "state     no record: the request waits in the queue, or the published page covered it at its first delivery"
            )?;
        }
        return Ok(());
    };
    if json {
        let events: Vec<_> = row
            .events
            .iter()
            .map(|event| serde_json::json!({"seq": event.seq, "at_ms": event.at_ms, "stage": stage(event)}))
            .collect();
        let shown = serde_json::json!({
            "handle": handle.to_string(),
            "state": row.state(),
            "attempts": row.attempts,
            "error_class": row.error_class.map(|class| class.as_str()),
            "result_s3_key": row.result_s3_key,
            "events": events,
        });
        output::json(&shown)?;
        return Ok(());
    }
    say!("state     {}", row.state())?;
    say!("attempts  {}", row.attempts)?;
    if let Some(class) = row.error_class {
        say!("error     {}", class.as_str())?;
    }
    if let Some(key) = &row.result_s3_key {
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

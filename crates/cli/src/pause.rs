//! `everfresh pause` and `everfresh resume`.

use everfresh_core::domain::page_key::Tenant;
use everfresh_core::ledger::PAUSE_DELAY_MS;
use serde_json::json;

use crate::args::{PauseArgs, TargetArgs};
use crate::config::tenant;
use crate::output::{self, note, say};
use crate::target::Target;

pub(crate) async fn pause(args: &PauseArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let (deployment, tenant) = opened(args, target).await?;
    if !args.dry_run {
        deployment.ledger().pause(tenant.as_ref()).await?;
    }
    report(args, target, tenant.as_ref(), true)?;
    note!(
        "workers notice within {} s and finish what they render; end it with `everfresh resume`",
        PAUSE_DELAY_MS / 1_000
    );
    Ok(())
}

pub(crate) async fn resume(args: &PauseArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let (deployment, tenant) = opened(args, target).await?;
    if !args.dry_run {
        deployment.ledger().resume(tenant.as_ref()).await?;
    }
    report(args, target, tenant.as_ref(), false)?;
    note!("a request that waited comes back after at most an eighth of the time since it was sent");
    Ok(())
}

async fn opened(args: &PauseArgs, target: &TargetArgs) -> anyhow::Result<(Target, Option<Tenant>)> {
    let deployment = Target::resolve(target).await?;
    let tenant = match &args.tenant {
        None => None,
        named => Some(tenant(&deployment.config().await?, named.as_deref())?.tenant.clone()),
    };
    Ok((deployment, tenant))
}

fn report(args: &PauseArgs, target: &TargetArgs, tenant: Option<&Tenant>, paused: bool) -> anyhow::Result<()> {
    let scope = tenant.map_or("all tenants".to_owned(), |tenant| format!("tenant {tenant}"));
    if target.json {
        let tenant = tenant.map(Tenant::as_str);
        return output::json(&json!({"tenant": tenant, "paused": paused, "dry_run": args.dry_run}));
    }
    let state = if paused { "paused" } else { "resumed" };
    say!("{}regeneration of {scope} is {state}", if args.dry_run { "would be done: " } else { "" })
}

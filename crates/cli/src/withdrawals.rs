//! `everfresh withdrawals allow`.

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use everfresh_core::config::Duration;
use everfresh_core::domain::seconds;
use everfresh_core::ledger::MAX_ALLOWED_MS;
use serde_json::json;

use crate::args::TargetArgs;
use crate::config::tenant;
use crate::output::{self, note, say};
use crate::target::Target;

#[derive(Debug, Subcommand)]
pub(crate) enum WithdrawalsCommand {
    /// Let the origin take down this many pages in ten minutes, for a time
    Allow(AllowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AllowArgs {
    /// Pages in each ten minutes. The tenant's `withdrawals` holds if it is more, so 0 ends this
    #[arg(value_name = "PAGES")]
    pages: u32,

    /// For how long from now, like 30m; at most 1d
    #[arg(long = "for", value_name = "TIME")]
    time: String,

    /// Tenant of the pages; optional if the configuration has only one
    #[arg(long)]
    tenant: Option<String>,

    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(command: WithdrawalsCommand, target: &TargetArgs) -> anyhow::Result<()> {
    let WithdrawalsCommand::Allow(args) = command;
    let time = Duration::parse(&args.time).with_context(|| format!("--for {}", args.time))?;
    let time_ms = seconds::to_ms(time.seconds());
    ensure!((1..=MAX_ALLOWED_MS).contains(&time_ms), "--for {}: must be 1s to 1d", args.time);
    let deployment = Target::resolve(target).await?;
    let config = deployment.config().await?;
    let tenant = tenant(&config, args.tenant.as_deref())?;
    let (name, configured) = (&tenant.tenant, tenant.withdrawals);
    let until_ms = match args.dry_run {
        true => None,
        false => Some(deployment.ledger().allow_withdrawals(name, args.pages, time_ms).await?),
    };
    let pages = args.pages.max(configured);
    if target.json {
        return output::json(
            &json!({"tenant": name.as_str(), "pages": pages, "until_ms": until_ms, "dry_run": args.dry_run}),
        );
    }
    let would = if args.dry_run { "would be done: " } else { "" };
    say!("{would}for {}, the origin may take down {pages} pages of {name} in ten minutes", args.time)?;
    if args.pages <= configured {
        note!("the configuration allows {configured}, which holds");
    }
    note!("requests that wait for it are retried within ten minutes; see `everfresh dlq list` for rejected ones");
    Ok(())
}

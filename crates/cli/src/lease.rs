//! `everfresh lease`: who may publish a page now.

use everfresh_core::domain::seconds;
use serde_json::json;

use crate::args::{LeaseCommand, TargetArgs};
use crate::config::tenant;
use crate::output::{self, say};
use crate::page::show::{holder, in_words, resolve};
use crate::target::Target;

pub(crate) async fn run(command: LeaseCommand, args: &TargetArgs) -> anyhow::Result<()> {
    let (page, release, dry_run) = match command {
        LeaseCommand::Show(page) => (page, false, false),
        LeaseCommand::Release(change) => (change.page, true, change.dry_run),
    };
    let target = Target::resolve(args).await?;
    let config = target.config().await?;
    let tenant = tenant(&config, page.tenant.as_deref())?;
    let page = resolve(tenant, &page.path)?.page;
    let ledger = target.ledger();
    let now_ms = ledger.time().now_ms();
    let lock = ledger.lookup(&page).await?.lock;
    let Some(lock) = lock.filter(|lock| lock.held(now_ms)) else {
        if args.json {
            return output::json(&json!({"path": page.path().as_str(), "held": false}));
        }
        return say!("{} has no lease: no worker renders it", page.path());
    };
    let left = in_words(lock.lease_expires_at.saturating_sub(seconds::floor(now_ms)));
    let released = if release && !dry_run { Some(ledger.end_lease(&page, &lock).await?) } else { None };
    if args.json {
        let path = page.path().as_str();
        let until = lock.lease_expires_at;
        let holder = holder(&lock);
        return output::json(
            &json!({"path": path, "held": true, "holder": holder, "expires_at": until, "released": released}),
        );
    }
    match released {
        Some(true) => say!("the lease of {} is ended; its worker's request is retried", page.path()),
        Some(false) => say!("the lease of {} had ended by itself", page.path()),
        None if dry_run => say!("would end the lease of {}, held for another {left}", page.path()),
        None => say!("the lease of {} is held by {} for another {left} unless renewed", page.path(), holder(&lock)),
    }
}

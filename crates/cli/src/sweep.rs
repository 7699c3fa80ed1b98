//! `everfresh sweep`: removes what pages no longer need, as the maintenance function does.

use everfresh_core::artifacts::Artifacts;
use everfresh_core::config::TenantConfig;
use everfresh_core::maintenance::{IN_FLIGHT_MS, Sweep, Swept};
use serde_json::json;

use crate::args::{SweepArgs, TargetArgs};
use crate::config::tenant;
use crate::output::{self, note, say};
use crate::target::Target;

pub(crate) async fn run(args: &SweepArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let deployment = Target::resolve(target).await?;
    let config = deployment.config().await?;
    let tenants: Vec<&TenantConfig> = match &args.tenant {
        None => config.tenants().collect(),
        named => vec![tenant(&config, named.as_deref())?],
    };
    let ledger = deployment.ledger();
    let artifacts = Artifacts::new(&deployment.clients, deployment.stack.bucket.as_str());
    let mut all = Swept::default();
    for tenant in tenants {
        let sweep =
            Sweep { ledger: &ledger, artifacts: &artifacts, tenant, in_flight_ms: IN_FLIGHT_MS, dry_run: args.dry_run };
        // A dry run leaves the cursor of an interrupted sweep where it is.
        let mut cursor = if args.dry_run { None } else { ledger.sweep_cursor(&tenant.tenant).await? };
        if let Some(cursor) = &cursor {
            note!("{}: going on after {cursor}, where the last sweep was interrupted", tenant.tenant);
        }
        loop {
            let part = sweep.next(cursor.as_deref()).await?;
            all.add(part.swept);
            if !args.dry_run {
                ledger.set_sweep_cursor(&tenant.tenant, part.cursor.as_deref()).await?;
            }
            cursor = part.cursor;
            if cursor.is_none() {
                break;
            }
            note!("… {} pages, {} objects", all.pages, all.objects);
        }
    }
    if target.json {
        return output::json(&json!({
            "dry_run": args.dry_run,
            "pages": all.pages,
            "expired": all.expired,
            "versions": all.versions,
            "objects": all.objects,
            "bytes": all.bytes,
            "busy": all.busy,
        }));
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    say!(
        "{verb} {} objects ({} bytes), {} kept versions, {} expired pages",
        all.objects,
        all.bytes,
        all.versions,
        all.expired
    )?;
    say!("of {} pages; {} were being rendered and are left for the next sweep", all.pages, all.busy)
}

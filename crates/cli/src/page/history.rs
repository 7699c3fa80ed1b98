//! `everfresh page history`: the versions that can be rolled back to.

use everfresh_core::domain::page::VersionRow;
use everfresh_core::domain::seconds;
use serde_json::json;

use super::Deployment;
use super::show::{resolve, since};
use crate::args::PageArgs;
use crate::config::tenant;
use crate::output::{self, note, say};

pub(super) async fn run(deployment: &Deployment, args: PageArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.tenant.as_deref())?;
    let resolved = resolve(tenant, &args.path)?;
    let ledger = deployment.target.ledger();
    let published = ledger.lookup(&resolved.page).await?.meta.and_then(|meta| meta.current_sk);
    let is_published = |row: &VersionRow| published.as_deref() == Some(row.version.sk().as_str());
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let batch = ledger.versions(&resolved.page, after).await?;
        rows.extend(batch.rows);
        after = batch.next;
        if after.is_none() {
            break;
        }
    }
    if deployment.json {
        let versions: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "version": row.version.to_string(),
                    "published": is_published(row),
                    "status": row.status,
                    "generated_at": row.generated_at,
                    "body_bytes": row.body_bytes,
                    "deploy": row.deploy,
                    "etag": row.etag,
                    "s3_key": row.s3_key,
                })
            })
            .collect();
        return output::json(&json!({"path": args.path, "versions": versions}));
    }
    if rows.is_empty() {
        note!("no version of {} is kept: set `history` on its route", args.path);
        return Ok(());
    }
    let now_ms = ledger.time().now_ms();
    say!("  {:<27} {:>6} {:>10}  rendered", "version", "status", "bytes")?;
    for row in &rows {
        let mark = if is_published(row) { '*' } else { ' ' };
        let age = since(seconds::to_ms(row.generated_at), now_ms);
        say!("{mark} {:<27} {:>6} {:>10}  {age} ago", row.version.to_string(), row.status, row.body_bytes)?;
    }
    note!("* is published; roll back with: everfresh page rollback {} VERSION", args.path);
    Ok(())
}

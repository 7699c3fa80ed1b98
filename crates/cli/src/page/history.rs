//! `everfresh page history`: the versions that can be rolled back to.

use anyhow::Context;
use everfresh_core::domain::page::VersionRow;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::seconds;
use everfresh_core::domain::version::Version;
use everfresh_core::ledger::Ledger;
use serde_json::json;

use super::Deployment;
use super::show::{resolve, since};
use crate::args::PageArgs;
use crate::config::tenant;
use crate::exit;
use crate::output::{self, note, say};

/// In place of a version: the newest kept one before the published one.
const PREVIOUS: &str = "previous";

/// The kept version that a text names.
pub(super) async fn kept(ledger: &Ledger, page: &PageKey, text: &str) -> anyhow::Result<VersionRow> {
    let missing =
        || exit::not_found(format!("{0} has no kept version {text}: everfresh page history {0}", page.path()));
    if text != PREVIOUS {
        let version = text.parse().with_context(|| text.to_owned())?;
        return ledger.kept_version(page, &version).await?.ok_or_else(missing);
    }
    let published = ledger.lookup(page).await?.meta.and_then(|meta| Version::of_sk(&meta.current_sk?));
    let rows = all(ledger, page).await?;
    rows.into_iter().find(|row| published.is_none_or(|published| row.version < published)).ok_or_else(missing)
}

/// Every kept version, the newest first.
async fn all(ledger: &Ledger, page: &PageKey) -> anyhow::Result<Vec<VersionRow>> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let batch = ledger.versions(page, after).await?;
        rows.extend(batch.rows);
        after = batch.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}

pub(super) async fn run(deployment: &Deployment, args: PageArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.tenant.as_deref())?;
    let resolved = resolve(tenant, &args.path)?;
    let ledger = deployment.target.ledger();
    let published = ledger.lookup(&resolved.page).await?.meta.and_then(|meta| meta.current_sk);
    let is_published = |row: &VersionRow| published.as_deref() == Some(row.version.sk().as_str());
    let rows = all(&ledger, &resolved.page).await?;
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

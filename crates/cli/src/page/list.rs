//! `everfresh page list`: a tenant's published pages, in a bounded amount of memory.

use everfresh_core::config::TenantConfig;
use everfresh_core::domain::freshness::Freshness;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::ledger::{Ledger, PageState as Rows};
use futures::StreamExt;
use serde_json::json;

use super::Deployment;
use super::show::freshness_of;
use super::state::PageStates;
use crate::args::ListArgs;
use crate::config::tenant;
use crate::output::{self, note, say};

/// Pages of one read of the index, and how many are read from the table at once.
const AT_ONCE: i32 = 500;
const CONCURRENCY: usize = 16;

pub(super) async fn run(deployment: &Deployment, args: ListArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.tenant.as_deref())?;
    let ledger = deployment.target.ledger();
    let (mut after, mut shown, mut read) = (None, 0u64, 0u64);
    // Once: a page that was published since then is fresh by any epoch.
    let epoch_ms = ledger.epoch(&tenant.tenant).await?;
    if !deployment.json {
        say!("{:<16} {:<27} path", "state", "version")?;
    }
    loop {
        let batch = ledger.list_pages(&tenant.tenant, &args.prefix, after, AT_ONCE).await?;
        read += batch.rows.len() as u64;
        let states = futures::stream::iter(batch.rows)
            .map(|page| judged(deployment, tenant, &ledger, epoch_ms, page))
            .buffered(CONCURRENCY);
        let mut states = std::pin::pin!(states);
        while let Some(judged) = states.next().await {
            let (page, rows, states) = judged?;
            if !states.match_any(args.state) {
                continue;
            }
            shown += 1;
            print(deployment, &page, &rows, &states)?;
        }
        after = batch.next;
        if after.is_none() {
            break;
        }
        // Long lists show that they go on.
        note!("… {read} pages read");
    }
    note!("{shown} of {read} pages");
    Ok(())
}

async fn judged(
    deployment: &Deployment,
    tenant: &TenantConfig,
    ledger: &Ledger,
    epoch_ms: Option<u64>,
    page: PageKey,
) -> anyhow::Result<(PageKey, Rows, PageStates)> {
    let rows = ledger.lookup_for_reader(&page).await?;
    // A page whose route was removed is listed all the same.
    let freshness = match tenant.resolve(page.path().as_str()) {
        Ok(resolved) => freshness_of(&deployment.target, ledger, &resolved, &rows, epoch_ms).await?,
        Err(_) => Freshness::Missing,
    };
    let states = PageStates::of(&freshness, &rows);
    Ok((page, rows, states))
}

/// One line per page. As JSON one document per line, so that a list of any length can be read.
fn print(deployment: &Deployment, page: &PageKey, rows: &Rows, states: &PageStates) -> anyhow::Result<()> {
    let version = rows.meta.as_ref().and_then(|meta| meta.version).map(|version| version.to_string());
    let path = page.path().as_str();
    if deployment.json {
        let failures = rows.health.failures;
        return output::json_line(&json!({
            "path": path,
            "hash": page.hash().to_string(),
            "state": states.main(),
            "states": states.all(),
            "version": version,
            "failures": failures,
        }));
    }
    say!("{:<16} {:<27} {path}", states.all().join(","), version.as_deref().unwrap_or("-"))
}

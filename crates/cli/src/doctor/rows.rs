//! Rows that a newer Everfresh wrote.

use everfresh_core::config::{Config, TenantConfig};
use futures::StreamExt;

use super::Report;
use crate::target::Target;

/// Pages of each tenant that are read: enough to notice a newer writer, few enough to cost nothing.
const SAMPLE: i32 = 100;

const CONCURRENCY: usize = 16;

pub(super) async fn check(target: &Target, config: &Config, report: &mut Report) {
    let (mut read, mut newer, mut unreadable) = (0_usize, None, None);
    for tenant in config.tenants() {
        if let Err(error) = sample(target, tenant, &mut read, &mut newer, &mut unreadable).await {
            return report.warn("rows", format!("{error:#}"), "see the checks of table and index");
        }
    }
    if let Some(error) = unreadable {
        return report.fail("rows", error, "use the `everfresh` command of the deployed version");
    }
    match newer {
        None => report.ok("rows", format!("{read} pages read, none of a newer version or deployment")),
        Some((deploy, path)) => report.warn(
            "rows",
            format!("{path} is of deployment {deploy}, and this one is {}", target.deploy),
            "raise DeployNumber: a worker of an older deployment never replaces such a page",
        ),
    }
}

async fn sample(
    target: &Target,
    tenant: &TenantConfig,
    read: &mut usize,
    newer: &mut Option<(u64, String)>,
    unreadable: &mut Option<String>,
) -> anyhow::Result<()> {
    let ledger = target.ledger();
    let batch = ledger.list_pages(&tenant.tenant, "", None, SAMPLE).await?;
    let pages = futures::stream::iter(batch.rows).map(|page| {
        let ledger = &ledger;
        async move { (ledger.lookup_for_reader(&page).await, page) }
    });
    let mut pages = std::pin::pin!(pages.buffered(CONCURRENCY));
    while let Some((rows, page)) = pages.next().await {
        *read += 1;
        match rows {
            Ok(rows) => {
                let deploy = rows.meta.and_then(|meta| meta.deploy).filter(|deploy| *deploy > target.deploy);
                if let Some(deploy) = deploy.filter(|deploy| newer.as_ref().is_none_or(|(most, _)| deploy > most)) {
                    *newer = Some((deploy, page.path().as_str().to_owned()));
                }
            }
            Err(error) => *unreadable = Some(format!("{}: {:#}", page.path(), anyhow::Error::from(error))),
        }
    }
    Ok(())
}

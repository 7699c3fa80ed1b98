//! `everfresh page purge`: one page, or every published page below a prefix or with a tag, in a
//! bounded amount of memory.

use std::time::Instant;

use anyhow::Context;
use everfresh_core::config::TenantConfig;
use everfresh_core::domain::invalidations::Prefix;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::tag::Tag;
use everfresh_core::ledger::Ledger;
use everfresh_enqueue::Reason;
use futures::StreamExt;

use super::Deployment;
use super::change::{done, enqueue, prefix, until_done, would};
use super::show::resolve;
use crate::args::PurgeArgs;
use crate::config::tenant;
use crate::exit::{self, Exit};
use crate::output::note;
use crate::words::PROGRESS;

/// Pages of one read of the index, and how many are read from the table at once.
const AT_ONCE: i32 = 500;
const CONCURRENCY: usize = 16;

/// Which pages, if not one.
enum Which {
    Below(Prefix),
    With(Tag),
}

pub(super) async fn run(deployment: &Deployment, args: PurgeArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.tenant.as_deref())?;
    let ledger = deployment.target.ledger();
    let which = match (&args.path, &args.prefix, &args.tag) {
        (Some(path), ..) => {
            let page = resolve(tenant, path)?.page;
            return match args.dry_run {
                true => would(deployment, &format!("purge {}", page.path())),
                false => purge(deployment, &ledger, &page).await,
            };
        }
        (None, Some(path), _) => Which::Below(prefix(path)?),
        (None, None, tag) => Which::With(Tag::parse(tag.as_deref().unwrap_or_default()).context("--tag")?),
    };
    many(deployment, &ledger, tenant, &which, args.dry_run).await
}

/// Goes on after a page that cannot be purged, and fails at the end.
async fn many(
    deployment: &Deployment,
    ledger: &Ledger,
    tenant: &TenantConfig,
    which: &Which,
    dry_run: bool,
) -> anyhow::Result<()> {
    // The index compares texts, a prefix whole segments.
    let text = match which {
        Which::Below(prefix) if prefix.as_str() != "/" => prefix.as_str(),
        Which::Below(_) | Which::With(_) => "",
    };
    let (mut after, mut purged, mut left, mut failed) = (None, 0_u64, 0_u64, 0_u64);
    let mut shown = Instant::now();
    loop {
        let batch = ledger.list_pages(&tenant.tenant, text, after, AT_ONCE).await?;
        let pages = batch.rows.into_iter().filter(|page| match which {
            Which::Below(prefix) => Prefix::covering(page.path()).contains(prefix),
            Which::With(_) => true,
        });
        let read = futures::stream::iter(pages)
            .map(|page| async move { (is_concerned(ledger, which, &page).await, page) })
            .buffered(CONCURRENCY);
        let mut read = std::pin::pin!(read);
        while let Some((concerned, page)) = read.next().await {
            match concerned {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    failed += 1;
                    note!("{} cannot be read, and is not purged: {error:#}", page.path());
                    continue;
                }
            }
            if dry_run {
                would(deployment, &format!("purge {}", page.path()))?;
                continue;
            }
            match purge(deployment, ledger, &page).await {
                Ok(()) => purged += 1,
                Err(error) if exit::is(&error, Exit::NotFound) => {
                    note!("{} is gone already", page.path());
                }
                Err(error) if exit::is(&error, Exit::Unfinished) => {
                    left += 1;
                    note!("{error}");
                }
                Err(error) => {
                    failed += 1;
                    note!("{} is not purged: {error:#}", page.path());
                }
            }
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                note!("… {purged} pages purged");
            }
        }
        after = batch.next;
        if after.is_none() {
            break;
        }
    }
    if !dry_run {
        note!("{purged} pages purged");
    }
    if failed > 0 {
        let text = format!("{failed} pages could not be purged, for the reasons above: purge them one by one");
        return Err(exit::after_result(Exit::Failed, text));
    }
    match left {
        0 => Ok(()),
        _ => {
            let text = format!("{left} pages were being rendered and are not purged: run it again");
            Err(exit::after_result(Exit::Unfinished, text))
        }
    }
}

/// Whether the page is published, not purged already, and one of those.
async fn is_concerned(ledger: &Ledger, which: &Which, page: &PageKey) -> anyhow::Result<bool> {
    let meta = ledger.lookup(page).await?.meta.filter(|meta| !meta.tombstone);
    Ok(meta.is_some_and(|meta| match which {
        Which::Below(_) => true,
        Which::With(tag) => meta.tags.contains(tag),
    }))
}

async fn purge(deployment: &Deployment, ledger: &Ledger, page: &PageKey) -> anyhow::Result<()> {
    let version = until_done(page, || ledger.purge(page)).await?;
    enqueue(deployment, page, Reason::Expired).await?;
    done(deployment, page, "purged", &version, "It is answered with 410 until `everfresh page unpin`.")
}

//! `everfresh request list` and `request cleanup`: the records of a page's requests.

use anyhow::Context;
use everfresh_core::config::{Config, Duration};
use everfresh_core::domain::page::{ReqRow, ReqStatus};
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::request::{Handle, IdempotencyKey};
use everfresh_core::ledger::Ledger;
use serde_json::{Value, json};

use super::args::{CleanupArgs, CleanupStatus, ListArgs};
use crate::args::TargetArgs;
use crate::config::tenant;
use crate::output::{self, say};
use crate::target::Target;
use crate::words::{age, shortened};

pub(crate) async fn list(args: ListArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let as_json = target.json;
    let target = Target::resolve(target).await?;
    let page = page(&target.config().await?, args.tenant.as_deref(), &args.page)?;
    let ledger = target.ledger();
    let now_ms = ledger.time().now_ms();
    let records = records(&ledger, &page).await?;
    if as_json {
        let shown: Vec<Value> = records.iter().map(|(key, row)| summary(&page, key, row)).collect();
        return output::json(&json!({"page": page.to_string(), "requests": shown}));
    }
    say!("{:<36}  {:<10}  {:>8}  age", "key", "state", "attempts")?;
    for (key, row) in &records {
        let age = first_ms(row).map_or("?".to_owned(), |first_ms| age(first_ms, now_ms));
        say!("{:<36}  {:<10}  {:>8}  {age}", shortened(key.as_str(), 36), row.state(), row.attempts)?;
    }
    Ok(())
}

pub(crate) async fn cleanup(args: CleanupArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let as_json = target.json;
    let least_ms = Duration::parse(&args.older_than).context("--older-than")?.seconds().saturating_mul(1_000);
    let status = match args.status {
        CleanupStatus::Started => ReqStatus::Started,
        CleanupStatus::Failed => ReqStatus::Failed,
    };
    let target = Target::resolve(target).await?;
    let page = page(&target.config().await?, args.tenant.as_deref(), &args.page)?;
    let ledger = target.ledger();
    let now_ms = ledger.time().now_ms();
    let is_abandoned = |row: &ReqRow| {
        // A foreign record has no claim that could have expired.
        let expired = row.claim_expires_ms.is_some_and(|until_ms| until_ms <= now_ms);
        let last_ms = row.events.iter().map(|event| event.at_ms).max();
        row.status == status && expired && last_ms.is_some_and(|last_ms| last_ms.saturating_add(least_ms) <= now_ms)
    };
    let mut deleted = Vec::new();
    for (key, row) in records(&ledger, &page).await? {
        if is_abandoned(&row) && (args.dry_run || ledger.delete_abandoned(&page, &key, &row).await?) {
            deleted.push((key, row));
        }
    }
    if as_json {
        let shown: Vec<Value> = deleted.iter().map(|(key, row)| summary(&page, key, row)).collect();
        return output::json(&json!({"dry_run": args.dry_run, "deleted": shown}));
    }
    for (key, row) in &deleted {
        say!("{key}  {}", row.state())?;
    }
    say!("{} records {}deleted", deleted.len(), if args.dry_run { "would be " } else { "" })
}

pub(super) fn page(config: &Config, named: Option<&str>, path: &str) -> anyhow::Result<PageKey> {
    let tenant = tenant(config, named)?;
    let resolved = tenant.resolve(path).with_context(|| format!("{path} is not a page of tenant {}", tenant.tenant))?;
    Ok(resolved.page)
}

/// All records of the page that are within their ttl.
pub(super) async fn records(ledger: &Ledger, page: &PageKey) -> anyhow::Result<Vec<(IdempotencyKey, ReqRow)>> {
    let mut records = Vec::new();
    let mut after = None;
    loop {
        let batch = ledger.requests(page, after).await?;
        records.extend(batch.rows);
        match batch.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let now_ms = ledger.time().now_ms();
    records.retain(|(_, row)| row.counts(now_ms));
    Ok(records)
}

/// The requests that were handled last, the newest first; at most `count` of them. Bounded in memory
/// however many records the page has.
pub(crate) async fn newest(
    ledger: &Ledger,
    page: &PageKey,
    count: usize,
) -> anyhow::Result<Vec<(IdempotencyKey, ReqRow)>> {
    let now_ms = ledger.time().now_ms();
    let (mut newest, mut after): (Vec<(IdempotencyKey, ReqRow)>, _) = (Vec::new(), None);
    loop {
        let batch = ledger.requests(page, after).await?;
        newest.extend(batch.rows.into_iter().filter(|(_, row)| row.counts(now_ms)));
        newest.sort_by_key(|(_, row)| std::cmp::Reverse(row.events.last().map(|event| event.at_ms)));
        newest.truncate(count);
        after = batch.next;
        if after.is_none() {
            return Ok(newest);
        }
    }
}

fn first_ms(row: &ReqRow) -> Option<u64> {
    row.events.first().map(|event| event.at_ms)
}

fn summary(page: &PageKey, key: &IdempotencyKey, row: &ReqRow) -> Value {
    json!({
        "handle": Handle::Page { page: page.hash(), key: key.clone() }.to_string(),
        "key": key.as_str(),
        "state": row.state(),
        "attempts": row.attempts,
        "error_class": row.error_class.map(|class| class.as_str()),
        "first_event_ms": first_ms(row),
        "claim_expires_ms": row.claim_expires_ms,
    })
}

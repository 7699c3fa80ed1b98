//! `everfresh explain`: from a URL to the page's rows, and why readers get what they get.

use anyhow::{Context, bail};
use everfresh_core::config::{Config, Destination, Proxied, TenantConfig};
use everfresh_core::domain::freshness::{Freshness, Policy, needs_watermarks};
use everfresh_core::domain::invalidations::Watermark;
use everfresh_core::domain::page_key::PageKey;
use everfresh_core::domain::seconds;
use everfresh_core::ledger::{Ledger, PageState};
use serde_json::json;

use crate::args::{ExplainArgs, TargetArgs};
use crate::config::tenant;
use crate::output::{self, say};
use crate::page::show::{cause, freshness_of, holder, in_words, since};
use crate::request::records::newest;
use crate::target::Target;
use crate::words::{age, shortened};

/// Requests that are shown, the newest ones.
const SHOWN_REQUESTS: usize = 3;

/// What `explain` found, in the order in which a request meets it.
struct Findings(Vec<(&'static str, String)>);

impl Findings {
    fn add(&mut self, what: &'static str, text: impl Into<String>) {
        self.0.push((what, text.into()));
    }
}

pub(crate) async fn run(args: &ExplainArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let deployment = Target::resolve(target).await?;
    let config = deployment.config().await?;
    let (tenant, path) = tenant_and_path(&config, &args.url, args.tenant.as_deref())?;
    let mut found = Findings(Vec::new());
    found.add("tenant", tenant.tenant.as_str());
    match tenant.destination(&path).with_context(|| path.clone())? {
        Destination::NotFound => found.add("answer", "404: no route matches, and `fallback` is \"not-found\""),
        Destination::Origin(Proxied::Pass) => {
            found.add(
                "answer",
                "passed to the origin with everything; nothing is stored (`mode` or `fallback` \"pass\")",
            );
        }
        Destination::Origin(Proxied::Asset) => {
            found.add("answer", "passed to the origin without cookies, as an asset; nothing is stored");
        }
        Destination::Page(resolved) => {
            let route = resolved.route;
            found.add("route", format!("{}, fresh for {}", route.path, route.revalidate));
            found.add("page", format!("{} (hash {})", resolved.page.path(), resolved.page.hash()));
            let ledger = deployment.ledger();
            let state = ledger.lookup(&resolved.page).await?;
            let now_ms = ledger.time().now_ms();
            let epoch_ms = ledger.epoch(&tenant.tenant).await?;
            let freshness = freshness_of(&deployment, &ledger, &resolved, &state, epoch_ms).await?;
            if let Some(meta) = &state.meta {
                let version = meta.version.map_or("a foreign writer's".to_owned(), |version| version.to_string());
                let age = since(seconds::to_ms(meta.generated_at), now_ms);
                let status = meta.status.map_or(String::new(), |status| format!(", status {status}"));
                found.add("version", format!("{version}, published {age} ago{status}"));
            }
            let pauses = ledger.pauses().await?;
            let pinned = state.health.pinned();
            found.add("answer", answer(freshness, pinned, now_ms));
            let lease = state.lock.as_ref().filter(|lock| lock.held(now_ms));
            if let Some(lock) = lease {
                let left = in_words(lock.lease_expires_at.saturating_sub(seconds::floor(now_ms)));
                let holder = holder(lock);
                found.add("lease", format!("{holder} renders it; its lease lasts another {left} unless renewed"));
            }
            if let Some(failure) = state.health.last_failure.filter(|_| state.health.failures > 0) {
                let (count, age) = (state.health.failures, since(failure.at_ms, now_ms));
                found.add("failures", format!("{count} in a row; {age} ago {}", failure.class.explain()));
            }
            for text in watermarks(&ledger, &resolved.page, &state, deployment.epsilon_ms, now_ms).await? {
                found.add("watermark", text);
            }
            for (key, row) in newest(&ledger, &resolved.page, SHOWN_REQUESTS).await? {
                let age = row.events.last().map_or("?".to_owned(), |event| age(event.at_ms, now_ms));
                found.add("request", format!("{}  {}, {age}", shortened(key.as_str(), 36), row.state()));
            }
            let cooldown = state.health.cooldown_until(now_ms);
            found.add(
                "next",
                next(freshness, pinned, pauses.of(&tenant.tenant).is_some(), lease.is_some(), cooldown, now_ms),
            );
        }
    }
    if target.json {
        let mut fields = serde_json::Map::new();
        for (what, text) in found.0 {
            match what {
                "watermark" | "request" => {
                    let list = fields.entry(format!("{what}s")).or_insert_with(|| json!([]));
                    list.as_array_mut().into_iter().for_each(|list| list.push(json!(text)));
                }
                _ => {
                    fields.insert(what.to_owned(), json!(text));
                }
            }
        }
        return output::json(&fields);
    }
    for (what, text) in found.0 {
        say!("{what:<9} {text}")?;
    }
    Ok(())
}

/// Every invalidation that concerns the page, and whether the published version is older.
async fn watermarks(
    ledger: &Ledger,
    page: &PageKey,
    state: &PageState,
    epsilon_ms: u64,
    now_ms: u64,
) -> anyhow::Result<Vec<String>> {
    let Some(meta) = &state.meta else { return Ok(Vec::new()) };
    let health = &state.health;
    let by_path = health
        .path_watermark_ms
        .map(|at_ms| (format!("path {}", page.path()), Watermark { at_ms, hard_ms: health.path_hard_ms }));
    let others = ledger.watermarks(page, &meta.tags).await?.into_iter().map(|(sk, watermark)| {
        let (kind, name) = sk.split_once('#').unwrap_or(("", &sk));
        (format!("{} {name}", kind.to_ascii_lowercase()), watermark)
    });
    let shown = |(what, watermark): (String, Watermark)| {
        // The rule by which freshness judges an epoch: whether the version may be older.
        let policy = Policy { deploy: 0, max_stale_seconds: None, epsilon_ms };
        let counts = |at_ms: u64| needs_watermarks(meta, Some(at_ms), &policy, now_ms);
        let age = age(watermark.at_ms, now_ms);
        match (watermark.hard_ms.is_some_and(counts), counts(watermark.at_ms)) {
            (true, _) => format!("{what}, {age}: it expires this version (hard)"),
            (false, true) => format!("{what}, {age}: it makes this version stale"),
            (false, false) => format!("{what}, {age}: this version is newer"),
        }
    };
    Ok(by_path.into_iter().chain(others).map(shown).collect())
}

fn answer(freshness: Freshness, pinned: bool, now_ms: u64) -> String {
    match freshness {
        Freshness::Fresh { .. } if pinned => "the pinned version, until it is unpinned".to_owned(),
        Freshness::Fresh { until_ms } => {
            format!("the stored version, fresh for {}", in_words(seconds::ceil(until_ms.saturating_sub(now_ms))))
        }
        Freshness::Stale { why } => format!("the stored version, stale: {}", cause(why)),
        Freshness::Expired { why } => {
            format!("the stored version only if no newer one is rendered within the wait: {}", cause(why))
        }
        Freshness::Bypass { .. } => "the origin's, for each reader by itself: it may not be stored".to_owned(),
        Freshness::Missing => "the origin's, or 503 if it cannot be reached: nothing is published".to_owned(),
        Freshness::Gone => "410: the page was purged".to_owned(),
    }
}

/// What happens next, the strongest reason first.
fn next(
    freshness: Freshness,
    pinned: bool,
    paused: bool,
    rendering: bool,
    cooldown: Option<u64>,
    now_ms: u64,
) -> String {
    if freshness == Freshness::Gone || pinned {
        return "nothing until `everfresh page unpin`; changes are recorded meanwhile".to_owned();
    }
    if paused {
        return "nothing until `everfresh resume`: regeneration is paused".to_owned();
    }
    if rendering {
        return "the running render ends, and its version is published".to_owned();
    }
    if let Some(until_ms) = cooldown {
        let left = in_words(seconds::ceil(until_ms.saturating_sub(now_ms)));
        return format!("no attempt for another {left}, the cooldown after its failures");
    }
    match freshness {
        Freshness::Fresh { until_ms } => {
            let left = in_words(seconds::ceil(until_ms.saturating_sub(now_ms)));
            format!("in {left} it is stale, and the next reader enqueues a regeneration")
        }
        Freshness::Bypass { due: None } => "the origin is checked again later".to_owned(),
        Freshness::Bypass { due: Some(_) }
        | Freshness::Stale { .. }
        | Freshness::Expired { .. }
        | Freshness::Missing
        | Freshness::Gone => "the next reader enqueues a regeneration, or you: `everfresh enqueue PATH`".to_owned(),
    }
}

/// The tenant of the URL's host, and its path with the query.
fn tenant_and_path<'c>(
    config: &'c Config,
    url: &str,
    named: Option<&str>,
) -> anyhow::Result<(&'c TenantConfig, String)> {
    if url.starts_with('/') {
        return Ok((tenant(config, named)?, url.to_owned()));
    }
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (host, path) = rest.split_once('/').map_or((rest, "/".to_owned()), |(host, path)| (host, format!("/{path}")));
    match config.tenant_of_host(host) {
        Some(tenant) if named.is_some_and(|named| named != tenant.tenant.as_str()) => {
            bail!("the host {host} is of tenant {}: leave --tenant out", tenant.tenant)
        }
        Some(tenant) => Ok((tenant, path)),
        None => bail!("no tenant has the host {host}: readers get 421"),
    }
}

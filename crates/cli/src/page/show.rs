//! `everfresh page show`: the published version, its freshness and its lease.

use anyhow::{Context, anyhow};
use bytes::Bytes;
use everfresh_core::config::{Resolved, TenantConfig};
use everfresh_core::domain::artifact::locate;
use everfresh_core::domain::freshness::{Freshness, Why, freshness, needs_watermarks};
use everfresh_core::domain::invalidations::Invalidations;
use everfresh_core::domain::page::LockRow;
use everfresh_core::domain::page_key::Tenant;
use everfresh_core::domain::seconds;
use everfresh_core::ledger::{Ledger, PageState as Rows};
use everfresh_enqueue::explain;

use super::Deployment;
use super::state::PageStates;
use crate::args::ShowArgs;
use crate::config::tenant;
use crate::exit::{self, Exit};
use crate::output::{self, say};
use crate::target::Target;
use crate::words::shortened;

pub(super) async fn run(deployment: &Deployment, args: ShowArgs) -> anyhow::Result<()> {
    let Deployment { target, config, json } = deployment;
    let tenant = tenant(config, args.page.tenant.as_deref())?;
    let resolved = resolve(tenant, &args.page.path)?;
    let page = &resolved.page;
    let ledger = target.ledger();
    if let Some(version) = &args.version {
        let version = version.parse().with_context(|| format!("--version {version}"))?;
        let kept = ledger.kept_version(page, &version).await?.ok_or_else(|| {
            exit::not_found(format!("{0} has no kept version {version}: everfresh page history {0}", args.page.path))
        })?;
        return output::bytes(&body(target, page.tenant(), &kept.s3_key).await?);
    }
    let state = ledger.lookup(page).await?;
    if args.body {
        let meta = state.meta.ok_or_else(|| unpublished(&args.page.path))?;
        return output::bytes(&body(target, page.tenant(), &meta.s3_key).await?);
    }
    let now_ms = ledger.time().now_ms();
    let epoch_ms = ledger.epoch(page.tenant()).await?;
    let judged = freshness_of(target, &ledger, &resolved, &state, epoch_ms).await?;
    let states = PageStates::of(&judged, &state);
    let fresh = in_words_of(judged, &state, now_ms);
    let lease = state.lock.as_ref().filter(|lock| lock.held(now_ms));
    let failure = state.health.last_failure.filter(|_| state.health.failures > 0);
    let cooldown = state.health.cooldown_until(now_ms);
    let pending = state.meta.as_ref().is_some_and(|meta| meta.pending_notification.is_some());
    if *json {
        let meta = state.meta.as_ref().map(|meta| {
            serde_json::json!({
                "version": meta.version.map(|version| version.to_string()),
                "status": meta.status,
                "s3_key": meta.s3_key,
                "generated_at": meta.generated_at,
                "revalidate_seconds": meta.revalidate_seconds,
                "source_ms": meta.source_ms,
                "body_bytes": meta.body_bytes,
                "etag": meta.etag,
                "tags": meta.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(),
            })
        });
        let shown = serde_json::json!({
            "page": page.to_string(),
            "hash": page.hash().to_string(),
            "freshness": fresh,
            "published": meta,
            "leased_until": lease.map(|lock| lock.lease_expires_at),
            "lease_holder": lease.map(holder),
            "state": states.main(),
            "states": states.all(),
            "failures": state.health.failures,
            "last_failure": failure.map(|failure| failure.class.as_str()),
            "last_failure_ms": failure.map(|failure| failure.at_ms),
            "refused": state.health.refused.as_ref().map(|refused| refused.reason.as_str()),
            "refused_ms": state.health.refused.as_ref().map(|refused| refused.at_ms),
            "cooldown_until_ms": cooldown,
            "notification_pending": pending,
            "pinned": state.health.pinned(),
            "pinned_at_ms": state.health.pinned_at_ms,
            "wanted_at_ms": state.health.wanted_at_ms,
        });
        output::json(&shown)?;
        return if state.meta.is_some() { Ok(()) } else { Err(exit::after_result(Exit::NotFound, fresh)) };
    }
    say!("page       {} of {}", page.path().as_str(), page.tenant())?;
    say!("hash       {}", page.hash())?;
    say!("freshness  {fresh}")?;
    if let Some(meta) = &state.meta {
        let version = meta.version.map_or("(foreign row)".to_owned(), |version| version.to_string());
        say!("version    {version}")?;
        say!("status     {}", meta.status.map_or("?".to_owned(), |status| status.to_string()))?;
        say!("body       {}", target.shown_object(page.tenant(), &meta.s3_key))?;
        say!("bytes      {}", meta.body_bytes.map_or("?".to_owned(), |bytes| bytes.to_string()))?;
        let tags: Vec<&str> = meta.tags.iter().map(|tag| tag.as_str()).collect();
        say!("tags       {}", tags.join(", "))?;
    }
    if let Some(lock) = lease {
        let left = lock.lease_expires_at.saturating_sub(seconds::floor(now_ms));
        say!("lease      held by {} for another {} unless renewed", holder(lock), in_words(left))?;
    }
    if state.health.failures > 0 {
        let why = failure.map_or(String::new(), |failure| {
            format!(", the last {} ago: {}", since(failure.at_ms, now_ms), failure.class.explain())
        });
        say!("failures   {} in a row{why}", state.health.failures)?;
    }
    if let Some(refused) = &state.health.refused {
        say!("refused    {} ago: {}; see `page quarantine`", since(refused.at_ms, now_ms), refused.reason)?;
    }
    if let Some(until_ms) = cooldown {
        say!("cooldown   no attempt for another {}", in_words(seconds::ceil(until_ms.saturating_sub(now_ms))))?;
    }
    if pending {
        say!("notify     CloudFront or subscribers have not been notified of this version yet")?;
    }
    if let Some(at_ms) = state.health.pinned_at_ms {
        let waiting = state.health.wanted_at_ms.map_or("", |_| "; a change waits for `page unpin`");
        say!("pinned     {} ago{waiting}", since(at_ms, now_ms))?;
    }
    if state.meta.is_some() { Ok(()) } else { Err(exit::after_result(Exit::NotFound, fresh)) }
}

/// For commands that need a published page.
pub(super) fn unpublished(path: &str) -> anyhow::Error {
    exit::not_found(format!("{path} is not published: request it with `everfresh enqueue {path}`"))
}

/// Who holds a lease: the beginning of its token, which no other holder has.
pub(crate) fn holder(lock: &LockRow) -> String {
    shortened(&lock.lease_token, 9)
}

/// The page's freshness, as readers see it. `epoch_ms` is the tenant's, read at most a moment ago.
pub(crate) async fn freshness_of(
    target: &Target,
    ledger: &Ledger,
    resolved: &Resolved<'_>,
    state: &Rows,
    epoch_ms: Option<u64>,
) -> anyhow::Result<Freshness> {
    let page = &resolved.page;
    let policy = resolved.route.policy(target.deploy, target.epsilon_ms);
    let now_ms = ledger.time().now_ms();
    let invalidations = match &state.meta {
        Some(meta) if needs_watermarks(meta, epoch_ms, &policy, now_ms) => {
            ledger.invalidations(page, &meta.tags, epoch_ms).await?
        }
        Some(_) | None => Invalidations { epoch_ms, ..Invalidations::default() },
    };
    Ok(freshness(state.meta.as_ref(), &state.health, &invalidations, &policy, now_ms))
}

fn in_words_of(freshness: Freshness, state: &Rows, now_ms: u64) -> String {
    match freshness {
        Freshness::Fresh { until_ms } => {
            format!("fresh for {}", in_words(seconds::ceil(until_ms.saturating_sub(now_ms))))
        }
        Freshness::Stale { why } => format!("stale: {}", cause(why)),
        Freshness::Expired { why } => format!("expired: {}", cause(why)),
        Freshness::Bypass { due } => {
            let reason = state.meta.as_ref().and_then(|meta| meta.bypass).map_or("", |bypass| bypass.reason.as_str());
            match due {
                None => format!("bypass: the origin answers each reader ({reason})"),
                Some(why) => format!("bypass: the origin answers each reader ({reason}); check due: {}", cause(why)),
            }
        }
        Freshness::Missing => match &state.unreadable {
            Some(row) => format!("missing: {}; the next render replaces that row", row.error),
            None => "missing: never published".to_owned(),
        },
        Freshness::Gone => "gone: purged".to_owned(),
    }
}

/// The page at a path.
pub(crate) fn resolve<'c>(tenant: &'c TenantConfig, path: &str) -> anyhow::Result<Resolved<'c>> {
    tenant.resolve(path).with_context(|| format!("{path} is not a page of tenant {}", tenant.tenant))
}

/// How long ago a moment was.
pub(crate) fn since(at_ms: u64, now_ms: u64) -> String {
    in_words(seconds::floor(now_ms.saturating_sub(at_ms)))
}

/// What made the page stale.
pub(crate) fn cause(why: Why) -> &'static str {
    match why {
        Why::Age => "its lifetime is over",
        Why::Invalidated => "invalidated since it was rendered",
        Why::InvalidatedHard => "invalidated hard since it was rendered",
        Why::Deployed => "rendered by an older deployment",
        Why::Clock => "dated in the future",
    }
}

/// A length of time in its two largest units.
pub(crate) fn in_words(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(24 * 3600, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let mut words: Vec<String> = Vec::new();
    let mut left = seconds;
    for (size, unit) in UNITS {
        let number = left / size;
        left %= size;
        if number > 0 || !words.is_empty() {
            words.push(format!("{number} {unit}"));
        }
    }
    match words.as_slice() {
        [] => "0 s".to_owned(),
        [first] => first.clone(),
        [first, second, ..] if second.starts_with("0 ") => first.clone(),
        [first, second, ..] => format!("{first} {second}"),
    }
}

/// A stored body. The same check as the server's: what readers cannot get is not read here either.
pub(super) async fn body(target: &Target, tenant: &Tenant, s3_key: &str) -> anyhow::Result<Bytes> {
    let bucket = &target.stack.bucket;
    let key = locate(s3_key, bucket, tenant, target.layout)
        .with_context(|| format!("the body {s3_key} is not read, and the server does not serve it"))?;
    let get = target.clients.s3.get_object().bucket(bucket).key(key);
    let object = get.send().await.map_err(|error| anyhow!("the body s3://{bucket}/{key}: {}", explain(&error)))?;
    let body = object.body.collect().await.context("reading the body")?;
    Ok(body.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_two_units() {
        for (seconds, shown) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (7_260, "2 h 1 min"),
            (86_400 + 59, "1 d"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(in_words(seconds), shown);
        }
    }
}

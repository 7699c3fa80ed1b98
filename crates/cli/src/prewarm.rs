//! `everfresh prewarm`: requests pages ahead of their first reader, at a limited rate.

mod sitemap;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use everfresh_core::config::TenantConfig;
use everfresh_enqueue::{Message, Queues, Reason, Sender};

use crate::args::TargetArgs;
use crate::config::tenant;
use crate::exit::{self, Exit};
use crate::output::{self, note, say};
use crate::target::Target;
use crate::words::PROGRESS;

/// A sitemap has at most 50 MB.
const MAX_BYTES: u64 = 50_000_000;

/// Sent in one call.
const BATCH: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct PrewarmArgs {
    /// File with one path per line
    #[arg(long, value_name = "LIST", required_unless_present = "sitemap", conflicts_with = "sitemap")]
    file: Option<PathBuf>,

    /// Sitemap in XML; entries of hosts that the tenant does not have are left out
    #[arg(long, value_name = "FILE")]
    sitemap: Option<PathBuf>,

    /// At most so many requests per second
    #[arg(long, value_name = "RATE", default_value = "20/s", value_parser = rate)]
    rate: u32,

    /// Part of the idempotency key: a page is prewarmed once per deployment and policy
    #[arg(long, value_name = "TEXT", default_value = "")]
    policy: String,

    /// Tenant of the pages; optional if the configuration has only one
    #[arg(long)]
    tenant: Option<String>,

    /// Show which pages would be requested, and request none
    #[arg(long)]
    dry_run: bool,
}

/// `20/s`, or `20`.
fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse().ok().filter(|rate| (1..=10_000).contains(rate));
    number.ok_or_else(|| "must be a number of requests per second from 1 to 10000, like 20/s".to_owned())
}

pub(crate) async fn run(args: PrewarmArgs, target: &TargetArgs) -> anyhow::Result<()> {
    let as_json = target.json;
    let target = Target::resolve(target).await?;
    let config = target.config().await?;
    let tenant = tenant(&config, args.tenant.as_deref())?;
    let (raw, foreign) = match (&args.file, &args.sitemap) {
        (Some(file), _) => (lines(&read(file)?), 0),
        (None, Some(file)) => {
            let locations = sitemap::locations(&read(file)?).with_context(|| file.display().to_string())?;
            let all = locations.len();
            let own: Vec<String> = locations.iter().filter_map(|url| own_path(url, tenant)).collect();
            let foreign = all - own.len();
            (own, foreign)
        }
        (None, None) => bail!("name the pages with --file or --sitemap"),
    };
    // Canonical, so that a page has one key however it is written.
    let mut paths = BTreeSet::new();
    let mut not_pages = 0_usize;
    for path in raw {
        match tenant.resolve(&path) {
            Ok(resolved) => {
                paths.insert(resolved.page.path().as_str().to_owned());
            }
            Err(error) => {
                not_pages += 1;
                note!("{path} is left out: {error}");
            }
        }
    }
    let paths: Vec<String> = paths.into_iter().collect();
    if args.dry_run {
        for path in &paths {
            match as_json {
                true => output::json_line(&serde_json::json!({"dry_run": true, "would": format!("enqueue {path}")}))?,
                false => say!("would enqueue {path}")?,
            }
        }
        note!("{} pages, {foreign} of other hosts, {not_pages} not pages", paths.len());
        return Ok(());
    }
    let (sent, failed) = send(&args, &target, tenant, &paths).await?;
    if as_json {
        output::json(&serde_json::json!({
            "enqueued": sent,
            "failed": failed,
            "other_hosts": foreign,
            "not_pages": not_pages,
        }))?;
    } else {
        say!("{sent} pages enqueued, {failed} failed, {foreign} of other hosts, {not_pages} not pages")?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(exit::after_result(Exit::Failed, format!("{failed} pages were not enqueued: run it again"))),
    }
}

/// Sends at the rate. Returns how many were sent, and how many were not.
async fn send(
    args: &PrewarmArgs,
    target: &Target,
    tenant: &TenantConfig,
    paths: &[String],
) -> anyhow::Result<(usize, usize)> {
    let queues = Queues { main: target.stack.queue.clone(), low_priority: target.stack.low_priority_queue.clone() };
    let sender = Sender::new(target.clients.sqs.clone(), queues).producer("everfresh-cli", env!("CARGO_PKG_VERSION"));
    let batch = BATCH.min(args.rate as usize);
    let pause = Duration::from_secs_f64(batch as f64 / f64::from(args.rate));
    let (mut sent, mut failed) = (0, 0);
    let mut shown = Instant::now();
    let mut next = tokio::time::interval(pause);
    for chunk in paths.chunks(batch) {
        next.tick().await;
        let mut messages = Vec::new();
        for path in chunk {
            let message = Message { reason: Reason::Prewarm, ..Message::path(tenant.tenant.as_str(), path) };
            messages.push(message.with_prewarm_key(target.deploy, &args.policy)?);
        }
        for (result, path) in sender.send_all(&messages).await.into_iter().zip(chunk) {
            match result {
                Ok(_) => sent += 1,
                Err(error) => {
                    failed += 1;
                    note!("{path}: {error}");
                }
            }
        }
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            note!("{} of {} pages", sent + failed, paths.len());
        }
    }
    Ok((sent, failed))
}

fn read(file: &Path) -> anyhow::Result<String> {
    let named = || format!("{} cannot be read", file.display());
    let mut text = Vec::new();
    File::open(file).with_context(named)?.take(MAX_BYTES + 1).read_to_end(&mut text).with_context(named)?;
    if text.len() as u64 > MAX_BYTES {
        bail!("{} has more than {MAX_BYTES} bytes", file.display());
    }
    String::from_utf8(text).with_context(|| format!("{} is not UTF-8; is it compressed?", file.display()))
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Path and query of a URL, if its host is one of the tenant's.
fn own_path(url: &str, tenant: &TenantConfig) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let host = url.host()?;
    let own = tenant.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
    own.then(|| url.path_and_query().map_or("/", |path| path.as_str()).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_a_number_per_second() {
        assert_eq!((rate("20/s"), rate("5")), (Ok(20), Ok(5)));
        for text in ["", "0", "0/s", "-1", "20/m", "10001"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}

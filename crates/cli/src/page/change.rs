//! `everfresh page pin | unpin | rollback | invalidate`, and what `purge` has in common with them.
//!
//! An operator's change needs the page's lease. While a worker renders the page, the command waits
//! for it, and says so.

use std::time::{Duration, Instant};

use anyhow::Context;
use everfresh_core::domain::invalidations::Prefix;
use everfresh_core::domain::page_key::{CanonicalPath, NormalPath, PageKey};
use everfresh_core::domain::tag::Tag;
use everfresh_core::ledger::{Ledger, LedgerError, Operation};
use everfresh_enqueue::{Message, Queues, Reason, Sender};
use serde_json::json;

use super::Deployment;
use super::history::kept;
use super::show::resolve;
use crate::args::{ChangeArgs, InvalidateArgs, RollbackArgs};
use crate::config::tenant;
use crate::exit;
use crate::output::{self, note, say};

/// How long a command waits for the lease of a page that is being rendered.
const WAIT: Duration = Duration::from_secs(120);

pub(super) async fn pin(deployment: &Deployment, args: ChangeArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.page.tenant.as_deref())?;
    let page = resolve(tenant, &args.page.path)?.page;
    if args.dry_run {
        return would(deployment, &format!("pin {}", page.path()));
    }
    let ledger = deployment.target.ledger();
    let version = until_done(&page, || ledger.pin(&page)).await?;
    done(deployment, &page, "pinned", &version, "It stays until `everfresh page unpin`.")
}

pub(super) async fn unpin(deployment: &Deployment, args: ChangeArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.page.tenant.as_deref())?;
    let page = resolve(tenant, &args.page.path)?.page;
    if args.dry_run {
        return would(deployment, &format!("unpin {}, and request a new version", page.path()));
    }
    let ledger = deployment.target.ledger();
    let at_ms = latest_ms(deployment, &ledger);
    let version = until_done(&page, || ledger.unpin(&page, at_ms)).await?;
    // The watermark of the unpin makes the page stale in any case; this only makes it soon.
    enqueue(deployment, &page, Reason::Changed).await?;
    done(deployment, &page, "unpinned", &version, "A new version is requested.")
}

pub(super) async fn roll_back(deployment: &Deployment, args: RollbackArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.change.page.tenant.as_deref())?;
    let page = resolve(tenant, &args.change.page.path)?.page;
    let ledger = deployment.target.ledger();
    let to = kept(&ledger, &page, &args.version).await?.version;
    if args.change.dry_run {
        return would(deployment, &format!("publish version {to} of {} again, and pin it", page.path()));
    }
    let version = until_done(&page, || ledger.roll_back(&page, &to)).await?;
    // Its notification is pending, and a pinned page's readers enqueue nothing.
    enqueue(deployment, &page, Reason::Expired).await?;
    done(deployment, &page, "rolled back and pinned", &version, "It stays until `everfresh page unpin`.")
}

pub(super) async fn invalidate(deployment: &Deployment, args: InvalidateArgs) -> anyhow::Result<()> {
    let tenant = tenant(&deployment.config, args.tenant.as_deref())?;
    let ledger = deployment.target.ledger();
    let at_ms = latest_ms(deployment, &ledger);
    let what = match (&args.path, &args.prefix, &args.tag) {
        (Some(path), ..) => {
            let page = resolve(tenant, path)?.page;
            match (args.dry_run, args.hard) {
                (true, _) => {}
                (false, true) => ledger.invalidate_path_hard(&page, at_ms).await?,
                (false, false) => ledger.invalidate_path(&page, at_ms).await?,
            }
            page.path().to_string()
        }
        (None, Some(path), _) => {
            let prefix = prefix(path)?;
            match (args.dry_run, args.hard) {
                (true, _) => {}
                (false, true) => ledger.invalidate_prefix_hard(&tenant.tenant, &prefix, at_ms).await?,
                (false, false) => ledger.invalidate_prefix(&tenant.tenant, &prefix, at_ms).await?,
            }
            format!("every page at and below {}", prefix.as_str())
        }
        (None, None, tag) => {
            let tag = Tag::parse(tag.as_deref().unwrap_or_default()).context("--tag")?;
            if args.hard && !args.dry_run {
                ledger.invalidate_tag_hard(&tenant.tenant, &tag, at_ms).await?;
            }
            if !args.dry_run {
                // By the worker, as for every producer: it notifies CloudFront too.
                send(deployment, &Message::tag(tenant.tenant.as_str(), tag.as_str())).await?;
            }
            format!("every page with tag {tag}")
        }
    };
    let state = if args.hard { "expired" } else { "stale" };
    if args.dry_run {
        return would(deployment, &format!("make {state}: {what}"));
    }
    if deployment.json {
        return output::json(&json!({"invalidated": what, "hard": args.hard}));
    }
    say!("{state} from now on: {what}")?;
    match args.hard {
        true if args.tag.is_some() => note!("readers wait for a new version"),
        true => note!("readers wait for a new version; what CloudFront has is served until its time there is over"),
        false => {
            note!("readers get what is published until they, or `everfresh enqueue`, have requested a new version")
        }
    }
    Ok(())
}

/// Repeats an operation while a worker holds the page's lease.
pub(super) async fn until_done<F>(page: &PageKey, operation: impl Fn() -> F) -> anyhow::Result<String>
where
    F: Future<Output = Result<Operation, LedgerError>>,
{
    let began = Instant::now();
    let mut said = false;
    loop {
        match operation().await? {
            Operation::Done(version) => return Ok(version.to_string()),
            Operation::NotFound => {
                let path = page.path().as_str();
                return Err(exit::not_found(format!(
                    "{path} is not published: request it with `everfresh enqueue {path}`"
                )));
            }
            Operation::Busy { .. } | Operation::Superseded if began.elapsed() < WAIT => {
                if !said {
                    note!("{} is being rendered: waiting for its lease", page.path());
                    said = true;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Operation::Busy { .. } | Operation::Superseded => {
                return Err(exit::unfinished(format!(
                    "{0} was being rendered for {1} s: try again, or end its lease with `everfresh lease release {0}`",
                    page.path().as_str(),
                    WAIT.as_secs()
                )));
            }
        }
    }
}

/// The latest that AWS's time may be: a watermark must not lie before a change that it is about.
fn latest_ms(deployment: &Deployment, ledger: &Ledger) -> u64 {
    let time = ledger.time();
    time.now_ms().saturating_add(time.error_ms().unwrap_or(deployment.target.epsilon_ms))
}

pub(super) fn prefix(path: &str) -> anyhow::Result<Prefix> {
    let path: CanonicalPath =
        NormalPath::parse(path).and_then(|path| path.keep::<&str>(&[])).with_context(|| path.to_owned())?;
    Prefix::of(&path).with_context(|| path.to_string())
}

pub(super) async fn enqueue(deployment: &Deployment, page: &PageKey, reason: Reason) -> anyhow::Result<()> {
    let message = Message { reason, ..Message::path(page.tenant().as_str(), page.path().as_str()) };
    send(deployment, &message).await
}

async fn send(deployment: &Deployment, message: &Message) -> anyhow::Result<()> {
    let stack = &deployment.target.stack;
    let queues = Queues { main: stack.queue.clone(), low_priority: stack.low_priority_queue.clone() };
    let sender = Sender::new(deployment.target.clients.sqs.clone(), queues);
    sender.producer("everfresh-cli", env!("CARGO_PKG_VERSION")).send(message).await?;
    Ok(())
}

pub(super) fn would(deployment: &Deployment, what: &str) -> anyhow::Result<()> {
    if deployment.json {
        return output::json_line(&json!({"dry_run": true, "would": what}));
    }
    say!("would {what}")
}

pub(super) fn done(
    deployment: &Deployment,
    page: &PageKey,
    what: &str,
    version: &str,
    next: &str,
) -> anyhow::Result<()> {
    if deployment.json {
        return output::json_line(&json!({"path": page.path().as_str(), "done": what, "version": version}));
    }
    say!("{} is {what}, version {version}. {next}", page.path())
}

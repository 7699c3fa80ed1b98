//! Arguments of the command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::dlq::DlqCommand;
use crate::withdrawals::WithdrawalsCommand;
use crate::{prewarm, request};

/// Operates Everfresh, which keeps rendered pages fresh, on AWS or on this machine.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Every command except `dev` and `config` uses the running `dev`, and AWS only with --stack NAME. It prints which one to standard error.

  everfresh dev                        run everything on this machine: no AWS account, no Docker, no network
  everfresh enqueue /products/1        request a new version of a page from the running `dev`
  everfresh page show /products/1      show the published version, its freshness and its lease
  everfresh status --stack shop        show the queues of the deployed stack `shop`
  everfresh dlq list                   show the messages that were rejected
  everfresh doctor                     check permissions, settings and versions, and say what to do

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 busy or not finished in time. With --json an error is {\"error\": \"…\"} on standard output, with the same code.";

pub(crate) const DEFAULT_DATA: &str = ".everfresh";

/// Which deployment a command uses.
#[derive(Debug, ClapArgs)]
pub(crate) struct TargetArgs {
    /// Use this CloudFormation stack on AWS, with your AWS profile or AWS_* variables
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "data")]
    pub(crate) stack: Option<String>,

    /// Data folder of the local `dev`
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_DATA)]
    pub(crate) data: PathBuf,

    /// Configuration file (everfresh.toml); default: the one of the running `dev` or of the stack
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run Everfresh on this machine: local DynamoDB, S3 and SQS, worker, HTTP server and a demo
    /// site
    Dev(DevArgs),
    /// Enqueue a request to regenerate a page, or to make all pages with a tag stale
    Enqueue(EnqueueArgs),
    /// Inspect pages, and change what is published
    #[command(subcommand)]
    Page(PageCommand),
    /// Say why a URL is served as it is, and what happens next
    Explain(ExplainArgs),
    /// Inspect or end the lease of a page
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Pause regeneration: requests wait, and readers get what is published
    Pause(PauseArgs),
    /// End a pause
    Resume(PauseArgs),
    /// Change how many pages the origin may take down
    #[command(subcommand)]
    Withdrawals(WithdrawalsCommand),
    /// Remove superseded versions, orphaned objects and expired pages
    Sweep(SweepArgs),
    /// Inspect a request
    #[command(subcommand)]
    Request(RequestCommand),
    /// Check a configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Give access to previews
    #[command(subcommand)]
    Preview(PreviewCommand),
    /// Show queues, table and bucket of the running `dev` or of a stack
    Status,
    /// Check permissions, settings, clock and versions of a deployment; say what to do
    Doctor,
    /// Inspect the dead-letter queue, send its messages again or delete them
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Request pages ahead of their first reader, once per deployment
    Prewarm(prewarm::PrewarmArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionArgs {
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DevArgs {
    /// Loopback port that serves the pages; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 3000)]
    pub(crate) port: u16,

    /// Delete the data of earlier runs from the data folder first
    #[arg(long)]
    pub(crate) fresh: bool,

    /// Render every path from this origin server instead of the demo site, for example
    /// http://127.0.0.1:8080
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub(crate) origin: Option<String>,

    /// Loopback port that serves DynamoDB, S3 and SQS to other processes; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) aws_port: u16,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct EnqueueArgs {
    /// Paths of the pages, for example /products/42?color=red
    #[arg(value_name = "PATH", required_unless_present = "tag", conflicts_with = "tag")]
    pub(crate) paths: Vec<String>,

    /// Every page that carries this tag, instead of one page
    #[arg(long)]
    pub(crate) tag: Option<String>,

    /// Tenant of the page; optional if the configuration has only one
    #[arg(long)]
    pub(crate) tenant: Option<String>,

    /// Why the page is to be regenerated. The worker renders nothing if the published version is
    /// already good enough for that reason
    #[arg(long, value_enum, default_value_t = ReasonArg::Changed)]
    pub(crate) reason: ReasonArg,

    /// Idempotency key: two messages with one key are one request. Default: the SQS message id
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Wait until each request is completed, bypassed, rejected or pinned. Exit code 0 only if all
    /// are completed or bypassed, 4 if the time is over
    #[arg(long)]
    pub(crate) wait: bool,

    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "wait")]
    pub(crate) timeout: String,

    /// End the cooldown of a page that failed, so that it is rendered at once
    #[arg(long, conflicts_with = "tag")]
    pub(crate) force: bool,

    /// Show what would be enqueued, and enqueue nothing
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReasonArg {
    /// The source changed: only a render that begins after this request is good enough
    Changed,
    /// The page is no longer fresh: any fresh version is good enough
    Expired,
    /// The page should be ready before it is read: a fresh version of the running deployment is
    /// good enough. Sent to the low-priority queue
    Prewarm,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PageCommand {
    /// List the published pages of a tenant
    List(ListArgs),
    /// Show the published version, its freshness and its lease
    Show(ShowArgs),
    /// List the versions that are kept
    History(PageArgs),
    /// Compare the bodies of two versions
    Diff(DiffArgs),
    /// Publish a kept version again, and pin it
    Rollback(RollbackArgs),
    /// Keep the published version until it is unpinned; changes are recorded meanwhile
    Pin(ChangeArgs),
    /// Let a page be regenerated again, and request it
    Unpin(ChangeArgs),
    /// Make pages stale, or with --hard expired: by path, by prefix or by tag
    Invalidate(InvalidateArgs),
    /// Take pages down: they are answered with 410 until they are unpinned
    Purge(PurgeArgs),
    /// Show why the publish gate refused a render, and its body
    Quarantine(QuarantineArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct QuarantineArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,

    /// Print only the refused body
    #[arg(long)]
    pub(crate) body: bool,
}

/// A page of a tenant.
#[derive(Debug, ClapArgs)]
pub(crate) struct PageArgs {
    /// Path of the page, for example /products/42
    pub(crate) path: String,

    /// Tenant of the page; optional if the configuration has only one
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,

    /// Print only the published body
    #[arg(long)]
    pub(crate) body: bool,

    /// Print only the body of this kept version
    #[arg(long, value_name = "VERSION", conflicts_with = "body")]
    pub(crate) version: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ListArgs {
    /// Only pages whose path begins with this
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,

    /// Only pages in this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<StateArg>,

    /// Tenant of the pages; optional if the configuration has only one
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateArg {
    Fresh,
    Stale,
    Failing,
    Pinned,
    Bypassed,
    Purged,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,

    /// The older version, from `page history`, or `previous`
    pub(crate) old: String,

    /// The newer version; default: the published one
    pub(crate) new: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,

    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RollbackArgs {
    #[command(flatten)]
    pub(crate) change: ChangeArgs,

    /// The version to publish, from `page history`, or `previous`
    pub(crate) version: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InvalidateArgs {
    /// Path of one page
    #[arg(required_unless_present_any = ["prefix", "tag"], conflicts_with_all = ["prefix", "tag"])]
    pub(crate) path: Option<String>,

    /// Every page at and below this path
    #[arg(long, conflicts_with = "tag")]
    pub(crate) prefix: Option<String>,

    /// Every page that carries this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,

    /// Readers wait for the next render, and do not get what is published meanwhile. At the end of
    /// the wait they do, if no render has succeeded
    #[arg(long)]
    pub(crate) hard: bool,

    /// Tenant of the pages; optional if the configuration has only one
    #[arg(long)]
    pub(crate) tenant: Option<String>,

    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PurgeArgs {
    /// Path of one page
    #[arg(required_unless_present_any = ["prefix", "tag"], conflicts_with_all = ["prefix", "tag"])]
    pub(crate) path: Option<String>,

    /// Every published page at and below this path
    #[arg(long, conflicts_with = "tag")]
    pub(crate) prefix: Option<String>,

    /// Every published page that carries this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,

    /// Tenant of the pages; optional if the configuration has only one
    #[arg(long)]
    pub(crate) tenant: Option<String>,

    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    /// URL as a reader requests it, or a path of the tenant
    pub(crate) url: String,

    /// Tenant of a URL without a host; optional if the configuration has only one
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// Show who may publish the page now, and until when
    Show(PageArgs),
    /// End the lease: its worker publishes nothing more, and its request is retried
    Release(ChangeArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PauseArgs {
    /// Only this tenant; default: all of them
    #[arg(long)]
    pub(crate) tenant: Option<String>,

    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    /// Only this tenant; default: all of them
    #[arg(long)]
    pub(crate) tenant: Option<String>,

    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequestCommand {
    /// Show status and events of a request
    Show(RequestArgs),
    /// List the records of a page's requests
    List(request::ListArgs),
    /// Print each event of a request once, until it is completed or rejected
    Tail(request::TailArgs),
    /// Delete records of a page whose worker is gone. Only expired claims; a message that is still
    /// in the queue is claimed anew
    Cleanup(request::CleanupArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RequestArgs {
    /// Handle printed by `enqueue`, or the path of a page: the request that was handled last
    pub(crate) handle: String,

    /// Path of the handle's page. Needed only in a table with raw keys
    #[arg(long, value_name = "PATH")]
    pub(crate) page: Option<String>,

    /// Tenant of the request; optional if the configuration has only one
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PreviewCommand {
    /// Print a preview cookie for a tenant, signed with the first key in EVERFRESH_PREVIEW_KEYS
    Cookie(PreviewArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PreviewArgs {
    /// Tenant of the previews; optional if the configuration has only one
    #[arg(long)]
    pub(crate) tenant: Option<String>,

    /// How long the cookie is valid, for example 30m or 2h
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    pub(crate) time: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the file given by --config (default: everfresh.toml) and report the first error
    Check,
}

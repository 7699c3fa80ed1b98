//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// Keeps rendered pages fresh on AWS, or whole on this machine.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Every command but `dev` and `config` talks to the `dev` that is running, and to AWS only with --stack NAME; each says which on
standard error.

  everfresh dev                        start everything on this machine: no account, no Docker, no network
  everfresh enqueue /products/1        ask the running `dev` for a new version of a page
  everfresh page show /products/1      what is published, how fresh it is, who works on it
  everfresh status --stack shop        the queues of the deployed stack `shop`";

/// The data folder unless another one is named.
pub(crate) const DEFAULT_DATA: &str = ".everfresh";

/// Which Everfresh a command is about.
#[derive(Debug, ClapArgs)]
pub(crate) struct TargetArgs {
    /// Talk to this CloudFormation stack on AWS, with your usual AWS profile or variables
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "data")]
    pub(crate) stack: Option<String>,

    /// The data folder of the local `dev`
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_DATA)]
    pub(crate) data: PathBuf,

    /// The configuration, everfresh.toml; the running `dev` knows its own
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run Everfresh whole on this machine: engines, queue loop, worker, readers and a demo site
    Dev(DevArgs),
    /// Ask for a page to be regenerated, or make all pages with a tag stale
    Enqueue(EnqueueArgs),
    /// Look at a page
    #[command(subcommand)]
    Page(PageCommand),
    /// Look at a request
    #[command(subcommand)]
    Request(RequestCommand),
    /// Check a configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at drafts
    #[command(subcommand)]
    Preview(PreviewCommand),
    /// Show the queues, table and bucket of a running Everfresh
    Status,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DevArgs {
    /// The loopback port on which readers get their pages; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 3000)]
    pub(crate) port: u16,

    /// Forget what earlier runs left in the data folder
    #[arg(long)]
    pub(crate) fresh: bool,

    /// Render every path from this server instead of the demo site, like http://127.0.0.1:8080
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub(crate) origin: Option<String>,

    /// The loopback port on which DynamoDB, S3 and SQS answer other processes; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) aws_port: u16,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct EnqueueArgs {
    /// The page, like /products/42?color=red
    #[arg(required_unless_present = "tag", conflicts_with = "tag")]
    pub(crate) path: Option<String>,

    /// Every page that carries this tag, instead of one page
    #[arg(long)]
    pub(crate) tag: Option<String>,

    /// Whose page; not needed if the configuration has one tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,

    /// Why: it decides when the wish counts as granted
    #[arg(long, value_enum, default_value_t = ReasonArg::Changed)]
    pub(crate) reason: ReasonArg,

    /// Names this wish: two messages with one key are one wish. Without it the message id does
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReasonArg {
    /// The source changed: only a render that begins after this will do
    Changed,
    /// The page outlived its freshness: any fresh page will do
    Expired,
    /// Have it ready: a fresh page of the running deployment will do
    Prewarm,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PageCommand {
    /// What is published, how fresh it is, who works on it
    Show(PageArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PageArgs {
    /// The page, like /products/42
    pub(crate) path: String,

    /// Print the published body and nothing else
    #[arg(long)]
    pub(crate) body: bool,

    /// Whose page; not needed if the configuration has one tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequestCommand {
    /// How far a request has come, and what happened to it
    Show(RequestArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RequestArgs {
    /// The handle that `enqueue` printed
    pub(crate) handle: String,

    /// Whose request; not needed if the configuration has one tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PreviewCommand {
    /// Sign a cookie that opens a tenant's previews, with the first key in EVERFRESH_PREVIEW_KEYS
    Cookie(PreviewArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PreviewArgs {
    /// Whose drafts; not needed if the configuration has one tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,

    /// How long it opens them, like 30m or 2h
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    pub(crate) time: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether the file given by --config is right, and what is wrong with it if not
    Check,
}

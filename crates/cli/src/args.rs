//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

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
Every command but `dev` talks to the `dev` that is running, and to AWS only with --stack NAME; each says which on standard error.

  everfresh dev                    start everything on this machine: no account, no Docker, no network
  everfresh status                 what the running `dev` holds
  everfresh status --stack shop    the same of the deployed stack `shop`";

/// Which Everfresh a command is about.
#[derive(Debug, ClapArgs)]
pub(crate) struct TargetArgs {
    /// Talk to this CloudFormation stack on AWS, with your usual AWS profile or variables
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "data")]
    pub(crate) stack: Option<String>,

    /// The data folder of the local `dev`
    #[arg(long, global = true, value_name = "DIR", default_value = ".everfresh")]
    pub(crate) data: PathBuf,

    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run Everfresh whole on this machine: engines, queue loop and all
    Dev(DevArgs),
    /// Show the queues, table and bucket of a running Everfresh
    Status,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DevArgs {
    /// Forget what earlier runs left in the data folder
    #[arg(long)]
    pub(crate) fresh: bool,

    /// The loopback port on which DynamoDB, S3 and SQS answer other processes; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) aws_port: u16,
}

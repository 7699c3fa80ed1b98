//! Arguments of `everfresh dlq`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List the messages of the dead-letter queue, with the reason of each
    List(ListArgs),
    /// Show one message: why it was rejected, its attributes and its body
    Show(ShowArgs),
    /// Send messages to their queue again under their old keys, then delete them from the
    /// dead-letter queue. At least once: a message that is sent twice is still one request
    Redrive(RedriveArgs),
    /// Delete messages from the dead-letter queue for good
    Drop(DropArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(super) filter: Filter,

    /// List at most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    pub(super) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Message id, as `dlq list` prints it
    pub(super) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    #[command(flatten)]
    pub(super) selection: Selection,
}

#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    #[command(flatten)]
    pub(super) selection: Selection,

    /// Confirm that the messages are to be deleted
    #[arg(long, required_unless_present = "dry_run")]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct Selection {
    /// Message ids, as `dlq list` prints them
    #[arg(value_name = "ID", required_unless_present_any = ["reason", "path", "all"])]
    pub(super) ids: Vec<String>,

    #[command(flatten)]
    pub(super) filter: Filter,

    /// Every message
    #[arg(long, conflicts_with_all = ["ids", "reason", "path"])]
    pub(super) all: bool,

    /// Only show which messages these are
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Only messages that were rejected for this reason, for example attempts
    #[arg(long, value_name = "REASON")]
    pub(super) reason: Option<String>,

    /// Only messages for this path, as it is in the message
    #[arg(long, value_name = "PATH")]
    pub(super) path: Option<String>,
}

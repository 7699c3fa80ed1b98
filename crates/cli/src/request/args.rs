//! Arguments of `everfresh request`.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Path of the page
    pub(super) page: String,

    /// Tenant of the page; optional if the configuration has only one
    #[arg(long)]
    pub(super) tenant: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// Handle printed by `enqueue`, or the path of a page: the request that was handled last
    pub(super) request: String,

    /// Path of the handle's page. Needed only in a table with raw keys
    #[arg(long, value_name = "PATH")]
    pub(super) page: Option<String>,

    /// Only events after this number, to resume an earlier `tail`
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(super) after: u64,

    /// Give up after this time, for example 60s
    #[arg(long, value_name = "TIME")]
    pub(super) timeout: Option<String>,

    /// Tenant of the request; optional if the configuration has only one
    #[arg(long)]
    pub(super) tenant: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Path of the page
    pub(super) page: String,

    /// Status of the records to delete
    #[arg(long, value_enum)]
    pub(super) status: CleanupStatus,

    /// Only records whose last event is at least this old, for example 1h
    #[arg(long, value_name = "TIME")]
    pub(super) older_than: String,

    /// Only show which records these are
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Tenant of the page; optional if the configuration has only one
    #[arg(long)]
    pub(super) tenant: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CleanupStatus {
    /// The worker crashed, or the message was lost
    Started,
    /// The last attempt failed
    Failed,
}

//! `everfresh page`: inspects pages, and changes what is published.

mod change;
mod diff;
mod history;
mod list;
mod purge;
mod quarantine;
pub(crate) mod show;
mod state;

use everfresh_core::config::Config;

use crate::args::{PageCommand, TargetArgs};
use crate::target::Target;

pub(crate) async fn run(command: PageCommand, args: &TargetArgs) -> anyhow::Result<()> {
    let target = Target::resolve(args).await?;
    let config = target.config().await?;
    let deployment = Deployment { target, config, json: args.json };
    match command {
        PageCommand::List(list) => list::run(&deployment, list).await,
        PageCommand::Show(page) => show::run(&deployment, page).await,
        PageCommand::History(page) => history::run(&deployment, page).await,
        PageCommand::Diff(diff) => diff::run(&deployment, diff).await,
        PageCommand::Pin(page) => change::pin(&deployment, page).await,
        PageCommand::Unpin(page) => change::unpin(&deployment, page).await,
        PageCommand::Rollback(page) => change::roll_back(&deployment, page).await,
        PageCommand::Invalidate(pages) => change::invalidate(&deployment, pages).await,
        PageCommand::Purge(pages) => purge::run(&deployment, pages).await,
        PageCommand::Quarantine(page) => quarantine::run(&deployment, page).await,
    }
}

/// The deployment that a command is about, and its configuration.
pub(crate) struct Deployment {
    pub(crate) target: Target,
    pub(crate) config: Config,
    /// Print JSON.
    pub(crate) json: bool,
}

//! `everfresh dlq`: what is in the dead-letter queue, sending it again, and deleting it.

mod args;
mod dead_letter;
mod list;
mod take;
mod walk;

pub(crate) use self::args::DlqCommand;
use self::args::Filter;
use self::dead_letter::DeadLetter;
use self::take::Act;
use crate::args::TargetArgs;
use crate::target::Target;

pub(crate) async fn run(command: DlqCommand, target: &TargetArgs) -> anyhow::Result<()> {
    let json = target.json;
    let target = Target::resolve(target).await?;
    match command {
        DlqCommand::List(args) => list::list(&args, &target, json).await,
        DlqCommand::Show(args) => list::show(&args, &target, json).await,
        DlqCommand::Redrive(args) => take::run(&args.selection, Act::Redrive, &target, json).await,
        DlqCommand::Drop(args) => take::run(&args.selection, Act::Drop, &target, json).await,
    }
}

impl Filter {
    fn selects(&self, dead_letter: &DeadLetter) -> bool {
        let reason = self.reason.as_deref().is_none_or(|reason| dead_letter.reason() == Some(reason));
        reason && self.path.as_deref().is_none_or(|path| dead_letter.field("path") == Some(path))
    }
}

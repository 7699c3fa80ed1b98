//! `everfresh completion`: a script that completes commands and options, for the shell to read.

use clap::CommandFactory;

use crate::args::{Args, CompletionArgs};
use crate::output;

pub(crate) fn run(args: &CompletionArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "everfresh", &mut script);
    output::bytes(&script)
}

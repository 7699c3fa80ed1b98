//! The `everfresh` command: runs Everfresh on this machine, and looks after it wherever it runs.

mod args;
mod config;
mod demo;
mod dev;
mod enqueue;
mod output;
mod page;
mod preview;
mod readers;
mod request;
mod settings;
mod status;
mod target;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use everfresh_core::logs;
use everfresh_worker::render::templates::TemplateProcess;
use tokio::runtime::Runtime;

use crate::args::{Args, Command, ConfigCommand, PageCommand, PreviewCommand, RequestCommand};
use crate::output::{Log, OutputClosed, note};

fn main() -> ExitCode {
    // `dev` starts this executable again for each template that it renders.
    if let Some(ended) = TemplateProcess::entered() {
        return ended;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        // It repeats what it was given, which may have been copied from anywhere.
        Err(error) if error.use_stderr() => {
            note!("{}", error.render().to_string().trim_end());
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    // The engines chatter about every queue and bucket; what a person wants to see is what Everfresh does.
    logs::init_readable(
        "warn,everfresh=info,everfresh_core=info,everfresh_local=info,everfresh_serve=info,everfresh_worker=info",
        || Log,
    );
    let done = Runtime::new().context("starting").and_then(|runtime| {
        let done = runtime.block_on(run(args));
        // Not waited for: a render that a second Ctrl-C cut off may be on a thread of its own.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<OutputClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            note!("error: {}", in_one_line(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let target = &args.target;
    match args.command {
        Command::Dev(dev) => dev::run(dev, target).await,
        Command::Enqueue(wish) => enqueue::run(wish, target).await,
        Command::Page(PageCommand::Show(page)) => page::show(page, target).await,
        Command::Request(RequestCommand::Show(request)) => request::show(request, target).await,
        Command::Config(ConfigCommand::Check) => config::check(target),
        Command::Preview(PreviewCommand::Cookie(preview)) => preview::cookie(&preview, target).await,
        Command::Status => status::run(target).await,
    }
}

/// What happened and why, cause after cause, without repeating a cause that its effect already names.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

//! The `everfresh` command: runs Everfresh on this machine, and inspects it here and on AWS.

mod args;
mod completion;
mod config;
mod demo;
mod dev;
mod dlq;
mod doctor;
mod enqueue;
mod exit;
mod explain;
mod lease;
mod output;
mod page;
mod pause;
mod preview;
mod prewarm;
mod readers;
mod request;
mod settings;
mod status;
mod sweep;
mod target;
mod words;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use everfresh_core::logs;
use everfresh_worker::render::templates::TemplateProcess;
use tokio::runtime::Runtime;

use crate::args::{Args, Command, ConfigCommand, PreviewCommand, RequestCommand};
use crate::output::{Log, note};

fn main() -> ExitCode {
    // `dev` starts this executable again for each template render.
    if let Some(exit_code) = TemplateProcess::run_if_requested() {
        return exit_code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        // The error quotes the arguments, which may hold terminal escapes: `note!` escapes them.
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            note!("{}", text.trim_end());
            if std::env::args_os().any(|argument| argument == "--json") {
                exit::print_error(text.trim_end());
            }
            return ExitCode::from(exit::USAGE);
        }
        Err(help) => help.exit(),
    };
    let json = args.target.json;
    // The engines log every call at info; only Everfresh's own crates are shown at that level.
    logs::init_readable(
        "warn,everfresh=info,everfresh_core=info,everfresh_local=info,everfresh_serve=info,everfresh_worker=info",
        || Log,
    );
    let done = Runtime::new().context("starting the Tokio runtime").and_then(|runtime| {
        let done = runtime.block_on(run(args));
        // In the background: a render cut off by a second Ctrl-C may still block a thread.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error, json),
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let target = &args.target;
    match args.command {
        Command::Dev(dev) => dev::run(dev, target).await,
        Command::Enqueue(enqueue) => enqueue::run(enqueue, target).await,
        Command::Page(command) => page::run(command, target).await,
        Command::Explain(url) => explain::run(&url, target).await,
        Command::Lease(command) => lease::run(command, target).await,
        Command::Pause(pause) => pause::pause(&pause, target).await,
        Command::Resume(pause) => pause::resume(&pause, target).await,
        Command::Sweep(args) => sweep::run(&args, target).await,
        Command::Request(RequestCommand::Show(request)) => request::show(request, target).await,
        Command::Config(ConfigCommand::Check) => config::check(target),
        Command::Preview(PreviewCommand::Cookie(preview)) => preview::cookie(&preview, target).await,
        Command::Status => status::run(target).await,
        Command::Doctor => doctor::run(target).await,
        Command::Completion(args) => completion::run(&args),
        Command::Dlq(command) => dlq::run(command, target).await,
        Command::Prewarm(args) => prewarm::run(args, target).await,
        Command::Request(RequestCommand::List(args)) => request::list(args, target).await,
        Command::Request(RequestCommand::Tail(args)) => request::tail(args, target).await,
        Command::Request(RequestCommand::Cleanup(args)) => request::cleanup(args, target).await,
    }
}

//! The `everfresh` command: runs Everfresh on this machine, and looks after it wherever it runs.
#![allow(clippy::print_stdout, reason = "what a command prints is its result")]

mod args;
mod config;
mod demo;
mod dev;
mod enqueue;
mod page;
mod preview;
mod readers;
mod request;
mod status;
mod target;

use std::process::ExitCode;

use clap::Parser;
use everfresh_core::logs;

use crate::args::{Args, Command, ConfigCommand, PageCommand, PreviewCommand, RequestCommand};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // The engines chatter about every queue and bucket; what a person wants to see is what Everfresh does.
    logs::init(
        logs::Format::detect(),
        "warn,everfresh=info,everfresh_core=info,everfresh_local=info,everfresh_serve=info,everfresh_worker=info",
    );
    let target = &args.target;
    let done = match args.command {
        Command::Dev(dev) => dev::run(dev, target).await,
        Command::Enqueue(wish) => enqueue::run(wish, target).await,
        Command::Page(PageCommand::Show(page)) => page::show(page, target).await,
        Command::Request(RequestCommand::Show(request)) => request::show(request, target).await,
        Command::Config(ConfigCommand::Check) => config::check(target),
        Command::Preview(PreviewCommand::Cookie(preview)) => preview::cookie(&preview, target).await,
        Command::Status => status::run(target).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", in_one_line(&error));
            ExitCode::FAILURE
        }
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

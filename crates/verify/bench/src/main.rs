//! Measures what a function costs.
#![allow(clippy::print_stdout, reason = "the report is the result")]

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use everfresh_bench::measure::{self, Effort};
use everfresh_bench::report;
use everfresh_bench::subject::{SERVE, Subject, WORKER};

/// What the Lambda functions cost, as multiples of one that only answers its payload.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Size, CPU time of a start and of each kind of request, memory.
    Functions {
        /// Which ones, besides the yardstick.
        #[arg(default_values = [SERVE, WORKER])]
        names: Vec<String>,
        /// Where the binaries are.
        #[arg(long, default_value = "target/release")]
        dir: PathBuf,
        /// Fewer rounds.
        #[arg(long)]
        quick: bool,
        /// For machines.
        #[arg(long)]
        json: bool,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Command::Functions { names, dir, quick, json } = Arguments::parse().command;
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let subjects = Subject::prepare_all(&names, &dir, effort).await?;
    let figures = measure::run(&subjects, effort, |what| eprintln!("{what}")).await?;
    if json {
        println!("{:#}", report::json(&figures));
    } else {
        print!("{}", report::text(&figures));
    }
    Ok(())
}

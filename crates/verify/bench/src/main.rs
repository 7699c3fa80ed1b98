//! `everfresh-bench`: measures the Lambda functions.
#![allow(clippy::print_stdout, reason = "the report is the output")]

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use everfresh_bench::measure::{self, Effort};
use everfresh_bench::report;
use everfresh_bench::subject::{SERVE, Subject, WORKER};

/// Measures the Lambda functions, relative to one that only returns its payload.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Size, CPU time of a start and of each kind of request, memory.
    Functions {
        /// Functions to measure besides the baseline.
        #[arg(default_values = [SERVE, WORKER])]
        names: Vec<String>,
        /// Directory of the binaries.
        #[arg(long, default_value = "target/release")]
        dir: PathBuf,
        /// Fewer rounds.
        #[arg(long)]
        quick: bool,
        /// Print JSON.
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

//! `everfresh-load`: many changes in real time on the local stack.
#![allow(clippy::print_stdout, reason = "the report is the output")]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use everfresh_simulation::load::{Load, run};

#[derive(Debug, Parser)]
#[command(
    about = "Changes pages in real time on the local stack, every tenth message sent twice, and counts lost changes"
)]
struct Args {
    /// Changes per second
    #[arg(long, default_value_t = 30)]
    rate: u32,

    /// Duration in seconds
    #[arg(long, default_value_t = 120)]
    seconds: u64,

    /// Number of pages
    #[arg(long, default_value_t = 50)]
    pages: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let load = Load { rate: args.rate, time: Duration::from_secs(args.seconds), pages: args.pages };
    let report = match run(load).await {
        Ok(report) => report,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if args.json {
        println!("{}", serde_json::json!(report));
    } else {
        println!("messages              {:>8}  ({} of them double fires)", report.messages, report.double_fires);
        println!("commits               {:>8}", report.commits);
        println!("duplicates prevented  {:>8}", report.duplicates_prevented);
        println!("rejected              {:>8}", report.rejected);
        println!("changes lost          {:>8}", report.lost);
        for (percentile, ms) in &report.staleness_ms {
            println!("staleness {percentile}         {ms:>8} ms");
        }
        println!("took                  {:>8.1} s", report.seconds);
    }
    if report.lost == 0 && report.rejected == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

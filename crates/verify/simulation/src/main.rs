//! `everfresh-simulate`: runs seeds and reports violations.
#![allow(clippy::print_stdout, reason = "the report is the output")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use clap::{Parser, ValueEnum};
use everfresh_core::branches::Branch;
use everfresh_core::domain::digest::Digest;
use everfresh_simulation::guards::Guard;
use everfresh_simulation::known::Known;
use everfresh_simulation::run::{Figures, Report, run};

#[derive(Debug, Parser)]
#[command(
    about = "Runs the real code under faults drawn by seed, and checks the invariants after every write, response and ack"
)]
struct Args {
    /// Number of seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,

    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,

    /// Run only this seed and print every step
    #[arg(long)]
    replay: Option<u64>,

    /// Remove this guard, and stop at the first violation
    #[arg(long, value_enum)]
    without: Option<Guard>,

    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,

    /// Print the names of all faults, guards, properties, outcomes, refusals and branches, and run
    /// nothing
    #[arg(long)]
    list: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    // Renderers panic as an injected fault; their messages are not printed.
    std::panic::set_hook(Box::new(|panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&"a bug in the renderer") {
            eprintln!("{panic}");
        }
    }));
    let args = Args::parse();
    if args.list {
        list(args.json);
        return ExitCode::SUCCESS;
    }
    let done = match args.replay {
        Some(seed) => replay(seed, args.without),
        None => seeds(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list(json: bool) {
    let known = Known::all();
    if json {
        println!("{}", serde_json::json!({"known": known}));
        return;
    }
    for (kind, names) in known.kinds() {
        println!("{kind}");
        for name in names {
            println!("  {name}");
        }
    }
}

fn replay(seed: u64, without: Option<Guard>) -> anyhow::Result<bool> {
    let report = run(seed, without, true)?;
    if let Some(profile) = &report.profile {
        println!("{profile:#?}");
    }
    for line in &report.lines {
        println!("{line}");
    }
    for violation in &report.violations {
        println!("{:?} broken at {} ms: {}", violation.property, violation.at_ms, violation.what);
    }
    println!("seed {seed}, trace {}", report.trace);
    Ok(report.violations.is_empty())
}

fn seeds(args: &Args) -> anyhow::Result<bool> {
    let next = AtomicU64::new(args.from);
    let end = args.from + args.seeds;
    let total = Mutex::new((Figures::default(), Vec::<(u64, Report)>::new(), BTreeMap::<u64, String>::new()));
    let work = || -> anyhow::Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return Ok(());
            }
            let report = std::panic::catch_unwind(|| run(seed, args.without, false));
            let report = match report {
                Ok(report) => report.with_context(|| format!("seed {seed}"))?,
                Err(_) => anyhow::bail!("seed {seed} panicked: {}", replay_command(seed, args.without)),
            };
            let Ok(mut total) = total.lock() else { return Ok(()) };
            total.0.add(&report.figures);
            total.2.insert(seed, report.trace.clone());
            if !report.violations.is_empty() {
                total.1.push((seed, report));
                // One violation shows that the missing guard is found.
                if args.without.is_some() {
                    next.store(end, Ordering::Relaxed);
                }
            }
            if total.0.runs % 500 == 0 {
                eprintln!("{} runs, {} with violations", total.0.runs, total.1.len());
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => anyhow::bail!("a thread panicked"),
        })
    })?;
    let Ok((figures, mut broken, traces)) = total.into_inner() else { anyhow::bail!("a thread panicked") };
    broken.sort_by_key(|(seed, _)| *seed);
    if args.json {
        println!("{}", json(&figures, &broken, &traces));
    } else {
        print(&figures, &broken, args.without);
    }
    Ok(broken.is_empty())
}

fn json(figures: &Figures, broken: &[(u64, Report)], traces: &BTreeMap<u64, String>) -> serde_json::Value {
    let trace = Digest::of(format!("{traces:?}").as_bytes()).to_string();
    let broken: Vec<_> = broken
        .iter()
        .map(|(seed, report)| {
            let first = &report.violations[0];
            serde_json::json!({"seed": seed, "property": first.property.name(), "what": first.what})
        })
        .collect();
    serde_json::json!({
        "runs": figures.runs, "fewest_workers": figures.fewest_workers, "fewest_messages": figures.fewest_messages,
        "steps": figures.steps, "messages": figures.messages, "commits": figures.commits,
        "renders": figures.renders, "reads": figures.reads, "dead_letters": figures.dead_letters,
        "faults": figures.faults, "outcomes": figures.outcomes, "cancellations": figures.cancellations,
        "checks": figures.checks, "branches": figures.branches, "broken": broken, "trace": trace,
        "known": Known::all(),
    })
}

fn print(figures: &Figures, broken: &[(u64, Report)], without: Option<Guard>) {
    let Figures { runs, steps, messages, commits, renders, reads, dead_letters, .. } = figures;
    println!(
        "{runs} runs, {steps} requests, {messages} messages, {renders} renders, {commits} commits, {reads} reads, {dead_letters} dead letters"
    );
    let tables = [
        ("faults", &figures.faults),
        ("outcomes", &figures.outcomes),
        ("refusals", &figures.cancellations),
        ("checks", &figures.checks),
        ("branches", &every_branch(&figures.branches)),
    ];
    for (title, table) in tables {
        println!("\n{title}");
        for (name, count) in table {
            println!("  {name:<44} {count:>10}");
        }
    }
    for (seed, report) in broken.iter().take(10) {
        println!();
        for violation in report.violations.iter().take(3) {
            println!("{:?} broken at {} ms: {}", violation.property, violation.at_ms, violation.what);
        }
        println!("  replay: {}", replay_command(*seed, without));
    }
    println!("\n{} of {runs} runs with violations", broken.len());
}

/// With zero for branches that were never taken.
fn every_branch(taken: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = Branch::ALL.iter().map(|branch| (branch.name().to_owned(), 0)).collect();
    all.extend(taken.clone());
    all
}

fn replay_command(seed: u64, without: Option<Guard>) -> String {
    let guard = without.and_then(|guard| guard.to_possible_value());
    let guard = guard.map(|value| format!(" --without {}", value.get_name())).unwrap_or_default();
    format!("scripts/simulate --replay {seed}{guard}")
}

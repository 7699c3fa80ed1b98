//! Checks the model and prints the results; exits with 1 if a result is not the expected one.
#![allow(clippy::print_stdout, reason = "the report is the output")]

use std::process::ExitCode;

use everfresh_model::{REMOVALS, Report, scope, scope_line, scopes, trace, try_removal};

const USAGE: &str = "everfresh-model [--quick] [--json] | --scope NAME | --trace GUARD";

fn main() -> ExitCode {
    let mut quick = false;
    let mut json = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--json" => json = true,
            "--scope" => return print_scope(&args.next().unwrap_or_default()),
            "--trace" => return print_trace(&args.next().unwrap_or_default()),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let report = Report::run(quick, |name| eprintln!("checking {name}"));
    if json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    if report.ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks one scope with all guards on.
fn print_scope(name: &str) -> ExitCode {
    let Some(scope) = scope(name) else {
        eprintln!("{USAGE}");
        for scope in scopes() {
            eprintln!("  {:<14} {}", scope.name, scope.about);
        }
        return ExitCode::from(2);
    };
    let line = scope_line(scope);
    println!("{} states, {}", line.found.states, line.result);
    if let Some(example) = &line.found.broken {
        print!("{}", trace(example));
    }
    if line.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the shortest path on which the removal of a guard breaks its property.
fn print_trace(guard: &str) -> ExitCode {
    let Some(removal) = REMOVALS.iter().find(|removal| removal.name() == guard) else {
        eprintln!("{USAGE}");
        for removal in REMOVALS {
            eprintln!("  {}", removal.name());
        }
        return ExitCode::from(2);
    };
    match try_removal(removal).broken {
        Some(example) => print!("{}", trace(&example)),
        None => println!("nothing breaks without {guard}"),
    }
    ExitCode::SUCCESS
}

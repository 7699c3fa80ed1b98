//! `everfresh doctor`: whether a deployment can work, check by check, and what to do if not.
//!
//! No check changes a row, an object or a message. Writing calls carry a condition that no row
//! meets.

mod access;
mod functions;
mod queues;
mod rows;
mod store;

use everfresh_core::config::Ladder;
use serde::Serialize;

use crate::args::TargetArgs;
use crate::exit::{self, Exit};
use crate::output::{self, say};
use crate::target::Target;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    level: Level,
    found: String,
    /// What to do. None if all is well.
    next: Option<String>,
}

/// The checks so far, in the order of their run.
#[derive(Debug, Default)]
struct Report(Vec<Check>);

impl Report {
    fn ok(&mut self, name: impl Into<String>, found: impl Into<String>) {
        self.0.push(Check { name: name.into(), level: Level::Ok, found: found.into(), next: None });
    }

    fn warn(&mut self, name: impl Into<String>, found: impl Into<String>, next: impl Into<String>) {
        self.0.push(Check { name: name.into(), level: Level::Warn, found: found.into(), next: Some(next.into()) });
    }

    fn fail(&mut self, name: impl Into<String>, found: impl Into<String>, next: impl Into<String>) {
        self.0.push(Check { name: name.into(), level: Level::Fail, found: found.into(), next: Some(next.into()) });
    }

    fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|check| check.level == level).count()
    }
}

pub(crate) async fn run(args: &TargetArgs) -> anyhow::Result<()> {
    let target = Target::resolve(args).await?;
    let mut report = Report::default();
    access::check(&target, &mut report).await;
    store::table(&target, &mut report).await;
    store::bucket(&target, &mut report).await;
    let ladder = functions::check(&target, &mut report).await;
    queues::check(&target, ladder, &mut report).await;
    let config = match target.config().await {
        Ok(config) => {
            report.ok("configuration", target.config_location());
            Some(config)
        }
        Err(error) => {
            report.fail("configuration", format!("{error:#}"), "correct it, and try it with `everfresh config check`");
            None
        }
    };
    if let Some(config) = &config {
        rows::check(&target, config, &mut report).await;
    }
    // Last: each call before has narrowed the estimate of AWS's time.
    clock(&target, &mut report);
    print(&target, &report, args.json)?;
    match report.count(Level::Fail) {
        0 => Ok(()),
        failed => Err(exit::after_result(Exit::Failed, format!("{failed} checks failed"))),
    }
}

/// The ladder of timeouts, from wherever it is known.
fn ladder(ladder: &Ladder, report: &mut Report) {
    match ladder.check() {
        Ok(()) => report.ok(
            "timeouts",
            format!(
                "render {} s < function {} s < claim {} s < visibility {} s; lease {} s, renewed each {} s",
                ladder.render_deadline_ms / 1_000,
                ladder.function_timeout_ms / 1_000,
                ladder.claim_expiry_ms / 1_000,
                ladder.visibility_ms / 1_000,
                ladder.lease_ms / 1_000,
                ladder.renew_interval_ms / 1_000
            ),
        ),
        Err(error) => report.fail("timeouts", error.to_string(), "correct these variables of the worker"),
    }
}

/// Signatures are refused at five minutes, and what this machine writes is dated by AWS's time, so
/// that a small offset does no harm.
fn clock(target: &Target, report: &mut Report) {
    let time = &target.clients.time;
    let Some(error_ms) = time.error_ms() else {
        let next = "check that a proxy does not remove the header `Date`";
        return report.warn("clock", "no answer had a date, so the offset is not known", next);
    };
    let offset_ms = everfresh_core::clock::Clock::system().now_ms().cast_signed() - time.now_ms().cast_signed();
    let shown = format!("this machine is {offset_ms} ms (± {error_ms} ms) ahead of the service");
    match is_off(offset_ms, error_ms, target.epsilon_ms) {
        false => report.ok("clock", shown),
        true => report.warn("clock", shown, "synchronise this machine's clock, for example with chrony"),
    }
}

/// Whether the clock is off by more than ε for certain.
fn is_off(offset_ms: i64, error_ms: u64, epsilon_ms: u64) -> bool {
    offset_ms.unsigned_abs().saturating_sub(error_ms) > epsilon_ms
}

fn print(target: &Target, report: &Report, as_json: bool) -> anyhow::Result<()> {
    let (warned, failed) = (report.count(Level::Warn), report.count(Level::Fail));
    if as_json {
        return output::json(&serde_json::json!({
            "target": target.name,
            "ok": failed == 0,
            "warnings": warned,
            "failures": failed,
            "checks": report.0,
        }));
    }
    for Check { name, level, found, next } in &report.0 {
        let level = match level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        let next = next.as_deref().map_or(String::new(), |next| format!(" → {next}"));
        say!("{level:<4}  {name:<28}  {found}{next}")?;
    }
    say!("{} checks, {warned} warnings, {failed} failures", report.0.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_off_beyond_epsilon_and_the_error_of_the_estimate() {
        for (offset_ms, off) in [(0, false), (2_500, false), (2_501, true), (-2_500, false), (-2_501, true)] {
            assert_eq!(is_off(offset_ms, 500, 2_000), off, "{offset_ms}");
        }
        assert!(!is_off(0, u64::MAX, 2_000));
    }

    #[test]
    fn timeouts_that_do_not_fit_fail_with_their_variables() {
        let mut report = Report::default();
        ladder(&Ladder::default(), &mut report);
        ladder(&Ladder { visibility_ms: 1_000, ..Ladder::default() }, &mut report);
        assert_eq!((report.count(Level::Ok), report.count(Level::Fail)), (1, 1));
        assert!(report.0[1].found.contains("EVERFRESH_VISIBILITY_MS (1000)"), "{report:?}");
    }
}

//! Exit codes, and how an error is reported.

use std::fmt;
use std::process::ExitCode;

use everfresh_core::aws_error::AwsError;

use crate::output::{self, OutputClosed, note};

pub(crate) const USAGE: u8 = 2;

/// Why a command failed, as scripts see it in the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed,
    NotFound,
    /// Another operation is under way, or the time was over.
    Unfinished,
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Exit::Failed => 1,
            Exit::NotFound => 3,
            Exit::Unfinished => 4,
        }
    }
}

/// An error with its exit code.
#[derive(Debug)]
struct Ended {
    exit: Exit,
    text: String,
    /// The command has printed its result, so that standard output gets no second document.
    has_printed: bool,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Ended {}

pub(crate) fn not_found(text: impl Into<String>) -> anyhow::Error {
    Ended { exit: Exit::NotFound, text: text.into(), has_printed: false }.into()
}

pub(crate) fn unfinished(text: impl Into<String>) -> anyhow::Error {
    Ended { exit: Exit::Unfinished, text: text.into(), has_printed: false }.into()
}

/// Whether this is how the command ended.
pub(crate) fn is(error: &anyhow::Error, exit: Exit) -> bool {
    error.downcast_ref::<Ended>().is_some_and(|ended| ended.exit == exit)
}

/// For a command that has printed its result: only the exit code and the line on standard error are
/// left.
pub(crate) fn after_result(exit: Exit, text: impl Into<String>) -> anyhow::Error {
    Ended { exit, text: text.into(), has_printed: true }.into()
}

/// Reports the error, with `--json` on standard output too, and returns its exit code.
pub(crate) fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    if error.is::<OutputClosed>() {
        return ExitCode::SUCCESS;
    }
    let line = in_one_line(error);
    note!("error: {line}");
    let ended = error.downcast_ref::<Ended>();
    if json && !ended.is_some_and(|ended| ended.has_printed) {
        print_error(&line);
    }
    ExitCode::from(ended.map_or(Exit::Failed, |ended| ended.exit).code())
}

/// Write errors are ignored: standard error has the line.
pub(crate) fn print_error(text: &str) {
    let _ = output::json(&serde_json::json!({"error": text}));
}

/// The error and its causes, without causes that are already part of the line, and without those
/// below an [`AwsError`]: its text says what they mean.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        if cause.is::<AwsError>() {
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn exit_code_survives_further_context() {
        let exit = |error: anyhow::Error| error.downcast_ref::<Ended>().map(|ended| ended.exit);
        assert_eq!(exit(not_found("a")), Some(Exit::NotFound));
        let wrapped = Err::<(), _>(unfinished("a")).context("b").unwrap_err();
        assert_eq!((exit(wrapped), exit(anyhow::anyhow!("c"))), (Some(Exit::Unfinished), None));
    }
}

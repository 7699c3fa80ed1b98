//! What a command says: its result on standard output, everything else on standard error.
//!
//! Control characters are escaped on the way, as JSON does it: rows and files of others may hold the codes that a terminal obeys.

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use serde::Serialize;

/// One line on standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// One line on standard error, lost if that is closed: there is nobody left to be told.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::aside(format_args!($($text)*)) };
}

pub(crate) use {note, say};

/// Whoever read standard output has gone, and has all that they wanted.
#[derive(Debug)]
pub(crate) struct NobodyReads;

impl fmt::Display for NobodyReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output any more")
    }
}

impl std::error::Error for NobodyReads {}

pub(crate) fn line(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    bytes(format!("{}\n", on_one_line(&text.to_string())).as_bytes())
}

/// A JSON document, for people to read too.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<()> {
    bytes(format!("{}\n", on_lines(&serde_json::to_string_pretty(document)?)).as_bytes())
}

/// Exactly these bytes.
pub(crate) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(NobodyReads.into()),
        done => done.context("standard output cannot be written"),
    }
}

pub(crate) fn aside(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", on_lines(&text.to_string()));
}

fn on_one_line(text: &str) -> String {
    escaped(text, &['\t'])
}

/// Lines stay lines, as in the errors about a configuration, which show where they are.
fn on_lines(text: &str) -> String {
    escaped(&text.replace("\r\n", "\n"), &['\t', '\n'])
}

fn escaped(text: &str, harmless: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && !harmless.contains(&character) {
            // A string takes everything.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\u{7f}\u{7}\r\u{0}é\td";
        assert_eq!(on_one_line(hostile), "a\\u001b[2Jb\\u009b31mc\\u007f\\u0007\\u000d\\u0000é\td");
        assert_eq!(on_one_line("body\nstatus     200"), "body\\u000astatus     200");
        assert_eq!(on_lines("line 1\r\n  |\n\u{1b}"), "line 1\n  |\n\\u001b");
    }

    #[test]
    fn escaped_json_is_the_same_json() {
        let document = serde_json::json!({"key": "\u{1b}[2J\u{9b}\u{7f}\n"});
        let shown = on_lines(&serde_json::to_string_pretty(&document).unwrap());
        assert!(!shown.chars().any(|character| character.is_control() && character != '\n'), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
    }
}

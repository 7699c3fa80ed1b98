//! Output of a command: the result on standard output, everything else on standard error.
//!
//! Control characters and invisible characters are escaped as in JSON: untrusted rows and files may
//! hold terminal escape sequences or reverse the order of a line.

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use serde::Serialize;

/// One line on standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// One line on standard error. Write errors are ignored: there is no other place to report them.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::aside(format_args!($($text)*)) };
}

pub(crate) use {note, say};

/// The reader of standard output closed it, as `head` does. Not a failure.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for OutputClosed {}

pub(crate) fn line(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    bytes(format!("{}\n", on_one_line(&text.to_string())).as_bytes())
}

/// A JSON document, indented.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<()> {
    bytes(format!("{}\n", on_lines(&serde_json::to_string_pretty(document)?)).as_bytes())
}

/// A JSON document on one line, for lists of any length.
pub(crate) fn json_line(document: &impl Serialize) -> anyhow::Result<()> {
    bytes(format!("{}\n", on_one_line(&serde_json::to_string(document)?)).as_bytes())
}

/// Text of several lines.
pub(crate) fn lines(text: &str) -> anyhow::Result<()> {
    bytes(on_lines(text).as_bytes())
}

/// Exactly these bytes, unescaped.
pub(crate) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        done => done.context("standard output cannot be written"),
    }
}

pub(crate) fn aside(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", on_lines(&text.to_string()));
}

fn on_one_line(text: &str) -> String {
    escaped(text, &['\t'])
}

/// Keeps line breaks: configuration errors show the line in question.
fn on_lines(text: &str) -> String {
    escaped(&text.replace("\r\n", "\n"), &['\t', '\n'])
}

fn escaped(text: &str, allowed: &[char]) -> String {
    escaped_where(text, |character| {
        is_invisible(character) || (character.is_control() && !allowed.contains(&character))
    })
}

/// Escapes in UTF-16 as JSON does, so that valid JSON stays the same document.
fn escaped_where(text: &str, escape: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if escape(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Invisible characters that change the text direction, break the line, or make different words
/// look the same: Unicode's Default_Ignorable_Code_Point, the line and paragraph separators, and
/// interlinear annotations.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Log output of `dev`. The logger escapes control characters in values but not invisible ones; its
/// own colour codes must pass.
#[derive(Debug)]
pub(crate) struct Log;

impl Write for Log {
    /// The logger writes each line with one call, so no character is split.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(log_line(line).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn log_line(line: &[u8]) -> String {
    escaped_where(&String::from_utf8_lossy(line), is_invisible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_keep_colours_and_escape_invisible_characters() {
        let line = "\u{1b}[33m WARN\u{1b}[0m gpj.\u{202e}exe\n";
        assert_eq!(log_line(line.as_bytes()), "\u{1b}[33m WARN\u{1b}[0m gpj.\\u202eexe\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\u{7f}\u{7}\r\u{0}é\td";
        assert_eq!(on_one_line(hostile), "a\\u001b[2Jb\\u009b31mc\\u007f\\u0007\\u000d\\u0000é\td");
        assert_eq!(on_one_line("body\nstatus     200"), "body\\u000astatus     200");
        assert_eq!(on_lines("line 1\r\n  |\n\u{1b}"), "line 1\n  |\n\\u001b");
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(
            on_one_line("gpj.\u{202e}exe\u{2066}\u{200b}\u{feff}\u{61c}"),
            "gpj.\\u202eexe\\u2066\\u200b\\ufeff\\u061c"
        );
        assert_eq!(on_one_line("body\u{2028}status\u{e0041}"), "body\\u2028status\\udb40\\udc41");
        for visible in ["é", "e\u{301}", "日本", "שלום", "🍐", "a b\u{a0}c"] {
            assert_eq!(on_one_line(visible), visible);
        }
        let mut ignorable = (0x200b..=0x200f).chain(0x202a..=0x202e).chain(0x2066..=0x2069).chain(0xe0001..=0xe007f);
        assert!(ignorable.all(|number| char::from_u32(number).is_some_and(is_invisible)));
    }

    #[test]
    fn escaped_json_parses_to_the_same_document() {
        let document = serde_json::json!({"key": "\u{1b}[2J\u{9b}\u{7f}\n\u{202e}\u{2028}\u{e0041}"});
        let shown = on_lines(&serde_json::to_string_pretty(&document).unwrap());
        assert!(!shown.chars().any(|character| character.is_control() && character != '\n'), "{shown:?}");
        assert!(!shown.chars().any(is_invisible), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
    }
}

//! What may be logged.
//!
//! A page's path identifies the page; its query may hold an e-mail address, a card number or a
//! token. Logs are kept for long and read by many, so:
//!
//! | What | In a log |
//! |---|---|
//! | a query | `?*`, names and values alike |
//! | a path segment with `@`, with 13 digits or more in a row, or with 20 letters and digits or more in a row and both among them | `*` |
//! | other path segments | as they are: a path is a page's identity |
//! | an idempotency key | `key.` and the first 16 hex digits of its SHA-256 |
//! | the text before an `@`, as in an e-mail address or a URL's user and password | `*` |
//! | control characters and bidirectional controls | escaped, like `\u000a` |
//!
//! A [`LoggedPage`](crate::domain::page_key::LoggedPage) displays a page in this form, followed by
//! the hash by which its rows are found; a `PageKey` displays its whole query and must not be
//! logged itself. Every line, of Everfresh or of a library, goes through [`line()`] when it is
//! written (`logs`).

use std::borrow::Cow;
use std::fmt::Write;

use crate::domain::digest::Digest;

const HIDDEN: &str = "*";

/// A run of digits this long may be a card or account number.
const MANY_DIGITS: usize = 13;

/// A run of mixed letters and digits this long is likely a token.
const LONG_WORD: usize = 20;

/// A path without its query, and without segments that look like a secret.
pub fn path(path_and_query: &str) -> String {
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, _)) => (path, "?*"),
        None => (path_and_query, ""),
    };
    let segments: Vec<&str> =
        path.split('/').map(|segment| if looks_secret(segment) { HIDDEN } else { segment }).collect();
    line(&format!("{}{query}", segments.join("/"))).into_owned()
}

fn looks_secret(segment: &str) -> bool {
    let address = segment.contains('@') || segment.contains("%40");
    let digits = segment.split(|c: char| !c.is_ascii_digit()).any(|row| row.len() >= MANY_DIGITS);
    let token = segment.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
        let mixed = word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic());
        word.len() >= LONG_WORD && mixed
    });
    address || digits || token
}

/// An idempotency key as a hash: it can be searched for (`printf %s KEY | sha256sum`), and not
/// read.
pub fn key(key: &str) -> String {
    let mut hash = Digest::of(key.as_bytes()).to_string();
    hash.truncate(16);
    format!("key.{hash}")
}

/// A row by its sort key, which may hold an idempotency key, a tag or the beginning of a path.
pub fn row(sort_key: &str) -> String {
    match sort_key.split_once('#') {
        Some(("REQ", request)) => format!("REQ#{}", key(request)),
        Some((kind @ ("TAG" | "PREFIX"), rest)) => format!("{kind}#{}", path(rest)),
        Some(_) | None => sort_key.to_owned(),
    }
}

/// A text that was made while handling a page, such as an origin's or a template's error, without
/// the values of the page's query. Values of one or two bytes stay: removing them would garble the
/// text, and they identify no person.
pub fn without_values(text: &str, path_and_query: &str) -> String {
    let mut text = text.to_owned();
    let Some((_, query)) = path_and_query.split_once('?') else { return text };
    let mut values: Vec<String> = query
        .split('&')
        .map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value))
        .flat_map(|value| [value.to_owned(), decoded(value)])
        .filter(|value| value.len() > 2)
        .collect();
    // The longest first: one value may be part of another.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    for value in values {
        text = text.replace(&value, HIDDEN);
    }
    text
}

fn decoded(value: &str) -> String {
    percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned()
}

/// Any text on its way into a log: without queries, without the text before an `@`, and on one
/// line.
pub fn line(text: &str) -> Cow<'_, str> {
    let suspicious = |c: char| matches!(c, '?' | '@' | '%') || breaks_lines(c);
    if !text.contains(suspicious) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if c == '?' {
            let query = after.find(ends_query).unwrap_or(after.len());
            shown.push('?');
            if query > 0 {
                shown.push_str(HIDDEN);
            }
            rest = &after[query..];
            continue;
        }
        if c == '@' || rest.starts_with("%40") {
            let start =
                shown.rfind(begins_word).map_or(0, |at| at + shown[at..].chars().next().map_or(0, char::len_utf8));
            if start < shown.len() {
                shown.truncate(start);
                shown.push_str(HIDDEN);
            }
        }
        if breaks_lines(c) {
            // Readable, and also an escape inside a JSON text.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
        rest = after;
    }
    Cow::Owned(shown)
}

/// Whether the character ends a query within a text.
fn ends_query(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '"' | '\\' | '`')
}

/// What cannot be part of a user's name before an `@`.
fn begins_word(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '"' | '\'' | '\\' | '`' | '/' | '=' | '(' | '<' | '[' | '{' | ',' | ';' | '&')
}

/// Control characters, and those that turn the direction of what follows.
fn breaks_lines(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn path_keeps_its_segments_and_loses_its_query() {
        for (raw, shown) in [
            ("/", "/"),
            ("/products/42", "/products/42"),
            ("/search?email=jane@example.com&card=4111111111111111&token=s3cr3t", "/search?*"),
            ("/blog/2026/01/31/how-to-bake-24-rolls-in-one-hour", "/blog/2026/01/31/how-to-bake-24-rolls-in-one-hour"),
            ("/orders/550e8400-e29b-41d4-a716-446655440000", "/orders/550e8400-e29b-41d4-a716-446655440000"),
            ("/users/jane@example.com/orders", "/users/*/orders"),
            ("/users/jane%40example.com/orders", "/users/*/orders"),
            ("/cards/4111111111111111", "/cards/*"),
            ("/cards/4111-1111-1111-1111", "/cards/4111-1111-1111-1111"),
            ("/reset/aZ3kq9Xw7LmP2vRt8YcB", "/reset/*"),
            ("/internationalisation-and-localisation", "/internationalisation-and-localisation"),
        ] {
            assert_eq!(path(raw), shown, "{raw}");
        }
    }

    #[test]
    fn text_loses_queries_users_and_line_breaks() {
        for (raw, shown) in [
            ("nothing to hide: 42 of 43", "nothing to hide: 42 of 43"),
            ("is it SQS? yes", "is it SQS? yes"),
            ("GET https://o.example/a?t=s3cr3t failed", "GET https://o.example/a?* failed"),
            (r#"{"page":"acme/a?t=s3cr3t","n":1}"#, r#"{"page":"acme/a?*","n":1}"#),
            ("https://user:pw@o.example/", "https://*@o.example/"),
            ("for jane@example.com, jane%40example.com", "for *@example.com, *%40example.com"),
            ("one\r\ntwo\u{85}\u{202e}three", "one\\u000d\\u000atwo\\u0085\\u202ethree"),
        ] {
            assert_eq!(line(raw), shown, "{raw}");
        }
    }

    #[test]
    fn values_of_the_query_are_taken_out_of_an_error() {
        let page = "/search?email=jane%40example.com&q=a&token=s3cr3t";
        let error = "no template s3cr3t for jane@example.com, jane%40example.com at a";
        assert_eq!(without_values(error, page), "no template * for *, * at a");
        assert_eq!(without_values(error, "/search"), error);
    }

    #[test]
    fn key_is_shown_as_the_start_of_its_hash() {
        let hidden = format!("key.{}", &Digest::of(b"jane.doe").to_string()[..16]);
        assert_eq!(key("jane.doe"), hidden);
        assert_eq!(row("REQ#jane.doe"), format!("REQ#{hidden}"));
        assert_eq!(row("PREFIX#/users/jane@example.com"), "PREFIX#/users/*");
        assert_eq!(row("VER#1763270000000000-00000001"), "VER#1763270000000000-00000001");
    }

    proptest! {
        #[test]
        fn no_line_breaks_and_no_query_values_are_left(front in "\\PC{0,8}", value in "[a-z0-9]{6}", back in ".{0,8}") {
            let text = format!("{front}/p?q=Q{value} {back}");
            let shown = line(&text);
            prop_assert!(!shown.contains(breaks_lines), "{}", shown);
            prop_assert!(!shown.contains(&format!("Q{value}")), "{}", shown);
        }
    }
}

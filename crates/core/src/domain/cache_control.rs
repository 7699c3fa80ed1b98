//! The directives of `Cache-Control`, read as RFC 9111 writes them:
//!
//! ```text
//! Cache-Control   = #cache-directive
//! cache-directive = token [ "=" ( token / quoted-string ) ]
//! ```
//!
//! with commas between directives, white space around the commas, and empty elements. Caches
//! disagree about everything else: what one reads as `private` another reads as an argument. So a
//! value in any other form is refused.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Directives separated by commas.
    CacheControl,
    /// The same, and a directive may have parameters after semicolons, as in `CDN-Cache-Control`
    /// (RFC 9213) and `Surrogate-Control`. Parameters are returned as if they were directives.
    WithParameters,
}

/// A directive's name and its argument, without quotes.
pub type Directive<'v> = (&'v str, Option<&'v str>);

/// All directives of one field line, in order. None if it cannot be parsed.
pub fn directives(value: &str, syntax: Syntax) -> Option<Vec<Directive<'_>>> {
    let mut all = Vec::new();
    let mut rest = value;
    loop {
        rest = rest.trim_start_matches(WHITE_SPACE);
        let (name, after) = split_token(rest);
        rest = after;
        // An empty element has no name, and no argument either.
        if !name.is_empty() {
            let mut argument = None;
            if let Some(text) = rest.strip_prefix('=') {
                rest = skip_argument(text)?;
                let whole = &text[..text.len() - rest.len()];
                argument = Some(whole.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(whole));
            }
            all.push((name, argument));
        }
        rest = rest.trim_start_matches(WHITE_SPACE);
        if rest.is_empty() {
            return Some(all);
        }
        rest = rest.strip_prefix(',').or_else(|| match syntax {
            Syntax::CacheControl => None,
            Syntax::WithParameters => rest.strip_prefix(';'),
        })?;
    }
}

const WHITE_SPACE: [char; 2] = [' ', '\t'];

/// A token, perhaps an empty one, and what follows.
fn split_token(text: &str) -> (&str, &str) {
    let in_token = |character: char| character.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(character);
    text.split_at(text.find(|character| !in_token(character)).unwrap_or(text.len()))
}

/// What follows an argument: a token or a quoted string.
fn skip_argument(text: &str) -> Option<&str> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = split_token(text);
        return (!token.is_empty()).then_some(rest);
    };
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some(&quoted[at + 1..]),
            '\\' => {
                let (_, escaped) = characters.next()?;
                is_text(escaped).then_some(())?;
            }
            other => is_text(other).then_some(())?,
        }
    }
    None
}

fn is_text(character: char) -> bool {
    character == '\t' || !character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(value: &str, syntax: Syntax) -> Option<Vec<&str>> {
        Some(directives(value, syntax)?.into_iter().map(|(name, _)| name).collect())
    }

    fn read(value: &str) -> Option<Vec<&str>> {
        names(value, Syntax::CacheControl)
    }

    #[test]
    fn arguments_are_returned_without_quotes() {
        let read = |value| directives(value, Syntax::CacheControl).unwrap();
        assert_eq!(read("max-age=60, public"), [("max-age", Some("60")), ("public", None)]);
        assert_eq!(read("s-maxage=\"60\",a=\"\""), [("s-maxage", Some("60")), ("a", Some(""))]);
    }

    #[test]
    fn directives_are_read_with_their_arguments_left_out() {
        for (value, names) in [
            ("", &[][..]),
            (" , ,\t,", &[]),
            ("public", &["public"]),
            ("public, max-age=60", &["public", "max-age"]),
            ("max-age=60,,private,", &["max-age", "private"]),
            ("max-age=\"60\"", &["max-age"]),
            ("MAX-AGE=60 ,\tPublic", &["MAX-AGE", "Public"]),
            ("private=\"set-cookie, x\"", &["private"]),
            ("ext=\"a \\\" , private\", x", &["ext", "x"]),
            ("ext=\"\"", &["ext"]),
            ("ext=\"\u{fffd}é\"", &["ext"]),
            ("stale-while-revalidate=60, x-unknown, immutable", &["stale-while-revalidate", "x-unknown", "immutable"]),
        ] {
            assert_eq!(read(value).as_deref(), Some(names), "{value:?}");
        }
    }

    #[test]
    fn values_in_any_other_form_are_none() {
        for value in [
            "private; max-age=0",
            "max-age=60; private",
            "no-store;max-age=60",
            "max-age=60 no-store",
            "\"private\"",
            "max-age = 60",
            "max-age=",
            "max-age=, private",
            "=60",
            ", =60",
            "max-age=60=60",
            "max-age=\"60",
            "ext=\"a\\",
            "ext=\"a\"b",
            "ext=\"a\u{1}\"",
            "(private)",
            "privaté",
            "a/b",
            "max-age:60",
        ] {
            assert_eq!(read(value), None, "{value:?}");
        }
    }

    #[test]
    fn parameters_count_as_directives_where_they_are_allowed() {
        let read = |value| names(value, Syntax::WithParameters);
        assert_eq!(read("max-age=60;x=1, must-revalidate"), Some(vec!["max-age", "x", "must-revalidate"]));
        assert_eq!(read("content=\"ESI/1.0\";abc, no-store"), Some(vec!["content", "abc", "no-store"]));
        assert_eq!(read("max-age=60; private"), Some(vec!["max-age", "private"]));
        assert_eq!(read("max-age=60 private"), None);
    }
}

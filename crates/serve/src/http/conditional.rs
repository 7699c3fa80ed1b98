//! Conditional requests (RFC 9110, section 13): whether the client has the page already.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longer lists of ETags are ignored: no client has that many copies of a page.
const MOST_BYTES: usize = 8 * 1024;

/// The last second of the year 9999, and of HTTP dates.
const LAST_HTTP_SECOND: u64 = 253_402_300_799;

#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// With its quotes.
    pub etag: &'a str,
    /// When the content last changed, in Unix seconds.
    pub modified_at: u64,
}

/// Whether the reply is 304. `If-None-Match` takes precedence over the date.
pub fn not_modified(if_none_match: Option<&str>, if_modified_since: Option<&str>, page: Validators<'_>) -> bool {
    match (if_none_match, if_modified_since) {
        (Some(list), _) => any_match(list, page.etag),
        (None, Some(date)) => unmodified_since(date, page.modified_at),
        (None, None) => false,
    }
}

/// Whether one of the listed ETags is `etag`, by weak comparison. `*` is any. A malformed list is
/// read up to the error.
pub fn any_match(list: &str, etag: &str) -> bool {
    if list.len() > MOST_BYTES {
        return false;
    }
    if list.trim_matches([' ', '\t']) == "*" {
        return true;
    }
    let wanted = opaque(etag);
    let mut rest = list;
    while let Some((tag, after)) = next_tag(rest) {
        if tag == wanted {
            return true;
        }
        rest = after;
    }
    false
}

/// The part between the quotes, for weak comparison.
fn opaque(etag: &str) -> &str {
    let strong = etag.strip_prefix("W/").unwrap_or(etag);
    strong.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(strong)
}

/// The first ETag's opaque part, and the rest. None at the end, or at a syntax error.
fn next_tag(list: &str) -> Option<(&str, &str)> {
    let list = list.trim_start_matches([' ', '\t', ',']);
    let quoted = list.strip_prefix("W/").unwrap_or(list).strip_prefix('"')?;
    let (tag, after) = quoted.split_once('"')?;
    let after = after.trim_start_matches([' ', '\t']);
    (after.is_empty() || after.starts_with(',')).then_some((tag, after))
}

/// Whether the content is not newer than a date. An invalid date is ignored.
pub fn unmodified_since(date: &str, modified_at: u64) -> bool {
    match httpdate::parse_http_date(date) {
        Ok(date) => http_time(modified_at) <= date,
        Err(_) => false,
    }
}

/// Unix seconds as an HTTP date; at most `LAST_HTTP_SECOND`.
pub fn http_date(seconds: u64) -> String {
    httpdate::fmt_http_date(http_time(seconds))
}

/// A foreign row may hold any number, and neither the formatter nor `SystemTime` takes them all.
fn http_time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_HTTP_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ETAG: &str = "\"abc\"";

    #[test]
    fn if_none_match() {
        for (list, matches) in [
            ("\"abc\"", true),
            ("W/\"abc\"", true),
            ("*", true),
            (" * ", true),
            ("\"x\", \"abc\"", true),
            ("\"x\",W/\"abc\" , \"y\"", true),
            (",, \"abc\"", true),
            ("\"a,b\", \"abc\"", true),
            ("\"\", \"abc\"", true),
            ("\"ABC\"", false),
            ("abc", false),
            ("\"abc", false),
            ("\"x\" \"abc\"", false),
            ("*, \"abc\"", false),
            ("w/\"abc\"", false),
            ("", false),
        ] {
            assert_eq!(any_match(list, ETAG), matches, "{list:?}");
        }
    }

    #[test]
    fn weak_etag_of_a_foreign_row_matches() {
        assert!(any_match("W/\"v1\"", "W/\"v1\""));
        assert!(any_match("\"v1\"", "W/\"v1\""));
        assert!(any_match("\"bare\"", "bare"));
    }

    #[test]
    fn oversized_list_is_ignored() {
        let list = |bytes: usize| format!("{}\"abc\"", ",".repeat(bytes - 5));
        assert!(any_match(&list(8 * 1024), "\"abc\""));
        assert!(!any_match(&list(8 * 1024 + 1), "\"abc\""));
    }

    #[test]
    fn if_modified_since() {
        let noon = 784_111_777;
        for (date, unmodified) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Sunday, 06-Nov-94 08:49:37 GMT", true),
            ("Sun Nov  6 08:49:37 1994", true),
            ("Sun, 06 Nov 1994 08:49:38 GMT", true),
            ("Sun, 06 Nov 1994 08:49:36 GMT", false),
            ("yesterday", false),
            ("", false),
            ("-1", false),
        ] {
            assert_eq!(unmodified_since(date, noon), unmodified, "{date:?}");
        }
        assert_eq!(http_date(noon), "Sun, 06 Nov 1994 08:49:37 GMT");
        for beyond in [LAST_HTTP_SECOND + 1, 10u64.pow(19), u64::MAX] {
            assert_eq!(http_date(beyond), "Fri, 31 Dec 9999 23:59:59 GMT");
            assert!(!unmodified_since("Sun, 06 Nov 1994 08:49:37 GMT", beyond));
            assert!(unmodified_since(&http_date(beyond), beyond));
        }
    }

    #[test]
    fn etag_takes_precedence_over_the_date() {
        let page = Validators { etag: ETAG, modified_at: 784_111_777 };
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(not_modified(None, date, page));
        assert!(!not_modified(Some("\"other\""), date, page));
        assert!(not_modified(Some(ETAG), Some("Sun, 06 Nov 1990 08:49:37 GMT"), page));
        assert!(!not_modified(None, None, page));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_and_a_listed_tag_is_found(
            before in prop::collection::vec("[!#-~]{0,9}", 0..5),
            junk in "\\PC{0,60}",
        ) {
            any_match(&junk, ETAG);
            unmodified_since(&junk, 7);
            let list: String = before.iter().map(|tag| format!("\"{tag}\", ")).collect();
            let found = format!("{list}\"abc\"");
            prop_assert!(any_match(&found, ETAG));
            prop_assert!(before.iter().any(|tag| tag == "abc") || !any_match(&list, ETAG));
        }
    }
}

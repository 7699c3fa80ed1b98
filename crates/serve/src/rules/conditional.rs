//! Conditional requests (RFC 9110, section 13): whether the reader has the page already.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longer lists of ETags are not read: nobody has that many copies of a page.
const MOST_BYTES: usize = 8 * 1024;

/// The last second that an HTTP date can name, at the end of the year 9999.
const LAST_HTTP_SECOND: u64 = 253_402_300_799;

/// What the page is recognised by.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// Its ETag, quotes included.
    pub etag: &'a str,
    /// When its content last changed, in seconds.
    pub modified_at: u64,
}

/// Whether a 304 is the answer. `If-None-Match` decides alone if it is there; then the date means nothing.
pub fn not_modified(if_none_match: Option<&str>, if_modified_since: Option<&str>, page: Validators<'_>) -> bool {
    match (if_none_match, if_modified_since) {
        (Some(list), _) => any_match(list, page.etag),
        (None, Some(date)) => unmodified_since(date, page.modified_at),
        (None, None) => false,
    }
}

/// Whether one of the listed ETags is `etag`, weakly compared, as a GET asks for. `*` is any. A list that is malformed is read up to
/// where it is.
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

/// The part between the quotes: what a weak comparison compares.
fn opaque(etag: &str) -> &str {
    let strong = etag.strip_prefix("W/").unwrap_or(etag);
    strong.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(strong)
}

/// The first ETag's opaque part, and what follows it. None at the end, or where something else stands.
fn next_tag(list: &str) -> Option<(&str, &str)> {
    let list = list.trim_start_matches([' ', '\t', ',']);
    let quoted = list.strip_prefix("W/").unwrap_or(list).strip_prefix('"')?;
    let (tag, after) = quoted.split_once('"')?;
    let after = after.trim_start_matches([' ', '\t']);
    (after.is_empty() || after.starts_with(',')).then_some((tag, after))
}

/// Whether the content is not newer than a date. One that cannot be read is no condition.
pub fn unmodified_since(date: &str, modified_at: u64) -> bool {
    match httpdate::parse_http_date(date) {
        Ok(date) => http_time(modified_at) <= date,
        Err(_) => false,
    }
}

/// A moment in seconds as HTTP writes it; at most `LAST_HTTP_SECOND`.
pub fn http_date(seconds: u64) -> String {
    httpdate::fmt_http_date(http_time(seconds))
}

/// A row's time as HTTP can name it. A foreign row may hold any number, and neither the formatter nor the system's time takes them all.
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
    fn a_weak_etag_of_another_language_matches_too() {
        assert!(any_match("W/\"v1\"", "W/\"v1\""));
        assert!(any_match("\"v1\"", "W/\"v1\""));
        assert!(any_match("\"bare\"", "bare"));
    }

    #[test]
    fn a_list_without_end_is_not_read() {
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
    fn the_etag_goes_before_the_date() {
        let page = Validators { etag: ETAG, modified_at: 784_111_777 };
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(not_modified(None, date, page));
        assert!(!not_modified(Some("\"other\""), date, page));
        assert!(not_modified(Some(ETAG), Some("Sun, 06 Nov 1990 08:49:37 GMT"), page));
        assert!(!not_modified(None, None, page));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm_and_a_listed_tag_is_found(
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

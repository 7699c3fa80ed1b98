//! The origin's own validators of a published body. A render sends one of them as a condition, and
//! an origin whose body is still the same answers 304 without it.
//!
//! They belong to one object, one deployment and one route as it was configured: they are sent only
//! for that very body, so a 304 can never keep another one. An older Everfresh that publishes over
//! the row leaves them there; they then belong to an object that is not the published one.

use crate::domain::artifact::Rendered;
use crate::domain::digest::Digest;
use crate::domain::response_sharing::values;

/// The longest value that is kept.
const LONGEST: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// For how long the origin called that answer fresh: a 304 need not repeat it.
    pub fresh_s: Option<u64>,
    /// Digest of what they belong to.
    pub of: Digest,
}

/// The condition of a render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    IfNoneMatch(&'a str),
    IfModifiedSince(&'a str),
}

impl<'a> Condition<'a> {
    /// Header name, in lower case, and value.
    pub fn header(self) -> (&'static str, &'a str) {
        match self {
            Condition::IfNoneMatch(etag) => ("if-none-match", etag),
            Condition::IfModifiedSince(date) => ("if-modified-since", date),
        }
    }
}

impl Validators {
    /// Those of a response. None if it has none that can be sent back.
    pub fn of_response(rendered: &Rendered, fresh_s: Option<u64>, of: Digest) -> Option<Self> {
        let only = |name: &'static str| {
            let mut found = values(rendered, name).map(str::trim);
            let value = found.next().filter(|value| !value.is_empty() && value.len() <= LONGEST)?;
            let sendable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            (sendable && found.next().is_none()).then(|| value.to_owned())
        };
        let etag = only("etag").filter(|etag| is_etag(etag));
        let last_modified = only("last-modified").filter(|date| httpdate::parse_http_date(date).is_ok());
        (etag.is_some() || last_modified.is_some()).then_some(Self { etag, last_modified, fresh_s, of })
    }

    /// These, as a 304 renews them: what it does not name stays.
    pub fn renewed_by(&self, rendered: &Rendered, fresh_s: Option<u64>) -> Self {
        let new = Self::of_response(rendered, fresh_s, self.of);
        let (etag, last_modified) = new.map_or((None, None), |new| (new.etag, new.last_modified));
        Self {
            etag: etag.or_else(|| self.etag.clone()),
            last_modified: last_modified.or_else(|| self.last_modified.clone()),
            fresh_s,
            of: self.of,
        }
    }

    /// The condition to send. For a page that is known to have `changed` only a strong ETag: a date
    /// has a grain of a second, and a weak ETag may stay the same on purpose.
    pub fn condition(&self, changed: bool) -> Option<Condition<'_>> {
        let etag = self.etag.as_deref().filter(|etag| !changed || !etag.starts_with("W/"));
        let date = self.last_modified.as_deref().filter(|_| !changed);
        etag.map(Condition::IfNoneMatch).or(date.map(Condition::IfModifiedSince))
    }
}

/// `"…"` or `W/"…"`, without quotes inside.
fn is_etag(text: &str) -> bool {
    let quoted = text.strip_prefix("W/").unwrap_or(text);
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| !inner.contains(['"', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn response(headers: &[(&str, &str)]) -> Rendered {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Rendered { status: 200, headers, body: Bytes::new(), declared_bytes: None }
    }

    fn validators(headers: &[(&str, &str)]) -> Option<Validators> {
        Validators::of_response(&response(headers), None, Digest::of(b"x"))
    }

    const DATE: &str = "Thu, 19 Nov 2026 01:00:00 GMT";

    #[test]
    fn etag_is_preferred_to_the_date() {
        let both = validators(&[("ETag", "\"a\""), ("Last-Modified", DATE)]).unwrap();
        assert_eq!(both.condition(false), Some(Condition::IfNoneMatch("\"a\"")));
        let date = validators(&[("Last-Modified", DATE)]).unwrap();
        assert_eq!(date.condition(false), Some(Condition::IfModifiedSince(DATE)));
    }

    #[test]
    fn changed_page_is_revalidated_by_strong_etag_only() {
        let strong = validators(&[("etag", "\"a\"")]).unwrap();
        assert_eq!(strong.condition(true), Some(Condition::IfNoneMatch("\"a\"")));
        let weak = validators(&[("etag", "W/\"a\""), ("last-modified", DATE)]).unwrap();
        assert_eq!(weak.condition(true), None);
        assert_eq!(weak.condition(false), Some(Condition::IfNoneMatch("W/\"a\"")));
    }

    #[test]
    fn what_cannot_be_sent_back_is_no_validator() {
        let long = format!("\"{}\"", "x".repeat(LONGEST));
        for etag in ["", "a", "\"", "\"a", "\"a\"b\"", "\"a\", \"b\"", "\"a b\"", "*", "\"é\"", "\"a\r\nx: 1\"", &long]
        {
            assert_eq!(validators(&[("etag", etag)]), None, "{etag:?}");
        }
        assert_eq!(validators(&[("etag", "\"a\""), ("etag", "\"b\"")]), None);
        assert_eq!(validators(&[("last-modified", "yesterday")]), None);
    }

    #[test]
    fn not_modified_keeps_what_it_does_not_name() {
        let known = validators(&[("etag", "\"a\""), ("last-modified", DATE)]).unwrap();
        let renewed = known.renewed_by(&response(&[("etag", "\"b\"")]), Some(60));
        assert_eq!((renewed.etag.as_deref(), renewed.last_modified.as_deref()), (Some("\"b\""), Some(DATE)));
    }
}

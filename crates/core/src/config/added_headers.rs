//! Headers that the configuration adds to requests to a tenant's origin. Some are secrets, which
//! the file names and does not contain.
//!
//! ```toml
//! [tenant.acme.origin_headers]                      # with every request
//! x-origin-verify = { secret = "acme/origin" }
//!
//! [tenant.acme.render_headers]                      # with renders only
//! x-prerender-revalidate = { env = "ACME_PREVIEW_ID" }
//! x-environment = "production"
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// The most headers of one table.
const MAX_HEADERS: usize = 16;
/// The longest value.
const MAX_BYTES: usize = 4096;

/// What Everfresh or the connection decides.
const RESERVED: [&str; 18] = [
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];
const RESERVED_PREFIXES: [&str; 4] = ["proxy-", "sec-websocket-", "x-everfresh-", "x-forwarded-"];

/// The headers of one table, by name in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, Value>")]
pub struct AddedHeaders(BTreeMap<String, Value>);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a table like { env = \"NAME\" } or { secret = \"name\" }")]
enum Value {
    Text(String),
    Reference(Reference),
    #[serde(skip)]
    Secret(Secret),
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Reference {
    /// A variable of the function's environment.
    Env(String),
    /// A secret of Secrets Manager, by name or ARN; `name#key` for one key of a JSON object.
    Secret(String),
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Refuses what cannot be the value of a header. Secrets are often stored with a final newline.
    pub fn parse(text: &str) -> Result<Self, HeaderProblem> {
        let text = text.trim_end_matches(['\r', '\n']);
        check_value(text).map(|()| Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Env(name) => write!(f, "environment variable {name}"),
            Reference::Secret(name) => write!(f, "secret {name}"),
        }
    }
}

/// Why a header cannot be added. Never shows the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderProblem {
    #[error("at most {MAX_HEADERS} headers")]
    TooMany,
    #[error("{0:?} is not the name of a header")]
    Name(String),
    #[error("{0} is written by Everfresh or belongs to the connection")]
    Reserved(String),
    #[error("{0} occurs twice")]
    Twice(String),
    #[error("the value must be printable ASCII, at most {MAX_BYTES} bytes, and not empty")]
    Value,
}

impl TryFrom<BTreeMap<String, Value>> for AddedHeaders {
    type Error = HeaderProblem;

    fn try_from(file: BTreeMap<String, Value>) -> Result<Self, HeaderProblem> {
        if file.len() > MAX_HEADERS {
            return Err(HeaderProblem::TooMany);
        }
        let mut headers = BTreeMap::new();
        for (written, value) in file {
            let name = written.to_ascii_lowercase();
            let in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if name.is_empty() || !name.bytes().all(in_name) {
                return Err(HeaderProblem::Name(written));
            }
            if RESERVED.contains(&&*name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                return Err(HeaderProblem::Reserved(name));
            }
            if let Value::Text(text) = &value {
                check_value(text)?;
            }
            if headers.insert(name, value).is_some() {
                return Err(HeaderProblem::Twice(written));
            }
        }
        Ok(Self(headers))
    }
}

fn check_value(text: &str) -> Result<(), HeaderProblem> {
    let printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let valid = printable && !text.is_empty() && text.len() <= MAX_BYTES && text.trim() == text;
    valid.then_some(()).ok_or(HeaderProblem::Value)
}

impl AddedHeaders {
    /// Names and values. Secrets that were not read are left out.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Text(text) | Value::Secret(Secret(text)) => Some((name.as_str(), text.as_str())),
            Value::Reference(_) => None,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a visitor's header of this name is dropped: it could forge the one that is added,
    /// also in the spelling that some servers read as the same.
    pub fn has(&self, name: &str) -> bool {
        let dashed = |name: &str| name.to_ascii_lowercase().replace('_', "-");
        self.0.keys().any(|own| dashed(own) == dashed(name))
    }

    /// The secrets that are still to be read.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.0.values().filter_map(|value| match value {
            Value::Reference(reference) => Some(reference),
            Value::Text(_) | Value::Secret(_) => None,
        })
    }

    /// Fills in a secret wherever it is referred to.
    pub(super) fn fill(&mut self, reference: &Reference, secret: &Secret) {
        for value in self.0.values_mut() {
            if matches!(value, Value::Reference(other) if other == reference) {
                *value = Value::Secret(secret.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<AddedHeaders, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_are_added_and_secrets_once_they_are_read() {
        let mut headers = parsed("X-A = \"1\"\nx-b = { env = \"B\" }").unwrap();
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("x-a", "1")]);
        let reference = Reference::Env("B".to_owned());
        assert_eq!(headers.references().collect::<Vec<_>>(), [&reference]);
        headers.fill(&reference, &Secret::parse("s3cret\n").unwrap());
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("x-a", "1"), ("x-b", "s3cret")]);
        assert_eq!(headers.references().count(), 0);
        assert!(!format!("{headers:?}").contains("s3cret"));
        assert!(headers.has("X-A") && headers.has("x_b") && !headers.has("x-c"));
    }

    #[test]
    fn headers_of_the_connection_and_odd_values_are_refused() {
        for (text, expected) in [
            ("host = \"a\"", "host is written by Everfresh"),
            ("x-forwarded-for = \"a\"", "x-forwarded-for is written"),
            ("Cookie = \"a\"", "cookie is written"),
            ("\"a b\" = \"a\"", "not the name of a header"),
            ("x-a = \"a\\nb\"", "printable ASCII"),
            ("x-a = \"\"", "printable ASCII"),
            ("x-a = \"1\"\nX-A = \"2\"", "occurs twice"),
            ("x-a = 1", "expected a text, or a table like"),
            ("x-a = { file = \"/etc/passwd\" }", "expected a text, or a table like"),
        ] {
            let refused = parsed(text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
        assert_eq!(Secret::parse("a\nb"), Err(HeaderProblem::Value));
        assert!(RESERVED.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

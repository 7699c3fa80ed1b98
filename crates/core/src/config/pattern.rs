//! Route patterns: `/products/{id}`.

use std::cmp::Ordering;
use std::fmt;

use serde::Deserialize;

use crate::domain::page_key::PathError;
use crate::domain::path::normal_segment;

/// A path with placeholders for segments.
///
/// `{name}` matches one segment that is not empty, `{*name}` at the end for everything that is
/// left, slashes and all. The rest is compared literally in canonical form, so `/café` and
/// `/caf%C3%A9` are the same pattern.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    One(String),
    Rest(String),
}

/// The segments a pattern found, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params<'p>(Vec<(&'p str, &'p str)>);

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => write!(f, "/{literal}")?,
                Segment::One(name) => write!(f, "/{{{name}}}")?,
                Segment::Rest(name) => write!(f, "/{{*{name}}}")?,
            }
        }
        Ok(())
    }
}

impl<'p> Params<'p> {
    /// The segment with that name, in canonical form.
    pub fn get(&self, name: &str) -> Option<&'p str> {
        self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Does not begin with `/`.
    #[error("path pattern must begin with a slash")]
    NotAbsolute,
    /// Has a query or a fragment.
    #[error("path pattern must not contain `?` or `#`: name the query's parameters in `query`, or write %3F or %23")]
    Query,
    /// An empty segment before the end.
    #[error("path pattern has an empty segment")]
    EmptySegment,
    /// A literal segment that no canonical path has.
    #[error("path pattern: {0}")]
    Literal(#[from] PathError),
    /// Braces that are no placeholder.
    #[error("a placeholder is a whole segment like {{id}}, or {{*rest}} at the end; names hold letters, digits and _")]
    BadPlaceholder,
    /// Two placeholders of one name.
    #[error("placeholder {{{name}}} occurs twice")]
    Twice { name: String },
}

impl Pattern {
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let rest = text.strip_prefix('/').ok_or(PatternError::NotAbsolute)?;
        // A `?` in a request ends the path, so such a route would never match.
        if rest.contains(['?', '#']) {
            return Err(PatternError::Query);
        }
        let mut segments: Vec<Segment> = Vec::new();
        for raw in rest.split('/') {
            match segments.last() {
                Some(Segment::Literal(literal)) if literal.is_empty() => {
                    return Err(PatternError::EmptySegment);
                }
                Some(Segment::Rest(_)) => return Err(PatternError::BadPlaceholder),
                Some(Segment::Literal(_) | Segment::One(_)) | None => {}
            }
            let segment = Segment::parse(raw)?;
            if let Some(name) = segment.name()
                && segments.iter().any(|other| other.name() == Some(name))
            {
                return Err(PatternError::Twice { name: name.to_owned() });
            }
            segments.push(segment);
        }
        Ok(Self { segments })
    }

    /// The segments found if `path`, in canonical form, matches.
    pub fn matches<'p>(&'p self, path: &'p str) -> Option<Params<'p>> {
        let mut rest = Some(path.strip_prefix('/')?);
        let mut params = Params::default();
        for segment in &self.segments {
            let left = rest?;
            if let Segment::Rest(name) = segment {
                params.0.push((name, left));
                return Some(params);
            }
            let (head, tail) = match left.split_once('/') {
                Some((head, tail)) => (head, Some(tail)),
                None => (left, None),
            };
            match segment {
                Segment::Literal(literal) if literal == head => {}
                Segment::One(name) if !head.is_empty() => params.0.push((name, head)),
                Segment::Literal(_) | Segment::One(_) | Segment::Rest(_) => return None,
            }
            rest = tail;
        }
        rest.is_none().then_some(params)
    }

    /// Whether it has a placeholder of that name.
    pub fn has(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| segment.name() == Some(name))
    }

    /// Whether it ends in `{*name}`.
    pub fn ends_in_rest(&self) -> bool {
        matches!(self.segments.last(), Some(Segment::Rest(_)))
    }

    /// Orders patterns so that the first one that matches is the most specific one.
    pub fn cmp_specificity(&self, other: &Self) -> Ordering {
        let ranks = self.segments.iter().map(Segment::rank);
        ranks.cmp(other.segments.iter().map(Segment::rank))
    }

    /// Whether both match exactly the same paths.
    pub fn same_paths(&self, other: &Self) -> bool {
        let same = |(left, right): (&Segment, &Segment)| match (left, right) {
            (Segment::Literal(left), Segment::Literal(right)) => left == right,
            _ => left.rank() == right.rank(),
        };
        self.segments.len() == other.segments.len() && self.segments.iter().zip(&other.segments).all(same)
    }
}

impl Segment {
    fn parse(raw: &str) -> Result<Self, PatternError> {
        if !raw.contains(['{', '}']) {
            return Ok(Segment::Literal(normal_segment(raw)?));
        }
        let inner = raw.strip_prefix('{').and_then(|raw| raw.strip_suffix('}'));
        let inner = inner.ok_or(PatternError::BadPlaceholder)?;
        let (name, rest) = match inner.strip_prefix('*') {
            Some(name) => (name, true),
            None => (inner, false),
        };
        if !is_name(name) {
            return Err(PatternError::BadPlaceholder);
        }
        let name = name.to_owned();
        Ok(if rest { Segment::Rest(name) } else { Segment::One(name) })
    }

    fn name(&self) -> Option<&str> {
        match self {
            Segment::Literal(_) => None,
            Segment::One(name) | Segment::Rest(name) => Some(name),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Segment::Literal(_) => 0,
            Segment::One(_) => 1,
            Segment::Rest(_) => 2,
        }
    }
}

/// Whether `name` is a placeholder's name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(pattern: &str, path: &str) -> Option<Vec<(String, String)>> {
        let pattern = Pattern::parse(pattern).unwrap();
        let params = pattern.matches(path)?;
        Some(params.0.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    #[test]
    fn patterns_match_whole_paths() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let cases = [
            ("/", "/", Some(vec![])),
            ("/", "/a", None),
            ("/a", "/a", Some(vec![])),
            ("/a", "/a/", None),
            ("/a/", "/a/", Some(vec![])),
            ("/a", "/ab", None),
            ("/café", "/caf%C3%A9", Some(vec![])),
            ("/products/{id}", "/products/42", Some(vec![pair("id", "42")])),
            ("/products/{id}", "/products/", None),
            ("/products/{id}", "/products", None),
            ("/products/{id}", "/products/42/", None),
            ("/products/{id}", "/products/42/reviews", None),
            ("/{a}/{b}", "/x/y", Some(vec![pair("a", "x"), pair("b", "y")])),
            ("/docs/{*rest}", "/docs/a/b", Some(vec![pair("rest", "a/b")])),
            ("/docs/{*rest}", "/docs/", Some(vec![pair("rest", "")])),
            ("/docs/{*rest}", "/docs", None),
            ("/{*rest}", "/", Some(vec![pair("rest", "")])),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(found(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn broken_patterns_are_refused() {
        use PatternError::*;
        let cases = [
            ("products", NotAbsolute),
            ("", NotAbsolute),
            ("/a?b=1", Query),
            ("/a#b", Query),
            ("/a//b", EmptySegment),
            ("//", EmptySegment),
            ("/a/../b", Literal(PathError::DotSegment)),
            ("/a;b", Literal(PathError::Semicolon)),
            ("/product-{id}", BadPlaceholder),
            ("/{id", BadPlaceholder),
            ("/{}", BadPlaceholder),
            ("/{*}", BadPlaceholder),
            ("/{a b}", BadPlaceholder),
            ("/{*rest}/x", BadPlaceholder),
            ("/{*rest}/", BadPlaceholder),
            ("/{id}/{id}", Twice { name: "id".into() }),
        ];
        for (text, expected) in cases {
            assert_eq!(Pattern::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn literal_goes_before_name_and_name_before_rest() {
        let order = ["/a/b", "/a/{x}", "/a/{x}/{*rest}", "/a/{*rest}", "/{x}/b", "/{*rest}"];
        let order = order.map(|text| Pattern::parse(text).unwrap());
        for (index, earlier) in order.iter().enumerate() {
            for later in &order[index + 1..] {
                assert_eq!(earlier.cmp_specificity(later), Ordering::Less);
            }
        }
    }

    const PATTERN: &str = "(/([ab]|\\{[xy]\\})){1,3}(/\\{\\*rest\\})?";

    proptest! {
        #[test]
        fn patterns_that_match_one_path_are_ordered_or_equal(
            left in PATTERN, right in PATTERN, path in "(/[ab]){1,4}",
        ) {
            let (Ok(left), Ok(right)) = (Pattern::parse(&left), Pattern::parse(&right)) else {
                return Ok(());
            };
            if left.matches(&path).is_some() && right.matches(&path).is_some() {
                let tied = left.cmp_specificity(&right) == Ordering::Equal;
                prop_assert_eq!(tied, left.same_paths(&right));
            }
        }
    }
}

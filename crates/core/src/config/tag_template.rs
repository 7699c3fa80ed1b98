//! Tags with placeholders for path segments: `product-{id}`.

use serde::Deserialize;

use super::pattern::{Params, is_name};
use crate::domain::tag::{Tag, TagError, push_segment};

/// A tag in which `{name}` is replaced by a segment of the page's path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TagTemplate {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Braces that are no placeholder.
    #[error("a placeholder in a tag is {{name}}, with letters, digits and _")]
    BadPlaceholder,
    /// The text around the placeholders is no tag.
    #[error(transparent)]
    Tag(#[from] TagError),
}

impl TagTemplate {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or(TemplateError::BadPlaceholder)?;
            if before.contains('}') || !is_name(name) {
                return Err(TemplateError::BadPlaceholder);
            }
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(Piece::Name(name.to_owned()));
            rest = after;
        }
        if rest.contains('}') {
            return Err(TemplateError::BadPlaceholder);
        }
        pieces.push(Piece::Text(rest.to_owned()));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        let template = Self { pieces };
        // With the shortest segment there is, it must be a tag.
        Tag::parse(&template.text(|_| "0"))?;
        Ok(template)
    }

    /// The names of its placeholders.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Name(name) => Some(name.as_str()),
        })
    }

    /// The tag of the page whose path gave `params`. Fails only if the tag becomes too long, or
    /// empty.
    pub fn fill(&self, params: &Params<'_>) -> Result<Tag, TagError> {
        Tag::parse(&self.text(|name| params.get(name).unwrap_or_default()))
    }

    fn text<'v>(&self, value: impl Fn(&str) -> &'v str) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Name(name) => push_segment(&mut text, value(name)),
            }
        }
        text
    }
}

impl TryFrom<String> for TagTemplate {
    type Error = TemplateError;

    fn try_from(text: String) -> Result<Self, TemplateError> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pattern;
    use super::*;

    #[test]
    fn placeholders_are_filled_from_the_path() {
        let pattern = Pattern::parse("/{shop}/{id}").unwrap();
        let params = pattern.matches("/de/a,b%C3%A9").unwrap();
        let fill = |text| TagTemplate::parse(text).unwrap().fill(&params).unwrap().to_string();
        assert_eq!(fill("products"), "products");
        assert_eq!(fill("product-{id}"), "product-a%2Cb%C3%A9");
        assert_eq!(fill("{shop}:{id}"), "de:a%2Cb%C3%A9");
        assert_eq!(fill("{shop}"), "de");
    }

    #[test]
    fn broken_templates_are_refused() {
        for text in ["{", "}", "a}b", "{id", "{}", "{a b}", "a}{id}", "{{id}}"] {
            assert_eq!(TagTemplate::parse(text), Err(TemplateError::BadPlaceholder), "{text}");
        }
        assert_eq!(TagTemplate::parse(""), Err(TemplateError::Tag(TagError::Empty)));
        let comma = TagTemplate::parse("a,{id}");
        assert_eq!(comma, Err(TemplateError::Tag(TagError::BadCharacter { at: 1 })));
    }

    #[test]
    fn tag_that_becomes_too_long_is_refused_and_not_cut() {
        let long = format!("/{}", "x".repeat(300));
        let pattern = Pattern::parse("/{id}").unwrap();
        let params = pattern.matches(&long).unwrap();
        let filled = TagTemplate::parse("p-{id}").unwrap().fill(&params);
        assert_eq!(filled, Err(TagError::TooLong { bytes: 302 }));
    }
}

//! The fields of a JSON object in order, duplicates included, before validation.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{MAX_MESSAGE_BYTES, MessageError, VERSION};

pub(super) struct Fields(pub(super) Vec<(String, Scalar)>);

/// A field's value. A value that is neither a string nor a whole number is skipped, not kept.
pub(super) enum Scalar {
    Text(String),
    Integer(u64),
    Other,
}

/// More fields than a valid message has, which bounds memory. Further fields are skipped: among the
/// first sixteen one is already unknown or a duplicate.
const MAX_FIELDS: usize = 16;

impl Fields {
    pub(super) fn parse(body: &[u8]) -> Result<Self, MessageError> {
        if body.len() > MAX_MESSAGE_BYTES {
            return Err(MessageError::TooLarge { bytes: body.len() });
        }
        match serde_json::from_slice(body) {
            Ok(fields) => Ok(fields),
            Err(error) if error.is_data() => Err(MessageError::NotAnObject),
            Err(error) => Err(MessageError::NotJson { line: error.line(), column: error.column() }),
        }
    }

    /// The object's version, if it is not [`VERSION`].
    pub(super) fn other_version(&self) -> Option<u64> {
        match self.0.iter().find(|(name, _)| name == "v") {
            Some((_, Scalar::Integer(version))) if *version != VERSION => Some(*version),
            Some(_) | None => None,
        }
    }
}

impl Scalar {
    pub(super) fn text(self, field: &'static str) -> Result<String, MessageError> {
        match self {
            Scalar::Text(text) => Ok(text),
            Scalar::Integer(_) | Scalar::Other => Err(MessageError::WrongType { field, expected: "a string" }),
        }
    }

    pub(super) fn integer(self, field: &'static str) -> Result<u64, MessageError> {
        match self {
            Scalar::Integer(number) => Ok(number),
            Scalar::Text(_) | Scalar::Other => Err(MessageError::WrongType { field, expected: "a whole number" }),
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while fields.len() < MAX_FIELDS {
                    match map.next_entry()? {
                        Some(field) => fields.push(field),
                        None => return Ok(Fields(fields)),
                    }
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(number))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            // serde_json skips an ignored value in a loop, so depth costs no stack.
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

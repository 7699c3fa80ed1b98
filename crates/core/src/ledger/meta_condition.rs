//! META as lookup saw it, on which a commit is conditioned.

use std::hash::{Hash, Hasher};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodb::types::builders::UpdateBuilder;

use super::expressions::{ABSENT, meta_is, meta_is_foreign, name, none};
use super::lookup::PageState;
use super::rows::{Item, RowError, n, s};
use crate::domain::page::Meta;
use crate::domain::version::Version;

/// A foreign META row that cannot be read. Readers get no page from it, and the next commit
/// replaces it.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadableMeta {
    pub error: RowError,
    /// The attributes of the table contract as lookup saw them.
    attributes: Vec<(&'static str, Option<AttributeValue>)>,
}

/// DynamoDB's values hold their numbers as text, so that each equals itself.
impl Eq for UnreadableMeta {}

impl Hash for UnreadableMeta {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.error.hash(state);
    }
}

/// META's attributes in the table contract. A writer that publishes another version changes at
/// least one of them.
const CONTRACT: [&str; 6] =
    [name::S3_KEY, name::GENERATED_AT, name::REVALIDATE_SECONDS, name::ETAG, name::TTL, name::CURRENT_SK];

impl UnreadableMeta {
    /// None if the row may not be replaced: it has a version of ours, or a newer worker's layout.
    pub(super) fn of(item: &Item, error: &RowError) -> Option<Self> {
        let ours = !matches!(item.get(name::VERSION), None | Some(AttributeValue::Null(_)));
        match error {
            RowError::Attribute { .. } if !ours => {
                let attributes = CONTRACT.map(|attribute| (attribute, item.get(attribute).cloned()));
                Some(Self { error: error.clone(), attributes: attributes.into() })
            }
            RowError::Attribute { .. } | RowError::NewerSchema { .. } | RowError::LastVersion { .. } => None,
        }
    }

    /// Conditions the update on the row being unchanged, attribute by attribute, whatever their
    /// types.
    fn is_still(&self, mut update: UpdateBuilder) -> UpdateBuilder {
        let mut conditions = vec![none("#version")];
        for (index, (attribute, value)) in self.attributes.iter().enumerate() {
            let (seen_name, seen_value) = (format!("#seen{index}"), format!(":seen{index}"));
            update = update.expression_attribute_names(&seen_name, *attribute);
            match value {
                Some(value) => {
                    conditions.push(format!("{seen_name} = {seen_value}"));
                    update = update.expression_attribute_values(seen_value, value.clone());
                }
                None => conditions.push(format!("attribute_not_exists({seen_name})")),
            }
        }
        update
            .condition_expression(conditions.join(" AND "))
            .expression_attribute_names("#version", name::VERSION)
            .expression_attribute_values(":null", s("NULL"))
    }
}

/// META as lookup saw it, and so what the commit is conditioned on (I2).
///
/// Never `revalidate_seconds`: an invalidation sets it to zero without publishing anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    Absent,
    Version {
        version: Version,
        /// The row's pointer, if it has one: a foreign writer that moves only the pointer leaves
        /// the version as it is.
        current_sk: Option<String>,
    },
    /// A foreign row, recognised by the attributes that it must have.
    Foreign {
        s3_key: String,
        generated_at: u64,
        /// Distinguishes two commits within one second.
        etag: Option<String>,
    },
    /// A row that points at a foreign version row.
    Pointer {
        current_sk: String,
        /// Our last commit's version, which the foreign writer left next to the pointer.
        version: Option<Version>,
        /// The `generated_at` of the version row.
        generated_at: u64,
    },
    /// A foreign row that cannot be read.
    Unreadable(UnreadableMeta),
}

impl Seen {
    pub(crate) fn of_page(state: &PageState) -> Self {
        match &state.unreadable {
            Some(row) => Seen::Unreadable(row.clone()),
            None => Seen::of(state.meta.as_ref()),
        }
    }

    pub fn of(meta: Option<&Meta>) -> Self {
        match meta {
            None => Seen::Absent,
            Some(Meta { pointer: true, current_sk: Some(current_sk), version, generated_at, .. }) => {
                Seen::Pointer { current_sk: current_sk.clone(), version: *version, generated_at: *generated_at }
            }
            Some(meta) => match meta.version {
                Some(version) => Seen::Version { version, current_sk: meta.current_sk.clone() },
                None => Seen::Foreign {
                    s3_key: meta.s3_key.clone(),
                    generated_at: meta.generated_at,
                    etag: meta.etag.clone(),
                },
            },
        }
    }

    /// The version that a commit over this row gets.
    pub fn next_version(&self, source_ms: u64, random: u32) -> Version {
        match self {
            Seen::Absent | Seen::Unreadable(_) => Version::next(source_ms, None, None, random),
            Seen::Version { version, .. } => Version::next(source_ms, Some(version), None, random),
            Seen::Foreign { generated_at, .. } => Version::next(source_ms, None, Some(*generated_at), random),
            Seen::Pointer { version, generated_at, .. } => {
                Version::next(source_ms, version.as_ref(), Some(*generated_at), random)
            }
        }
    }

    /// Conditions the update on META still being what was seen.
    pub(super) fn is_still(&self, update: UpdateBuilder) -> UpdateBuilder {
        match self {
            Seen::Absent => update.condition_expression(ABSENT),
            Seen::Version { version, current_sk } => is_version(update, Some(version), current_sk.as_deref()),
            Seen::Foreign { s3_key, generated_at, etag } => {
                let update = update
                    .condition_expression(meta_is_foreign(etag.is_some()))
                    .expression_attribute_names("#version", name::VERSION)
                    .expression_attribute_values(":seen_key", s(s3_key))
                    .expression_attribute_values(":null", s("NULL"))
                    .expression_attribute_values(":seen_generated", n(*generated_at))
                    .expression_attribute_values(":seen_generated_end", n(generated_at.saturating_add(1)));
                match etag {
                    Some(etag) => update.expression_attribute_values(":seen_etag", s(etag)),
                    None => update,
                }
            }
            Seen::Pointer { current_sk, version, .. } => is_version(update, version.as_ref(), Some(current_sk)),
            Seen::Unreadable(row) => row.is_still(update),
        }
    }
}

/// Conditions the update on META still having this version and this pointer, or neither.
fn is_version(update: UpdateBuilder, version: Option<&Version>, current_sk: Option<&str>) -> UpdateBuilder {
    let mut update = update
        .condition_expression(meta_is(version.is_some(), current_sk.is_some()))
        .expression_attribute_names("#version", name::VERSION);
    if let Some(version) = version {
        update = update.expression_attribute_values(":seen_version", s(version.to_string()));
    }
    if let Some(sk) = current_sk {
        update = update.expression_attribute_values(":seen_sk", s(sk));
    }
    if version.is_none() || current_sk.is_none() {
        update = update.expression_attribute_values(":null", s("NULL"));
    }
    update
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_is_conditioned_on_the_row_that_lookup_saw() {
        assert_eq!(Seen::of(None), Seen::Absent);
        let mut meta = Meta { s3_key: "k".into(), generated_at: 7, ..Meta::default() };
        let foreign = Seen::Foreign { s3_key: "k".into(), generated_at: 7, etag: None };
        assert!(meta.is_foreign());
        assert_eq!(Seen::of(Some(&meta)), foreign);
        assert_eq!(foreign.next_version(0, 1).ms(), 7_000);
        let version = Version::next(9_000, None, None, 0);
        meta.version = Some(version);
        assert!(!meta.is_foreign());
        let ours = Seen::Version { version, current_sk: None };
        assert_eq!(Seen::of(Some(&meta)), ours);
        assert_eq!(ours.next_version(0, 1).ms(), 9_001);
        assert_eq!(Seen::Absent.next_version(5, 1).ms(), 5);
    }

    #[test]
    fn path_invalidation_does_not_change_the_commit_condition() {
        let before = Meta { s3_key: "k".into(), revalidate_seconds: 60, ..Meta::default() };
        let after = Meta { revalidate_seconds: 0, ..before.clone() };
        assert_eq!(Seen::of(Some(&before)), Seen::of(Some(&after)));
    }
}

//! Rows as DynamoDB items, and back.
//!
//! Reading tolerates foreign rows (absent attributes are none) and is strict with ours: a row of
//! ours that cannot be read is an error with the attribute's name, never a guess.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::expressions::{RecordedResult, name};
use crate::domain::bypass::{Bypass, BypassReason};
use crate::domain::digest::Digest;
use crate::domain::health::{Health, LastFailure, RefusedRender};
use crate::domain::invalidations::Watermark;
use crate::domain::outcome::ErrorClass;
use crate::domain::page::{LockRow, Meta, PendingNotification, ReqRow, ReqStatus, VersionRow};
use crate::domain::request_events::Event;
use crate::domain::scrub;
use crate::domain::tag::Tag;
use crate::domain::validators::Validators;
use crate::domain::version::Version;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The newest layout of our own attributes. A worker does not touch rows of a newer one.
pub(crate) const SCHEMA: u64 = 2;

/// The layout of rows with a body, which older versions can read too.
const SCHEMA_WITH_BODY: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RowError {
    /// The attribute is missing, of another type, or malformed.
    #[error("attribute `{attribute}` of row {} cannot be read", scrub::row(row))]
    Attribute {
        attribute: &'static str,
        /// The row's sort key.
        row: String,
    },
    /// A newer Everfresh wrote it.
    #[error(
        "row {} has layout {found}, and this version knows layout {SCHEMA}: deploy the newer version here too",
        scrub::row(row)
    )]
    NewerSchema {
        found: u64,
        /// The row's sort key.
        row: String,
    },
    /// Its version is the last possible one.
    #[error("row {row} has version {version}, and none can follow it: no worker wrote that; delete the row")]
    LastVersion {
        version: Version,
        /// The row's sort key.
        row: String,
    },
}

pub(crate) fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(crate) fn n(number: impl Into<u64>) -> AttributeValue {
    AttributeValue::N(number.into().to_string())
}

/// Reads one item, attribute by attribute.
struct Reader<'a>(&'a Item);

impl Reader<'_> {
    fn wrong(&self, attribute: &'static str) -> RowError {
        let row = self.0.get("sk").and_then(|sk| sk.as_s().ok()).cloned().unwrap_or_default();
        RowError::Attribute { attribute, row }
    }

    fn maybe<T>(
        &self,
        attribute: &'static str,
        read: impl FnOnce(&AttributeValue) -> Option<T>,
    ) -> Result<Option<T>, RowError> {
        match self.0.get(attribute) {
            // Some foreign writers write NULL for absent.
            None | Some(AttributeValue::Null(_)) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(attribute)),
        }
    }

    fn text(&self, attribute: &'static str) -> Result<Option<String>, RowError> {
        self.maybe(attribute, |value| value.as_s().ok().cloned())
    }

    fn number(&self, attribute: &'static str) -> Result<Option<u64>, RowError> {
        self.maybe(attribute, |value| integer(value.as_n().ok()?))
    }

    fn flag(&self, attribute: &'static str) -> Result<bool, RowError> {
        Ok(self.maybe(attribute, |value| value.as_bool().ok().copied())?.unwrap_or(false))
    }

    fn parsed<T>(&self, attribute: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, RowError> {
        self.maybe(attribute, |value| parse(value.as_s().ok()?))
    }

    fn list<T>(
        &self,
        attribute: &'static str,
        read: impl Fn(&AttributeValue) -> Option<T>,
    ) -> Result<Vec<T>, RowError> {
        let list = self.maybe(attribute, |value| value.as_l().ok()?.iter().map(read).collect())?;
        Ok(list.unwrap_or_default())
    }

    fn needed<T>(&self, attribute: &'static str, value: Option<T>) -> Result<T, RowError> {
        value.ok_or_else(|| self.wrong(attribute))
    }

    fn check_schema(&self) -> Result<(), RowError> {
        match self.number(name::SCHEMA)? {
            Some(found) if found > SCHEMA => {
                let row = self.text("sk")?.unwrap_or_default();
                Err(RowError::NewerSchema { found, row })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A whole number, also as foreign writers with floating-point numbers write it (`1763270000.0`).
fn integer(text: &str) -> Option<u64> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    whole.parse().ok()
}

pub(crate) fn meta(item: &Item) -> Result<Meta, RowError> {
    let row = Reader(item);
    row.check_schema()?;
    Ok(Meta {
        s3_key: row.needed(name::S3_KEY, row.text(name::S3_KEY)?)?,
        generated_at: row.needed(name::GENERATED_AT, row.number(name::GENERATED_AT)?)?,
        revalidate_seconds: row.needed(name::REVALIDATE_SECONDS, row.number(name::REVALIDATE_SECONDS)?)?,
        etag: row.text(name::ETAG)?,
        ttl: row.number(name::TTL)?,
        version: row.parsed(name::VERSION, |text| text.parse().ok())?,
        source_ms: row.number(name::SOURCE_MS)?,
        // Only for the state of requests.
        newest_sent_ms: row.number(name::NEWEST_SENT_MS).ok().flatten(),
        modified_at: row.number(name::MODIFIED_AT)?,
        status: row.maybe(name::STATUS, |value| value.as_n().ok()?.parse().ok())?,
        headers: row.list(name::HEADERS, header)?,
        body_digest: row.parsed(name::BODY_DIGEST, Digest::parse)?,
        artifact_digest: row.parsed(name::ARTIFACT_DIGEST, Digest::parse)?,
        body_bytes: row.number(name::BODY_BYTES)?,
        tags: row.list(name::TAGS, |value| Tag::parse(value.as_s().ok()?).ok())?,
        deploy: row.number(name::DEPLOY)?,
        current_sk: row.text(name::CURRENT_SK)?,
        pointer: false,
        max_stale_seconds: row.number(name::MAX_STALE_SECONDS)?,
        must_revalidate: row.flag(name::MUST_REVALIDATE)?,
        stale_if_error_seconds: row.number(name::STALE_IF_ERROR_SECONDS)?,
        validators: validators(&row)?,
        tombstone: row.flag(name::TOMBSTONE)?,
        bypass: bypass(&row)?,
        shown_since: row.parsed(name::SHOWN_SINCE, |text| text.parse().ok())?,
        pending_notification: row.text(name::PENDING_NOTIFICATION)?.as_deref().map(PendingNotification::parse),
    })
}

fn bypass(row: &Reader<'_>) -> Result<Option<Bypass>, RowError> {
    let Some(word) = row.text(name::BYPASS_REASON)? else { return Ok(None) };
    Ok(Some(Bypass {
        // A reason of a newer version still means that nothing is stored.
        reason: BypassReason::parse(&word).unwrap_or(BypassReason::Private),
        check_at_ms: row.needed(name::CHECK_AT_MS, row.number(name::CHECK_AT_MS)?)?,
        check_after_s: row.needed(name::CHECK_AFTER_SECONDS, row.number(name::CHECK_AFTER_SECONDS)?)?,
    }))
}

/// Without knowing what they belong to, they are worth nothing.
fn validators(row: &Reader<'_>) -> Result<Option<Validators>, RowError> {
    let Some(of) = row.parsed(name::VALIDATORS_OF, Digest::parse)? else { return Ok(None) };
    let (etag, last_modified) = (row.text(name::ORIGIN_ETAG)?, row.text(name::ORIGIN_LAST_MODIFIED)?);
    Ok(Some(Validators { etag, last_modified, fresh_s: row.number(name::ORIGIN_FRESH_SECONDS)?, of }))
}

/// The sort key that META points at if it does not carry the published version itself: some foreign
/// writers keep versions in rows of their own and move only the pointer, so that META's other
/// attributes are outdated. Our own versions are in both rows.
pub(crate) fn points_at(item: &Item) -> Option<&str> {
    let sk = item.get(name::CURRENT_SK)?.as_s().ok()?;
    (Version::of_sk(sk).is_none()).then_some(sk)
}

/// The version row at the pointer. Of META only the life counts: its other attributes do not
/// describe that version. A pointer to no row, or to one that cannot be read, is a page without a
/// body, long out of date: readers enqueue a regeneration, and its commit replaces the pointer.
pub(crate) fn pointed_meta(meta: &Item, version: Option<&Item>) -> Result<Meta, RowError> {
    let pointer = Reader(meta);
    let pointed = match version {
        None => Meta::default(),
        Some(version) => {
            let mut row = version.clone();
            let life = pointer.number(name::REVALIDATE_SECONDS)?;
            if let Some(life) = life.filter(|life| *life == 0 || !row.contains_key(name::REVALIDATE_SECONDS)) {
                row.insert(name::REVALIDATE_SECONDS.to_owned(), n(life));
            }
            match self::meta(&row) {
                // As a foreign META row that cannot be read: readers get no page.
                Err(RowError::Attribute { .. }) => Meta::default(),
                read => read?,
            }
        }
    };
    Ok(Meta {
        // Ours, from before the pointer was moved.
        version: pointer.parsed(name::VERSION, |text| text.parse().ok())?,
        current_sk: pointer.text(name::CURRENT_SK)?,
        pointer: true,
        ..pointed
    })
}

/// META's own attributes with their values. A commit removes those without a value.
pub(crate) fn meta_attributes(meta: &Meta) -> Vec<(&'static str, Option<AttributeValue>)> {
    let list = |values: Vec<AttributeValue>| (!values.is_empty()).then_some(AttributeValue::L(values));
    let flag = |on: bool| on.then_some(AttributeValue::Bool(true));
    let bypass = meta.bypass.as_ref();
    let validators = meta.validators.as_ref();
    // An older version would take a bypass for a page whose body is lost.
    let schema = if bypass.is_some() { SCHEMA } else { SCHEMA_WITH_BODY };
    vec![
        (name::SCHEMA, Some(n(schema))),
        (name::S3_KEY, Some(s(&meta.s3_key))),
        (name::GENERATED_AT, Some(n(meta.generated_at))),
        (name::REVALIDATE_SECONDS, Some(n(meta.revalidate_seconds))),
        (name::ETAG, meta.etag.as_ref().map(s)),
        // A foreign writer's ttl would let DynamoDB delete our version.
        (name::TTL, meta.ttl.map(n)),
        (name::VERSION, meta.version.map(|version| s(version.to_string()))),
        (name::SOURCE_MS, meta.source_ms.map(n)),
        (name::NEWEST_SENT_MS, meta.newest_sent_ms.map(n)),
        (name::MODIFIED_AT, meta.modified_at.map(n)),
        (name::STATUS, meta.status.map(|status| n(u64::from(status)))),
        (name::HEADERS, list(meta.headers.iter().map(|(name, value)| s(format!("{name}: {value}"))).collect())),
        (name::BODY_DIGEST, meta.body_digest.map(|digest| s(digest.to_string()))),
        (name::ARTIFACT_DIGEST, meta.artifact_digest.map(|digest| s(digest.to_string()))),
        (name::BODY_BYTES, meta.body_bytes.map(n)),
        (name::MAX_STALE_SECONDS, meta.max_stale_seconds.map(n)),
        (name::MUST_REVALIDATE, flag(meta.must_revalidate)),
        (name::STALE_IF_ERROR_SECONDS, meta.stale_if_error_seconds.map(n)),
        (name::ORIGIN_ETAG, validators.and_then(|known| known.etag.as_ref()).map(s)),
        (name::ORIGIN_LAST_MODIFIED, validators.and_then(|known| known.last_modified.as_ref()).map(s)),
        (name::ORIGIN_FRESH_SECONDS, validators.and_then(|known| known.fresh_s).map(n)),
        (name::VALIDATORS_OF, validators.map(|known| s(known.of.to_string()))),
        (name::BYPASS_REASON, bypass.map(|bypass| s(bypass.reason.as_str()))),
        (name::CHECK_AT_MS, bypass.map(|bypass| n(bypass.check_at_ms))),
        (name::CHECK_AFTER_SECONDS, bypass.map(|bypass| n(bypass.check_after_s))),
        (name::TAGS, list(meta.tags.iter().map(|tag| s(tag.as_str())).collect())),
        (name::DEPLOY, meta.deploy.map(n)),
        (name::CURRENT_SK, meta.current_sk.as_ref().map(s)),
        (name::TOMBSTONE, flag(meta.tombstone)),
        (name::SHOWN_SINCE, meta.shown_since.map(|version| s(version.to_string()))),
        (name::PENDING_NOTIFICATION, meta.pending_notification.as_ref().map(|pending| s(pending.to_string()))),
    ]
}

fn header(value: &AttributeValue) -> Option<(String, String)> {
    let (name, value) = value.as_s().ok()?.split_once(": ")?;
    Some((name.to_owned(), value.to_owned()))
}

pub(crate) fn lock(item: &Item) -> Result<LockRow, RowError> {
    let row = Reader(item);
    Ok(LockRow {
        lease_token: row.needed(name::LEASE_TOKEN, row.text(name::LEASE_TOKEN)?)?,
        lease_expires_at: row.needed(name::LEASE_EXPIRES_AT, row.number(name::LEASE_EXPIRES_AT)?)?,
        ttl: row.number(name::TTL)?,
    })
}

pub(crate) fn health(item: &Item) -> Result<Health, RowError> {
    let row = Reader(item);
    Ok(Health {
        failures: row.maybe(name::FAILURES, |value| value.as_n().ok()?.parse().ok())?.unwrap_or(0),
        next_attempt_ms: row.number(name::NEXT_ATTEMPT_MS)?,
        pinned_at_ms: row.number(name::PINNED_AT_MS)?,
        wanted_at_ms: row.number(name::WANTED_AT_MS)?,
        path_watermark_ms: row.number(name::PATH_WATERMARK_MS)?,
        path_hard_ms: row.number(name::PATH_HARD_MS)?,
        last_failure: last_failure(&row)?,
        refused: refused(&row),
    })
}

/// Only shown: if it cannot be read, the page is none the worse for it.
fn refused(row: &Reader<'_>) -> Option<Box<RefusedRender>> {
    let (reason, at_ms) = (row.text(name::REFUSED_REASON).ok()??, row.number(name::REFUSED_AT_MS).ok()??);
    let s3_key = row.text(name::REFUSED_S3_KEY).ok().flatten();
    Some(Box::new(RefusedRender { reason, at_ms, s3_key }))
}

/// Of a class that this version does not know: none.
fn last_failure(row: &Reader<'_>) -> Result<Option<LastFailure>, RowError> {
    let class = row.text(name::ERROR_CLASS)?.and_then(|word| ErrorClass::parse(&word));
    let at_ms = row.number(name::FAILED_AT_MS)?;
    Ok(class.zip(at_ms).map(|(class, at_ms)| LastFailure { class, at_ms }))
}

pub(crate) fn req(item: &Item) -> Result<ReqRow, RowError> {
    let row = Reader(item);
    Ok(ReqRow {
        request_hash: row.needed(name::REQUEST_HASH, row.text(name::REQUEST_HASH)?)?,
        status: row.needed(name::STATUS, row.parsed(name::STATUS, ReqStatus::parse)?)?,
        result_s3_key: row.text(name::RESULT_S3_KEY)?,
        // These and the reason are only shown: what cannot be read is none.
        result_version: row.parsed(name::RESULT_VERSION, |text| text.parse().ok()).ok().flatten(),
        result_etag: row.text(name::RESULT_ETAG).ok().flatten(),
        result_bypass: row.flag(name::RESULT_BYPASS).unwrap_or(false),
        ttl: row.number(name::TTL)?,
        owner: row.text(name::OWNER)?,
        claim_expires_ms: row.number(name::CLAIM_EXPIRES_MS)?,
        attempts: row.maybe(name::ATTEMPTS, |value| value.as_n().ok()?.parse().ok())?.unwrap_or(0),
        stale_answers: row.maybe(name::STALE_ANSWERS, |value| value.as_n().ok()?.parse().ok())?.unwrap_or(0),
        // A class of a newer version does not make the record unreadable: it counts as retryable.
        error_class: row.text(name::ERROR_CLASS)?.and_then(|word| ErrorClass::parse(&word)),
        rejected_at_ms: row.number(name::REJECTED_AT_MS)?,
        reject_reason: row.text(name::REJECT_REASON).ok().flatten(),
        events: row.list(name::EVENTS, event)?,
    })
}

/// What of this version is recorded with the requests that it completes, and the values of
/// [`super::expressions::complete`].
pub(crate) fn result_of(meta: &Meta) -> (RecordedResult, Vec<(&'static str, AttributeValue)>) {
    let version = meta.version.map(|version| (":version", s(version.to_string())));
    let etag = meta.etag.as_ref().map(|etag| (":etag", s(etag)));
    let bypass = meta.bypass.map(|_| (":bypass", AttributeValue::Bool(true)));
    let recorded =
        RecordedResult { has_version: version.is_some(), has_etag: etag.is_some(), is_bypass: bypass.is_some() };
    let completed = [(":completed", s(ReqStatus::Completed.as_str())), (":key", s(&meta.s3_key))];
    (recorded, completed.into_iter().chain(version).chain(etag).chain(bypass).collect())
}

fn event(value: &AttributeValue) -> Option<Event> {
    let map = value.as_m().ok()?;
    let number = |name: &str| map.get(name)?.as_n().ok()?.parse().ok();
    Some(Event { seq: number(name::SEQ)?, at_ms: number(name::AT_MS)? })
}

pub(crate) fn events(events: &[Event]) -> AttributeValue {
    let one = |event: &Event| {
        let pair = [(name::SEQ.to_owned(), n(event.seq)), (name::AT_MS.to_owned(), n(event.at_ms))];
        AttributeValue::M(pair.into())
    };
    AttributeValue::L(events.iter().map(one).collect())
}

/// The kept copy of a version: everything of META that a rollback publishes again.
pub(crate) fn version_item(meta: &Meta) -> Item {
    let kept = [
        name::S3_KEY,
        name::GENERATED_AT,
        name::ETAG,
        name::VERSION,
        name::SOURCE_MS,
        name::MODIFIED_AT,
        name::STATUS,
        name::HEADERS,
        name::BODY_DIGEST,
        name::ARTIFACT_DIGEST,
        name::BODY_BYTES,
        name::REVALIDATE_SECONDS,
        name::MAX_STALE_SECONDS,
        name::MUST_REVALIDATE,
        name::STALE_IF_ERROR_SECONDS,
        name::ORIGIN_ETAG,
        name::ORIGIN_LAST_MODIFIED,
        name::ORIGIN_FRESH_SECONDS,
        name::VALIDATORS_OF,
        name::TAGS,
        name::DEPLOY,
        name::SCHEMA,
    ];
    let attributes = meta_attributes(meta).into_iter().filter(|(name, _)| kept.contains(name));
    attributes.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

pub(crate) fn version(item: &Item) -> Result<VersionRow, RowError> {
    let row = Reader(item);
    row.check_schema()?;
    let needed_number = |attribute| row.needed(attribute, row.number(attribute)?);
    Ok(VersionRow {
        version: row.needed(name::VERSION, row.parsed(name::VERSION, |text| text.parse().ok())?)?,
        s3_key: row.needed(name::S3_KEY, row.text(name::S3_KEY)?)?,
        generated_at: needed_number(name::GENERATED_AT)?,
        modified_at: needed_number(name::MODIFIED_AT)?,
        source_ms: row.number(name::SOURCE_MS)?,
        etag: row.text(name::ETAG)?,
        status: row.needed(name::STATUS, row.maybe(name::STATUS, |value| value.as_n().ok()?.parse().ok())?)?,
        headers: row.list(name::HEADERS, header)?,
        body_digest: row.needed(name::BODY_DIGEST, row.parsed(name::BODY_DIGEST, Digest::parse)?)?,
        artifact_digest: row.needed(name::ARTIFACT_DIGEST, row.parsed(name::ARTIFACT_DIGEST, Digest::parse)?)?,
        body_bytes: needed_number(name::BODY_BYTES)?,
        revalidate_seconds: row.number(name::REVALIDATE_SECONDS)?,
        max_stale_seconds: row.number(name::MAX_STALE_SECONDS)?,
        must_revalidate: row.flag(name::MUST_REVALIDATE)?,
        stale_if_error_seconds: row.number(name::STALE_IF_ERROR_SECONDS)?,
        validators: validators(&row)?,
        tags: row.list(name::TAGS, |value| Tag::parse(value.as_s().ok()?).ok())?,
        deploy: needed_number(name::DEPLOY)?,
    })
}

pub(crate) fn watermark(item: &Item) -> Result<Watermark, RowError> {
    let row = Reader(item);
    let at_ms = row.needed(name::WATERMARK_MS, row.number(name::WATERMARK_MS)?)?;
    Ok(Watermark { at_ms, hard_ms: row.number(name::HARD_MS)? })
}

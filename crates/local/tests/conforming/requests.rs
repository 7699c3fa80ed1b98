//! Random DynamoDB requests: few keys, few values and the ledger's own conditions, so that they
//! conflict often.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use fastrand::Rng;

use crate::support::{n, s};

pub(crate) type Row = HashMap<String, AttributeValue>;

/// An expression with its placeholders. Conditions use other placeholders than updates, so that
/// both fit in one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Expression {
    pub(crate) text: String,
    pub(crate) names: Vec<(&'static str, &'static str)>,
    pub(crate) values: Vec<(&'static str, AttributeValue)>,
}

fn expression(
    text: &str,
    names: &[(&'static str, &'static str)],
    values: &[(&'static str, AttributeValue)],
) -> Expression {
    Expression { text: text.to_owned(), names: names.to_vec(), values: values.to_vec() }
}

/// One write, alone or in a transaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Put { row: Row, condition: Option<Expression> },
    Update { key: Row, update: Expression, condition: Option<Expression> },
    Delete { key: Row, condition: Option<Expression> },
    Check { key: Row, condition: Expression },
}

const SORT_KEYS: [&str; 6] = ["HEALTH", "LOCK", "META", "REQ#1", "REQ#2", "VER#1"];

/// Used by every sequence.
pub(crate) const PARTITION: &str = "TENANT#acme#CACHE#1";

pub(crate) fn sort_key(rng: &mut Rng) -> &'static str {
    rng.choice(SORT_KEYS).unwrap()
}

pub(crate) fn key(rng: &mut Rng) -> Row {
    key_of(sort_key(rng))
}

fn key_of(sk: &str) -> Row {
    [("pk".to_owned(), s(PARTITION)), ("sk".to_owned(), s(sk))].into()
}

fn word(rng: &mut Rng) -> AttributeValue {
    s(rng.choice(["a", "a", "a", "a", "b", "", "VER#1", "ü"]).unwrap())
}

fn status(rng: &mut Rng) -> AttributeValue {
    s(rng.choice(["STARTED", "COMPLETED", "FAILED"]).unwrap())
}

/// Also as foreign writers with floating-point numbers write it.
fn number(rng: &mut Rng) -> AttributeValue {
    match rng.u32(0..12) {
        0 => AttributeValue::N("100.0".into()),
        1 => AttributeValue::N("100.5".into()),
        2 => AttributeValue::N("-1".into()),
        3 => AttributeValue::N("1763270000123".into()),
        _ => n(rng.i64(98..103)),
    }
}

fn events(rng: &mut Rng) -> AttributeValue {
    let event = |seq| AttributeValue::M([("seq".to_owned(), n(seq)), ("at_ms".to_owned(), n(100))].into());
    AttributeValue::L((0..rng.i64(0..3)).map(event).collect())
}

/// A row with some of the ledger's attributes.
pub(crate) fn row(rng: &mut Rng) -> Row {
    let mut row = key(rng);
    for name in ["lease_token", "owner", "etag", "s3_key", "version", "current_sk"] {
        if rng.u32(0..3) == 0 {
            row.insert(name.to_owned(), word(rng));
        }
    }
    for name in ["lease_expires_at", "ttl", "generated_at", "claim_expires_ms", "watermark_ms", "pinned_at_ms"] {
        if rng.u32(0..3) == 0 {
            row.insert(name.to_owned(), number(rng));
        }
    }
    for name in ["owner", "etag", "version", "claim_expires_ms"] {
        if rng.u32(0..8) == 0 {
            row.insert(name.to_owned(), AttributeValue::Null(true));
        }
    }
    if rng.bool() {
        row.insert("status".to_owned(), status(rng));
        row.insert("events".to_owned(), events(rng));
    }
    if rng.u32(0..8) == 0 {
        row.insert("tombstone".to_owned(), AttributeValue::Bool(rng.bool()));
    }
    row
}

/// A condition like the ledger's, see `core/src/ledger/expressions.rs`.
pub(crate) fn condition(rng: &mut Rng) -> Expression {
    let version = ("#version", "version");
    let (owner, state) = (("#owner", "owner"), ("#status", "status"));
    let null = (":c_null", s("NULL"));
    let (text, time) = (word(rng), number(rng));
    if rng.u32(0..40) == 0 {
        return invalid_condition(rng);
    }
    match rng.u32(0..17) {
        0..3 => expression("attribute_not_exists(pk)", &[], &[]),
        3 => expression("attribute_exists(pk)", &[], &[]),
        4 => expression("attribute_not_exists(pk) OR lease_expires_at <= :c_now", &[], &[(":c_now", time)]),
        5 => expression(
            "lease_token = :c_token AND lease_expires_at > :c_now",
            &[],
            &[(":c_token", text), (":c_now", time)],
        ),
        6 => expression("lease_token = :c_token", &[], &[(":c_token", text)]),
        7 => expression("#version = :c_seen", &[version], &[(":c_seen", text)]),
        8 => expression(
            "(attribute_not_exists(#version) OR attribute_type(#version, :c_null)) AND s3_key = :c_key AND \
             generated_at >= :c_from AND generated_at < :c_to AND \
             (attribute_not_exists(etag) OR attribute_type(etag, :c_null))",
            &[version],
            &[null, (":c_key", text), (":c_from", time), (":c_to", number(rng))],
        ),
        9 => expression(
            "(attribute_not_exists(#version) OR attribute_type(#version, :c_null)) AND etag = :c_etag",
            &[version],
            &[null, (":c_etag", text)],
        ),
        10 => expression(
            "current_sk = :c_sk AND #version = :c_seen",
            &[version],
            &[(":c_sk", text), (":c_seen", word(rng))],
        ),
        11 => expression(
            "#status = :c_status AND (attribute_not_exists(#owner) OR attribute_type(#owner, :c_null)) AND \
             claim_expires_ms = :c_expiry",
            &[owner, state],
            &[(":c_status", status(rng)), null, (":c_expiry", time)],
        ),
        12 => expression("#ttl = :c_ttl", &[("#ttl", "ttl")], &[(":c_ttl", time)]),
        13 => expression(
            "#owner = :c_owner AND #status = :c_status",
            &[owner, state],
            &[(":c_owner", text), (":c_status", status(rng))],
        ),
        14 => expression("attribute_exists(pinned_at_ms)", &[], &[]),
        15 => expression("attribute_not_exists(watermark_ms) OR watermark_ms < :c_at", &[], &[(":c_at", time)]),
        _ => expression("attribute_exists(pk) AND #status <> :c_status", &[state], &[(":c_status", status(rng))]),
    }
}

/// Refused: an unknown placeholder, a reserved word, an unused value, an incomplete expression.
fn invalid_condition(rng: &mut Rng) -> Expression {
    match rng.u32(0..4) {
        0 => expression("lease_token = :c_missing", &[], &[]),
        1 => expression("status = :c_status", &[], &[(":c_status", status(rng))]),
        2 => expression("attribute_exists(pk)", &[], &[(":c_unused", word(rng))]),
        _ => expression("attribute_exists(pk) AND", &[], &[]),
    }
}

/// An update like the ledger's.
fn update(rng: &mut Rng, in_transaction: bool) -> Expression {
    let (text, time) = (word(rng), number(rng));
    let state = ("#status", "status");
    if rng.u32(0..40) == 0 {
        return invalid_update(rng, in_transaction);
    }
    match rng.u32(0..11) {
        0 => expression(
            "SET lease_expires_at = :until, #ttl = :ttl",
            &[("#ttl", "ttl")],
            &[(":until", time), (":ttl", number(rng))],
        ),
        1 => expression(
            "SET #status = :completed, result_s3_key = :key, events = :events",
            &[state],
            &[(":completed", s("COMPLETED")), (":key", text), (":events", events(rng))],
        ),
        2 => expression("REMOVE failures, next_attempt_ms", &[], &[]),
        3 => expression(
            "SET failures = :failures, next_attempt_ms = :next",
            &[],
            &[(":failures", n(1)), (":next", time)],
        ),
        4 => expression("SET rejected_at_ms = if_not_exists(rejected_at_ms, :at)", &[], &[(":at", time)]),
        5 => expression("SET path_watermark_ms = :at REMOVE pinned_at_ms, wanted_at_ms", &[], &[(":at", time)]),
        6 => expression("SET revalidate_seconds = :zero", &[], &[(":zero", n(0))]),
        7 => expression(
            "SET claim_expires_ms = :at, events = :events REMOVE #owner",
            &[("#owner", "owner")],
            &[(":at", n(0)), (":events", events(rng))],
        ),
        8 => expression("SET watermark_ms = :at", &[], &[(":at", time)]),
        9 => expression("SET pinned_at_ms = :at", &[], &[(":at", time)]),
        _ => expression(
            "SET #a0 = :a0, #a1 = :a1, #a2 = :a2 REMOVE #a3, #a4",
            &[("#a0", "s3_key"), ("#a1", "version"), ("#a2", "generated_at"), ("#a3", "ttl"), ("#a4", "etag")],
            &[(":a0", text), (":a1", word(rng)), (":a2", time)],
        ),
    }
}

/// Refused: overlapping paths, a missing attribute, reserved words, a changed key.
fn invalid_update(rng: &mut Rng, in_transaction: bool) -> Expression {
    let (text, time) = (word(rng), number(rng));
    match rng.u32(0..4) {
        // In a transaction ministack accepts this and moves the row to another key; AWS and the
        // embedded DynamoDB refuse it.
        0 if !in_transaction => expression("SET sk = :other", &[], &[(":other", text)]),
        0 | 1 => expression("SET etag = :one, etag = :two", &[], &[(":one", text), (":two", word(rng))]),
        2 => expression("SET failures = failures + :one", &[], &[(":one", n(1))]),
        _ => expression("SET owner = :owner, ttl = :ttl", &[], &[(":owner", text), (":ttl", time)]),
    }
}

/// A single write, or one for a transaction.
pub(crate) fn write(rng: &mut Rng, sk: &str, in_transaction: bool) -> Write {
    let condition = rng.bool().then(|| self::condition(rng));
    let mut row = self::row(rng);
    row.insert("sk".to_owned(), s(sk));
    match rng.u32(0..if in_transaction { 7 } else { 6 }) {
        0..2 => Write::Put { row, condition },
        2..4 => Write::Update { key: key_of(sk), update: update(rng, in_transaction), condition },
        4..6 => Write::Delete { key: key_of(sk), condition },
        _ => Write::Check { key: key_of(sk), condition: self::condition(rng) },
    }
}

//! Requests to DynamoDB by chance: few keys, few values and the protocol's own conditions, so that they meet each other often.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use fastrand::Rng;

use crate::support::{n, s};

pub(crate) type Row = HashMap<String, AttributeValue>;

/// An expression with what it refers to. Conditions use other placeholders than updates, so that both fit in one request.
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

/// The partition that every sequence works on.
pub(crate) const PARTITION: &str = "TENANT#acme#CACHE#1";

pub(crate) fn sort_key(chance: &mut Rng) -> &'static str {
    chance.choice(SORT_KEYS).unwrap()
}

pub(crate) fn key(chance: &mut Rng) -> Row {
    key_of(sort_key(chance))
}

fn key_of(sk: &str) -> Row {
    [("pk".to_owned(), s(PARTITION)), ("sk".to_owned(), s(sk))].into()
}

fn word(chance: &mut Rng) -> AttributeValue {
    s(chance.choice(["a", "a", "a", "a", "b", "", "VER#1", "ü"]).unwrap())
}

fn status(chance: &mut Rng) -> AttributeValue {
    s(chance.choice(["STARTED", "COMPLETED", "FAILED"]).unwrap())
}

/// Also as helpers write it that count in floating point.
fn number(chance: &mut Rng) -> AttributeValue {
    match chance.u32(0..12) {
        0 => AttributeValue::N("100.0".into()),
        1 => AttributeValue::N("100.5".into()),
        2 => AttributeValue::N("-1".into()),
        3 => AttributeValue::N("1763270000123".into()),
        _ => n(chance.i64(98..103)),
    }
}

fn events(chance: &mut Rng) -> AttributeValue {
    let event = |seq| AttributeValue::M([("seq".to_owned(), n(seq)), ("at_ms".to_owned(), n(100))].into());
    AttributeValue::L((0..chance.i64(0..3)).map(event).collect())
}

/// A row with some of the attributes that rows have.
pub(crate) fn row(chance: &mut Rng) -> Row {
    let mut row = key(chance);
    for name in ["lease_token", "owner", "etag", "s3_key", "version", "current_sk"] {
        if chance.u32(0..3) == 0 {
            row.insert(name.to_owned(), word(chance));
        }
    }
    for name in ["lease_expires_at", "ttl", "generated_at", "claim_expires_ms", "watermark_ms", "pinned_at_ms"] {
        if chance.u32(0..3) == 0 {
            row.insert(name.to_owned(), number(chance));
        }
    }
    for name in ["owner", "etag", "version", "claim_expires_ms"] {
        if chance.u32(0..8) == 0 {
            row.insert(name.to_owned(), AttributeValue::Null(true));
        }
    }
    if chance.bool() {
        row.insert("status".to_owned(), status(chance));
        row.insert("events".to_owned(), events(chance));
    }
    if chance.u32(0..8) == 0 {
        row.insert("tombstone".to_owned(), AttributeValue::Bool(chance.bool()));
    }
    row
}

/// A condition as the ledger's are, in `core/src/ledger/expressions.rs`.
pub(crate) fn condition(chance: &mut Rng) -> Expression {
    let version = ("#version", "version");
    let (owner, state) = (("#owner", "owner"), ("#status", "status"));
    let null = (":c_null", s("NULL"));
    let (text, time) = (word(chance), number(chance));
    if chance.u32(0..40) == 0 {
        return no_condition(chance);
    }
    match chance.u32(0..17) {
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
            &[null, (":c_key", text), (":c_from", time), (":c_to", number(chance))],
        ),
        9 => expression(
            "(attribute_not_exists(#version) OR attribute_type(#version, :c_null)) AND etag = :c_etag",
            &[version],
            &[null, (":c_etag", text)],
        ),
        10 => expression(
            "current_sk = :c_sk AND #version = :c_seen",
            &[version],
            &[(":c_sk", text), (":c_seen", word(chance))],
        ),
        11 => expression(
            "#status = :c_status AND (attribute_not_exists(#owner) OR attribute_type(#owner, :c_null)) AND \
             claim_expires_ms = :c_expiry",
            &[owner, state],
            &[(":c_status", status(chance)), null, (":c_expiry", time)],
        ),
        12 => expression("#ttl = :c_ttl", &[("#ttl", "ttl")], &[(":c_ttl", time)]),
        13 => expression(
            "#owner = :c_owner AND #status = :c_status",
            &[owner, state],
            &[(":c_owner", text), (":c_status", status(chance))],
        ),
        14 => expression("attribute_exists(pinned_at_ms)", &[], &[]),
        15 => expression("attribute_not_exists(watermark_ms) OR watermark_ms < :c_at", &[], &[(":c_at", time)]),
        _ => expression("attribute_exists(pk) AND #status <> :c_status", &[state], &[(":c_status", status(chance))]),
    }
}

/// What the services refuse: an unknown placeholder, a reserved word, a value that nobody uses, half a sentence.
fn no_condition(chance: &mut Rng) -> Expression {
    match chance.u32(0..4) {
        0 => expression("lease_token = :c_missing", &[], &[]),
        1 => expression("status = :c_status", &[], &[(":c_status", status(chance))]),
        2 => expression("attribute_exists(pk)", &[], &[(":c_unused", word(chance))]),
        _ => expression("attribute_exists(pk) AND", &[], &[]),
    }
}

/// An update as the ledger's are.
fn update(chance: &mut Rng, in_transaction: bool) -> Expression {
    let (text, time) = (word(chance), number(chance));
    let state = ("#status", "status");
    if chance.u32(0..40) == 0 {
        return no_update(chance, in_transaction);
    }
    match chance.u32(0..11) {
        0 => expression(
            "SET lease_expires_at = :until, #ttl = :ttl",
            &[("#ttl", "ttl")],
            &[(":until", time), (":ttl", number(chance))],
        ),
        1 => expression(
            "SET #status = :completed, result_s3_key = :key, events = :events",
            &[state],
            &[(":completed", s("COMPLETED")), (":key", text), (":events", events(chance))],
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
            &[(":at", n(0)), (":events", events(chance))],
        ),
        8 => expression("SET watermark_ms = :at", &[], &[(":at", time)]),
        9 => expression("SET pinned_at_ms = :at", &[], &[(":at", time)]),
        _ => expression(
            "SET #a0 = :a0, #a1 = :a1, #a2 = :a2 REMOVE #a3, #a4",
            &[("#a0", "s3_key"), ("#a1", "version"), ("#a2", "generated_at"), ("#a3", "ttl"), ("#a4", "etag")],
            &[(":a0", text), (":a1", word(chance)), (":a2", time)],
        ),
    }
}

/// What the services refuse: two paths that overlap, an attribute that is not there, reserved words, another key.
fn no_update(chance: &mut Rng, in_transaction: bool) -> Expression {
    let (text, time) = (word(chance), number(chance));
    match chance.u32(0..4) {
        // In a transaction ministack does what AWS and the embedded DynamoDB refuse, and moves the row to another key.
        0 if !in_transaction => expression("SET sk = :other", &[], &[(":other", text)]),
        0 | 1 => expression("SET etag = :one, etag = :two", &[], &[(":one", text), (":two", word(chance))]),
        2 => expression("SET failures = failures + :one", &[], &[(":one", n(1))]),
        _ => expression("SET owner = :owner, ttl = :ttl", &[], &[(":owner", text), (":ttl", time)]),
    }
}

/// A write of its own, or for a transaction.
pub(crate) fn write(chance: &mut Rng, sk: &str, in_transaction: bool) -> Write {
    let condition = chance.bool().then(|| self::condition(chance));
    let mut row = self::row(chance);
    row.insert("sk".to_owned(), s(sk));
    match chance.u32(0..if in_transaction { 7 } else { 6 }) {
        0..2 => Write::Put { row, condition },
        2..4 => Write::Update { key: key_of(sk), update: update(chance, in_transaction), condition },
        4..6 => Write::Delete { key: key_of(sk), condition },
        _ => Write::Check { key: key_of(sk), condition: self::condition(chance) },
    }
}

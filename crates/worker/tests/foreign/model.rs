//! The rows as a foreign writer's typed models read them: exactly the shared attributes, of exactly
//! these types. Other attributes are ignored. An absent attribute is absent, never NULL or empty.

use everfresh_testing::Item;

fn text(row: &Item, name: &str) -> Option<String> {
    let value = row.get(name)?.as_s().unwrap_or_else(|other| panic!("{name} is not a string: {other:?}"));
    assert!(!value.is_empty(), "{name} is empty");
    Some(value.clone())
}

/// Whole seconds: a model in Go has an int64 here.
fn seconds(row: &Item, name: &str) -> Option<u64> {
    let value = row.get(name)?.as_n().unwrap_or_else(|other| panic!("{name} is not a number: {other:?}"));
    let value: i64 = value.parse().unwrap_or_else(|_| panic!("{name} is not an int64: {value}"));
    assert!((0..10_000_000_000).contains(&value), "{name} is not a time in seconds: {value}");
    Some(value.unsigned_abs())
}

fn required<T>(value: Option<T>, name: &str) -> T {
    value.unwrap_or_else(|| panic!("{name} is missing"))
}

#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) s3_key: String,
    pub(crate) generated_at: u64,
    pub(crate) revalidate_seconds: u64,
    pub(crate) etag: Option<String>,
    pub(crate) ttl: Option<u64>,
    pub(crate) current_sk: Option<String>,
}

impl Meta {
    pub(crate) fn of(row: &Item) -> Self {
        Self {
            revalidate_seconds: required(seconds(row, "revalidate_seconds"), "revalidate_seconds"),
            ..Self::version_row(row)
        }
    }

    /// A version row has no `revalidate_seconds`.
    pub(crate) fn version_row(row: &Item) -> Self {
        Self {
            s3_key: required(text(row, "s3_key"), "s3_key"),
            generated_at: required(seconds(row, "generated_at"), "generated_at"),
            revalidate_seconds: 0,
            etag: text(row, "etag"),
            ttl: seconds(row, "ttl"),
            current_sk: text(row, "current_sk"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) lease_expires_at: u64,
    pub(crate) ttl: Option<u64>,
}

impl Lock {
    pub(crate) fn of(row: &Item) -> Self {
        required(text(row, "lease_token"), "lease_token");
        Self {
            lease_expires_at: required(seconds(row, "lease_expires_at"), "lease_expires_at"),
            ttl: seconds(row, "ttl"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Req {
    pub(crate) status: String,
    pub(crate) result_s3_key: Option<String>,
    pub(crate) ttl: Option<u64>,
}

impl Req {
    pub(crate) fn of(row: &Item) -> Self {
        let hash = required(text(row, "request_hash"), "request_hash");
        assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        let status = required(text(row, "status"), "status");
        assert!(["STARTED", "COMPLETED", "FAILED"].contains(&status.as_str()), "{status}");
        Self { status, result_s3_key: text(row, "result_s3_key"), ttl: seconds(row, "ttl") }
    }
}

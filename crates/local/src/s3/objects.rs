//! Object storage in SQLite. A key is a column value and never a file path, so every legal key
//! works, `..` included. Each operation is one statement, and so atomic.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use everfresh_core::clock::Clock;
use md5::{Digest, Md5};
use rusqlite::{Connection, OptionalExtension, Row, params};

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS bucket (name TEXT PRIMARY KEY) STRICT;
    CREATE TABLE IF NOT EXISTS object (
        bucket      TEXT NOT NULL REFERENCES bucket(name),
        key         TEXT NOT NULL,
        etag        TEXT NOT NULL,
        modified_ms INTEGER NOT NULL,
        headers     TEXT NOT NULL,
        body        BLOB NOT NULL,
        PRIMARY KEY (bucket, key)
    ) STRICT;
";

pub(super) struct Objects {
    connection: Mutex<Connection>,
    clock: Clock,
}

/// Headers and metadata that are stored with the body and returned with it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Headers {
    pub(super) content_type: Option<String>,
    pub(super) content_encoding: Option<String>,
    pub(super) cache_control: Option<String>,
    pub(super) metadata: HashMap<String, String>,
}

pub(super) struct Stored {
    pub(super) entry: Entry,
    pub(super) headers: Headers,
    pub(super) body: Bytes,
}

/// An object as in a listing.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) etag: String,
    pub(super) modified_ms: i64,
    pub(super) size: i64,
}

/// Precondition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    /// `If-None-Match: *`
    Absent,
    /// `If-Match: "etag"`
    Matches(String),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PutOutcome {
    Stored {
        etag: String,
    },
    PreconditionFailed,
    /// `If-Match`, but there is no object.
    NoSuchKey,
    NoSuchBucket,
}

impl Objects {
    pub(super) fn memory(clock: Clock) -> rusqlite::Result<Self> {
        Self::over(Connection::open_in_memory()?, clock)
    }

    pub(super) fn open(path: &Path, clock: Clock) -> rusqlite::Result<Self> {
        Self::over(Connection::open(path)?, clock)
    }

    fn over(connection: Connection, clock: Clock) -> rusqlite::Result<Self> {
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    // A panic cannot leave a statement half done, so a poisoned lock is usable.
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false if the bucket existed already.
    pub(super) fn create_bucket(&self, bucket: &str) -> rusqlite::Result<bool> {
        Ok(self.connection().execute("INSERT OR IGNORE INTO bucket (name) VALUES (?1)", [bucket])? == 1)
    }

    pub(super) fn bucket_exists(&self, bucket: &str) -> rusqlite::Result<bool> {
        self.connection().prepare_cached("SELECT 1 FROM bucket WHERE name = ?1")?.exists([bucket])
    }

    pub(super) fn put(
        &self,
        bucket: &str,
        key: &str,
        headers: &Headers,
        body: &[u8],
        condition: &Condition,
    ) -> rusqlite::Result<PutOutcome> {
        if !self.bucket_exists(bucket)? {
            return Ok(PutOutcome::NoSuchBucket);
        }
        let etag = hex(&Md5::digest(body));
        let headers = serde_json::to_string(headers).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
        let connection = self.connection();
        let modified_ms = i64::try_from(self.clock.now_ms()).unwrap_or(i64::MAX);
        // One statement checks and writes: of concurrent conditional writers exactly one changes a
        // row.
        let changed = match condition {
            Condition::None => connection
                .prepare_cached(
                    "INSERT INTO object (bucket, key, etag, modified_ms, headers, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT DO UPDATE SET etag = ?3, modified_ms = ?4, headers = ?5, body = ?6",
                )?
                .execute(params![bucket, key, etag, modified_ms, headers, body])?,
            Condition::Absent => connection
                .prepare_cached(
                    "INSERT INTO object (bucket, key, etag, modified_ms, headers, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT DO NOTHING",
                )?
                .execute(params![bucket, key, etag, modified_ms, headers, body])?,
            Condition::Matches(expected) => connection
                .prepare_cached(
                    "UPDATE object SET etag = ?3, modified_ms = ?4, headers = ?5, body = ?6
                     WHERE bucket = ?1 AND key = ?2 AND etag = ?7",
                )?
                .execute(params![bucket, key, etag, modified_ms, headers, body, expected])?,
        };
        if changed == 1 {
            return Ok(PutOutcome::Stored { etag });
        }
        // Still under the lock, so consistent with the write.
        let exists =
            connection.prepare_cached("SELECT 1 FROM object WHERE bucket = ?1 AND key = ?2")?.exists([bucket, key])?;
        Ok(if exists { PutOutcome::PreconditionFailed } else { PutOutcome::NoSuchKey })
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> rusqlite::Result<Option<Stored>> {
        self.connection()
            .prepare_cached(
                "SELECT key, etag, modified_ms, length(body), headers, body FROM object WHERE bucket = ?1 AND key = ?2",
            )?
            .query_row([bucket, key], |row| {
                let headers: String = row.get(4)?;
                let headers = serde_json::from_str(&headers)
                    .map_err(|e| rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, e.into()))?;
                Ok(Stored { entry: entry(row)?, headers, body: Bytes::from(row.get::<_, Vec<u8>>(5)?) })
            })
            .optional()
    }

    /// Deleting a missing object is not an error.
    pub(super) fn delete(&self, bucket: &str, key: &str) -> rusqlite::Result<()> {
        self.connection().execute("DELETE FROM object WHERE bucket = ?1 AND key = ?2", [bucket, key])?;
        Ok(())
    }

    /// At most `limit` keys with `prefix` and greater than `after`, in byte order.
    pub(super) fn list(&self, bucket: &str, prefix: &str, after: &str, limit: usize) -> rusqlite::Result<Vec<Entry>> {
        self.connection()
            .prepare_cached(
                "SELECT key, etag, modified_ms, length(body) FROM object
                 WHERE bucket = ?1 AND key > ?2 AND substr(CAST(key AS BLOB), 1, length(?3)) = ?3
                 ORDER BY key LIMIT ?4",
            )?
            .query_map(params![bucket, after, prefix.as_bytes(), i64::try_from(limit).unwrap_or(i64::MAX)], entry)?
            .collect()
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry { key: row.get(0)?, etag: row.get(1)?, modified_ms: row.get(2)?, size: row.get(3)? })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

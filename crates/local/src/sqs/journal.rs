//! Durable record of the queues, and of the messages that were sent and not deleted.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};
use rustack_sqs_model::input::{CreateQueueInput, SendMessageInput};
use serde::Serialize;
use serde::de::DeserializeOwned;

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS queue (name TEXT PRIMARY KEY, input TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS message (
        id               TEXT PRIMARY KEY,
        queue            TEXT NOT NULL,
        sent_ms          INTEGER NOT NULL,
        receives         INTEGER NOT NULL,
        first_receive_ms INTEGER,
        input            TEXT NOT NULL
    ) STRICT;
";

pub(super) struct Journal {
    connection: Connection,
}

/// A message that is not deleted yet.
pub(super) struct Entry {
    pub(super) id: String,
    /// Its current queue: the one it was sent to, or that queue's dead-letter queue.
    pub(super) queue: String,
    pub(super) sent_ms: u64,
    pub(super) receives: u64,
    pub(super) first_receive_ms: Option<u64>,
    pub(super) input: SendMessageInput,
}

impl Journal {
    pub(super) fn memory() -> rusqlite::Result<Self> {
        Self::over(Connection::open_in_memory()?)
    }

    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        Self::over(Connection::open(path)?)
    }

    fn over(connection: Connection) -> rusqlite::Result<Self> {
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection })
    }

    /// An existing queue keeps its attributes.
    pub(super) fn save_queue(&self, input: &CreateQueueInput) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT OR IGNORE INTO queue (name, input) VALUES (?1, ?2)",
            params![input.queue_name, to_json(input)?],
        )?;
        Ok(())
    }

    pub(super) fn merge_queue_attributes(
        &self,
        name: &str,
        attributes: &HashMap<String, String>,
    ) -> rusqlite::Result<()> {
        let Some(mut queue) = self.queues()?.into_iter().find(|queue| queue.queue_name == name) else { return Ok(()) };
        queue.attributes.extend(attributes.clone());
        self.connection.execute("UPDATE queue SET input = ?2 WHERE name = ?1", params![name, to_json(&queue)?])?;
        Ok(())
    }

    pub(super) fn delete_queue(&self, name: &str) -> rusqlite::Result<()> {
        self.connection.execute("DELETE FROM queue WHERE name = ?1", [name])?;
        self.delete_messages(name)
    }

    pub(super) fn queues(&self) -> rusqlite::Result<Vec<CreateQueueInput>> {
        let mut statement = self.connection.prepare_cached("SELECT input FROM queue ORDER BY name")?;
        statement.query_map([], |row| from_json(row, 0))?.collect()
    }

    pub(super) fn write(&self, entry: &Entry) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO message (id, queue, sent_ms, receives, first_receive_ms, input) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        statement.execute(params![
            entry.id,
            entry.queue,
            entry.sent_ms,
            entry.receives,
            entry.first_receive_ms,
            to_json(&entry.input)?
        ])?;
        Ok(())
    }

    /// Counts a receive from `queue`. `None` if the message has been deleted meanwhile.
    pub(super) fn count_receive(&self, id: &str, queue: &str, now_ms: u64) -> rusqlite::Result<Option<Entry>> {
        let mut statement = self.connection.prepare_cached(
            "UPDATE message SET receives = receives + 1, queue = ?2, first_receive_ms = coalesce(first_receive_ms, ?3)
             WHERE id = ?1 RETURNING id, queue, sent_ms, receives, first_receive_ms, input",
        )?;
        statement.query_row(params![id, queue, now_ms], entry).optional()
    }

    pub(super) fn delete_message(&self, id: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached("DELETE FROM message WHERE id = ?1")?.execute([id])?;
        Ok(())
    }

    /// Deletes all messages of a queue.
    pub(super) fn delete_messages(&self, name: &str) -> rusqlite::Result<()> {
        self.connection.execute("DELETE FROM message WHERE queue = ?1", [name])?;
        Ok(())
    }

    /// In the order of sending.
    pub(super) fn entries(&self) -> rusqlite::Result<Vec<Entry>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, queue, sent_ms, receives, first_receive_ms, input FROM message ORDER BY sent_ms, rowid",
        )?;
        statement.query_map([], entry)?.collect()
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        id: row.get(0)?,
        queue: row.get(1)?,
        sent_ms: row.get(2)?,
        receives: row.get(3)?,
        first_receive_ms: row.get(4)?,
        input: from_json(row, 5)?,
    })
}

fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
}

fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let json: String = row.get(column)?;
    serde_json::from_str(&json)
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, e.into()))
}

//! The embedded DynamoDB: an HTTP request in, an HTTP response out, no socket between.

mod expressions;
mod schema;
mod validation;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dynoxide::{Database, DynoxideError};
use everfresh_core::clock::Clock;
use http::{HeaderMap, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::schema::Schema;

const CONTENT_TYPE: &str = "application/x-amz-json-1.0";
const TARGET_PREFIX: &str = "DynamoDB_20120810.";

/// The engine. Clones share the database.
#[derive(Clone)]
pub struct DynamoDb {
    database: Database,
    /// Cached keys of the tables. Cleared when a table is created or deleted.
    schemas: Arc<Mutex<HashMap<String, Schema>>>,
}

impl DynamoDb {
    /// An empty database in memory, on `clock`.
    pub fn memory(clock: &Clock) -> Result<Self, DynoxideError> {
        Ok(Self::over(Database::memory_with_clock(Arc::new(EngineClock(clock.clone())))?))
    }

    /// A database in a file. Its TTL sweep uses the system clock.
    pub fn open(path: &Path) -> Result<Self, DynoxideError> {
        Ok(Self::over(Database::new(&path.to_string_lossy())?))
    }

    fn over(database: Database) -> Self {
        Self { database, schemas: Arc::default() }
    }

    /// Deletes items past their `ttl`, as DynamoDB does eventually. Returns how many.
    pub fn sweep_ttl(&self) -> Result<usize, DynoxideError> {
        self.database.sweep_ttl()
    }

    /// Answers one request. Blocks the calling thread.
    pub(crate) fn call(&self, headers: &HeaderMap, body: &[u8]) -> Response<Bytes> {
        let operation =
            headers.get("x-amz-target").and_then(|v| v.to_str().ok()).and_then(|t| t.strip_prefix(TARGET_PREFIX));
        let result = match operation {
            Some(operation) => self.dispatch(operation, body),
            None => Err(unknown_operation("(none)")),
        };
        match result {
            Ok(json) => respond(200, json),
            Err(error) => respond(error.status_code(), error.to_json().into_bytes()),
        }
    }

    fn dispatch(&self, operation: &str, body: &[u8]) -> dynoxide::Result<Vec<u8>> {
        let db = &self.database;
        self.check(operation, body)?;
        match operation {
            "CreateTable" => run(body, |r| db.create_table(r)),
            "DeleteTable" => run(body, |r| db.delete_table(r)),
            "DescribeTable" => run(body, |r| db.describe_table(r)),
            "ListTables" => run(body, |r| db.list_tables(r)),
            "UpdateTimeToLive" => run(body, |r| db.update_time_to_live(r)),
            "DescribeTimeToLive" => run(body, |r| db.describe_time_to_live(r)),
            "GetItem" => run(body, |r| db.get_item(r)),
            "PutItem" => run(body, |r| db.put_item(r)),
            "UpdateItem" => run(body, |r| db.update_item(r)),
            "DeleteItem" => run(body, |r| db.delete_item(r)),
            "Query" => run(body, |r| db.query(r)),
            "Scan" => run(body, |r| db.scan(r)),
            "BatchGetItem" => run(body, |r| db.batch_get_item(r)),
            "BatchWriteItem" => run(body, |r| db.batch_write_item(r)),
            "TransactGetItems" => run(body, |r| db.transact_get_items(r)),
            "TransactWriteItems" => run(body, |r| db.transact_write_items(r)),
            other => Err(unknown_operation(other)),
        }
    }

    /// Refuses requests that the engine accepts and DynamoDB does not.
    fn check(&self, operation: &str, body: &[u8]) -> dynoxide::Result<()> {
        if matches!(operation, "CreateTable" | "DeleteTable") {
            self.schemas().clear();
        }
        // The engine itself refuses invalid JSON.
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        validation::check(operation, &request, |table| self.schema(table))
    }

    /// The keys of a table; `None` if it does not exist, which the engine itself refuses.
    fn schema(&self, table: &str) -> Option<Schema> {
        if let Some(known) = self.schemas().get(table) {
            return Some(known.clone());
        }
        let request = serde_json::from_value(json!({"TableName": table})).ok()?;
        let described = serde_json::to_value(self.database.describe_table(request).ok()?).ok()?;
        let schema = Schema::of(&described["Table"]);
        self.schemas().insert(table.to_owned(), schema.clone());
        Some(schema)
    }

    fn schemas(&self) -> std::sync::MutexGuard<'_, HashMap<String, Schema>> {
        self.schemas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DynamoDb")
    }
}

fn run<Request: DeserializeOwned, Output: Serialize>(
    body: &[u8],
    operation: impl FnOnce(Request) -> dynoxide::Result<Output>,
) -> dynoxide::Result<Vec<u8>> {
    let request = serde_json::from_slice(body).map_err(|error| parse_error(&error))?;
    let output = operation(request)?;
    serde_json::to_vec(&output).map_err(|e| DynoxideError::InternalServerError(e.to_string()))
}

/// The engine validates some values while it parses. It marks with a prefix what DynamoDB reports
/// as a ValidationException.
fn parse_error(error: &serde_json::Error) -> DynoxideError {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    let text = text.strip_suffix(&place).unwrap_or(&text);
    match ["VALIDATION:", "VALIDATION_REQUEST:"].iter().find_map(|mark| text.strip_prefix(mark)) {
        Some(invalid) => DynoxideError::ValidationException(invalid.to_owned()),
        None => DynoxideError::SerializationException(text.to_owned()),
    }
}

fn unknown_operation(name: &str) -> DynoxideError {
    DynoxideError::ValidationException(format!("{name} is not an operation of the embedded DynamoDB"))
}

fn respond(status: u16, json: Vec<u8>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(json));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(CONTENT_TYPE));
    response
}

struct EngineClock(Clock);

impl dynoxide::storage_backend::Clock for EngineClock {
    fn now_unix_secs(&self) -> u64 {
        self.0.now_ms() / 1000
    }

    fn now_unix_secs_f64(&self) -> f64 {
        Duration::from_millis(self.0.now_ms()).as_secs_f64()
    }
}

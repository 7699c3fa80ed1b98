//! The engines as the checker reads them: without the SDK, faults or waiting, so that no other
//! actor runs during a read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use everfresh_core::clock::Clock;
use everfresh_local::engines::Engines;
use everfresh_local::subscribers::Subscribers;
use http::Request;
use serde_json::{Value, json};

use crate::rows::{Rows, text};
use crate::site;

#[derive(Clone)]
pub struct Store {
    engines: Engines,
    clock: Clock,
    start_ms: u64,
    /// Every object ever stored. Keys are never overwritten. An object that the bucket lost stays
    /// here: it existed when META was written.
    objects: Arc<Mutex<BTreeMap<String, String>>>,
    /// Those that the sweep has deleted.
    swept: Arc<Mutex<BTreeSet<String>>>,
}

impl Store {
    pub fn new(engines: Engines, clock: Clock) -> Self {
        let start_ms = clock.now_ms();
        Self { engines, clock, start_ms, objects: Arc::default(), swept: Arc::default() }
    }

    /// The present AWS time.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Simulated time since the start.
    pub fn since_start_ms(&self) -> u64 {
        self.clock.now_ms().saturating_sub(self.start_ms)
    }

    /// The receivers of notifications: CDN and subscribers.
    pub fn subscribers(&self) -> &Subscribers {
        self.engines.subscribers()
    }

    /// All rows of a partition.
    pub async fn partition(&self, pk: &str) -> Rows {
        let query = json!({
            "TableName": "everfresh", "ConsistentRead": true, "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": pk}}
        });
        let request = Request::post("http://in-process.invalid/").header("x-amz-target", "DynamoDB_20120810.Query");
        let Ok(request) = request.body(Bytes::from(query.to_string())) else { return Rows::new() };
        let response = self.engines.call(request).await;
        let response: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        let rows = response["Items"].as_array().cloned().unwrap_or_default();
        rows.into_iter().map(|row| (text(&row, "sk"), row)).collect()
    }

    /// Records an upload. The body contains the whole page, in any framing of the SDK. Returns
    /// `false` if another body was stored under this key before.
    pub fn stored(&self, path: &str, body: &[u8]) -> bool {
        let text = String::from_utf8_lossy(body);
        let page = text.find("<html>").zip(text.rfind("</html>")).map(|(from, to)| &text[from..to + "</html>".len()]);
        let (Some(key), Some(page)) = (path.strip_prefix("/everfresh/"), page) else { return true };
        self.swept().remove(key);
        self.objects().entry(key.to_owned()).or_insert_with(|| page.to_owned()) == page
    }

    /// Records that the sweep has deleted an object.
    pub fn sweep(&self, path: &str) {
        self.swept().extend(path.strip_prefix("/everfresh/").map(str::to_owned));
    }

    /// Whether the sweep has deleted the object.
    pub fn is_swept(&self, key: &str) -> bool {
        self.swept().contains(key)
    }

    /// The body of an object, also if it was lost since.
    pub fn object(&self, key: &str) -> Option<String> {
        self.objects().get(key).cloned()
    }

    /// The revision of an object.
    pub fn revision(&self, key: &str) -> Option<u64> {
        site::read(self.objects().get(key)?).map(|(_, revision)| revision)
    }

    fn swept(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

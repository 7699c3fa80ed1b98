//! The engines as the checker sees them: without the SDK, without faults, without waiting, so that nothing happens while it looks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use everfresh_core::clock::Clock;
use everfresh_local::engines::Engines;
use everfresh_local::subscribers::Subscribers;
use http::Request;
use serde_json::{Value, json};

use crate::rows::{Rows, text};
use crate::site;

/// Reads rows and objects.
#[derive(Clone)]
pub struct Store {
    engines: Engines,
    clock: Clock,
    start_ms: u64,
    /// Every object that the bucket has taken. Keys are never overwritten. What it has lost since
    /// stays here: it was there when META came to point at it.
    objects: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Store {
    /// A store over `engines`.
    pub fn new(engines: Engines, clock: Clock) -> Self {
        let start_ms = clock.now_ms();
        Self { engines, clock, start_ms, objects: Arc::default() }
    }

    /// The present, by AWS's clock.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Simulated time since the beginning.
    pub fn since_start_ms(&self) -> u64 {
        self.clock.now_ms().saturating_sub(self.start_ms)
    }

    /// Who is told after a commit.
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
        let answer = self.engines.call(request).await;
        let answer: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        let rows = answer["Items"].as_array().cloned().unwrap_or_default();
        rows.into_iter().map(|row| (text(&row, "sk"), row)).collect()
    }

    /// The bucket has taken an object. However the SDK frames it, the page is in there whole. Returns whether it is the only one that was
    /// ever stored there.
    pub fn stored(&self, path: &str, body: &[u8]) -> bool {
        let text = String::from_utf8_lossy(body);
        let page = text.find("<html>").zip(text.rfind("</html>")).map(|(from, to)| &text[from..to + "</html>".len()]);
        let (Some(key), Some(page)) = (path.strip_prefix("/everfresh/"), page) else { return true };
        self.objects().entry(key.to_owned()).or_insert_with(|| page.to_owned()) == page
    }

    /// The body of an object that the bucket has taken, lost since or not.
    pub fn object(&self, key: &str) -> Option<String> {
        self.objects().get(key).cloned()
    }

    /// The revision that an object shows.
    pub fn revision(&self, key: &str) -> Option<u64> {
        site::read(self.objects().get(key)?).map(|(_, revision)| revision)
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! CloudFront, EventBridge and SNS, as far as Everfresh calls them. They record the notifications
//! that they receive, in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

/// A CDN, an event bus and a topic. Clones share their records.
#[derive(Clone, Debug, Default)]
pub struct Subscribers(Arc<Mutex<Received>>);

#[derive(Debug, Default)]
struct Received {
    invalidations: BTreeMap<String, Vec<String>>,
    events: Vec<Event>,
    /// Number of PutEvents calls whose entries are still to be refused.
    refused_calls: usize,
    outage_until_ms: u64,
    /// When a FIFO topic received each deduplication id last.
    deduplication_ids: BTreeMap<String, u64>,
}

/// Deduplication interval of a FIFO topic.
const FIFO_DEDUPLICATION_MS: u64 = 5 * 60 * 1000;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Subscriber {
    CloudFront,
    EventBridge,
    Sns,
}

/// A notification that the event bus or the topic received.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// ARN of the event bus or topic.
    pub target: String,
    /// `source` and `detail-type`.
    pub kind: (String, String),
    /// Set for a FIFO topic.
    pub deduplication_id: Option<String>,
    pub detail: Value,
}

impl Subscribers {
    /// Invalidated paths by caller reference.
    pub fn invalidations(&self) -> BTreeMap<String, Vec<String>> {
        self.received().invalidations.clone()
    }

    /// Notifications of event bus and topic, in order.
    pub fn events(&self) -> Vec<Event> {
        self.received().events.clone()
    }

    /// The next `calls` of PutEvents succeed as calls, but report all their entries as failed.
    pub fn refuse_entries(&self, calls: usize) {
        self.received().refused_calls = calls;
    }

    /// Until then, all of them answer 503.
    pub fn outage_until(&self, ms: u64) {
        self.received().outage_until_ms = ms;
    }

    /// Answers one request of the three services.
    pub(crate) fn call(&self, subscriber: Subscriber, body: &[u8], now_ms: u64) -> Response<Bytes> {
        if now_ms < self.received().outage_until_ms {
            return respond(StatusCode::SERVICE_UNAVAILABLE, "text/plain", String::new());
        }
        match subscriber {
            Subscriber::CloudFront => self.create_invalidation(body),
            Subscriber::EventBridge => self.put_events(body),
            Subscriber::Sns => self.publish(body, now_ms),
        }
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// CloudFront's CreateInvalidation. A repeated caller reference returns the first invalidation,
    /// or an error if the paths differ.
    fn create_invalidation(&self, body: &[u8]) -> Response<Bytes> {
        let body = String::from_utf8_lossy(body);
        let (Some(reference), items) = (elements(&body, "CallerReference").pop(), elements(&body, "Path")) else {
            return xml(
                StatusCode::BAD_REQUEST,
                "<ErrorResponse><Error><Code>MalformedXML</Code></Error></ErrorResponse>".to_owned(),
            );
        };
        let mut received = self.received();
        let known = received.invalidations.entry(reference.clone()).or_insert_with(|| items.clone());
        if *known != items {
            let error = "<ErrorResponse><Error><Code>InvalidationBatchAlreadyExists</Code></Error></ErrorResponse>";
            return xml(StatusCode::BAD_REQUEST, error.to_owned());
        }
        let created = format!(
            "<Invalidation><Id>I-{reference}</Id><Status>InProgress</Status><CreateTime>2026-01-01T00:00:00Z</CreateTime>\
             <InvalidationBatch><Paths><Quantity>0</Quantity></Paths><CallerReference>{reference}</CallerReference>\
             </InvalidationBatch></Invalidation>"
        );
        xml(StatusCode::CREATED, created)
    }

    /// EventBridge's PutEvents. No deduplication.
    fn put_events(&self, body: &[u8]) -> Response<Bytes> {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let entries = request["Entries"].as_array().cloned().unwrap_or_default();
        let mut received = self.received();
        if received.refused_calls > 0 {
            received.refused_calls -= 1;
            let refused = json!({"ErrorCode": "ThrottlingException", "ErrorMessage": "too many events"});
            let answer = json!({"FailedEntryCount": entries.len(), "Entries": vec![refused; entries.len()]});
            return respond(StatusCode::OK, "application/x-amz-json-1.1", answer.to_string());
        }
        for entry in &entries {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            received.events.push(Event {
                target: text("EventBusName"),
                kind: (text("Source"), text("DetailType")),
                deduplication_id: None,
                detail: serde_json::from_str(&text("Detail")).unwrap_or_default(),
            });
        }
        let answer = json!({"FailedEntryCount": 0, "Entries": vec![json!({"EventId": "received"}); entries.len()]});
        respond(StatusCode::OK, "application/x-amz-json-1.1", answer.to_string())
    }

    /// SNS's Publish. A FIFO topic deduplicates by id for five minutes, a standard topic does not.
    fn publish(&self, body: &[u8], now_ms: u64) -> Response<Bytes> {
        let form: BTreeMap<String, String> = form(body);
        let text = |name: &str| form.get(name).cloned().unwrap_or_default();
        let action = text("Action");
        if action != "Publish" {
            return unsupported_action(&action);
        }
        let attribute = |name: &str| {
            let entry = form.iter().find(|(key, value)| key.ends_with(".Name") && *value == name)?.0;
            form.get(&entry.replace(".Name", ".Value.StringValue")).cloned()
        };
        let event = Event {
            target: text("TopicArn"),
            kind: (attribute("source").unwrap_or_default(), attribute("detail-type").unwrap_or_default()),
            deduplication_id: form.get("MessageDeduplicationId").cloned(),
            detail: serde_json::from_str(&text("Message")).unwrap_or_default(),
        };
        let mut received = self.received();
        let previous_ms = event.deduplication_id.clone().and_then(|id| received.deduplication_ids.insert(id, now_ms));
        if previous_ms.is_none_or(|at_ms| at_ms + FIFO_DEDUPLICATION_MS <= now_ms) {
            received.events.push(event);
        }
        let answer =
            "<PublishResponse><PublishResult><MessageId>received</MessageId></PublishResult></PublishResponse>";
        xml(StatusCode::OK, answer.to_owned())
    }
}

/// The text of all elements with that name.
fn elements(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts = xml.split(&open).skip(1).filter_map(|part| part.split_once(&close));
    parts.map(|(text, _)| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).collect()
}

fn form(body: &[u8]) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let body = String::from_utf8_lossy(body);
    let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// For clients that use the Query protocol, such as older SDKs with SQS.
fn unsupported_action(action: &str) -> Response<Bytes> {
    let action = if action.is_empty() { "a form without Action" } else { action };
    let action = action.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let error = format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidAction</Code><Message>{action} is not supported: of the AWS \
         Query protocol (a form with Action=…) only Publish of SNS is. SQS needs the AWS JSON protocol (header x-amz-target): use an \
         SDK or AWS CLI from 2024 or later.</Message></Error><RequestId>local</RequestId></ErrorResponse>"
    );
    xml(StatusCode::BAD_REQUEST, error)
}

fn xml(status: StatusCode, body: String) -> Response<Bytes> {
    respond(status, "text/xml", body)
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

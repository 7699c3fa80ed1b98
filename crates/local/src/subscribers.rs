//! Who is told after a commit: CloudFront, EventBridge and SNS, as far as Everfresh speaks to them. They keep what they were told, in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

/// A CDN, an event bus and a topic. Clones share what they have heard.
#[derive(Clone, Debug, Default)]
pub struct Subscribers(Arc<Mutex<Received>>);

#[derive(Debug, Default)]
struct Received {
    invalidations: BTreeMap<String, Vec<String>>,
    events: Vec<Event>,
    refusals: usize,
    /// Until then they cannot be reached.
    outage_until_ms: u64,
    /// When a FIFO topic met an id last.
    known: BTreeMap<String, u64>,
}

/// How long a FIFO topic remembers an id.
const FIFO_REMEMBERS_MS: u64 = 5 * 60 * 1000;

/// One of the three.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subscriber {
    CloudFront,
    EventBridge,
    Sns,
}

/// Something that the bus or the topic was told.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The ARN that it was sent to.
    pub target: String,
    /// `source` and `detail-type`.
    pub kind: (String, String),
    /// What a FIFO topic recognises a repetition by.
    pub deduplication_id: Option<String>,
    /// What it says.
    pub detail: Value,
}

impl Subscribers {
    /// What the CDN was asked to forget, by the caller's reference.
    pub fn invalidations(&self) -> BTreeMap<String, Vec<String>> {
        self.heard().invalidations.clone()
    }

    /// What the bus and the topic were told, in order.
    pub fn events(&self) -> Vec<Event> {
        self.heard().events.clone()
    }

    /// From now on the bus takes so many calls and refuses what is in them, which is no error of the call.
    pub fn refuse_entries(&self, calls: usize) {
        self.heard().refusals = calls;
    }

    /// Until that moment, none of them can be reached.
    pub fn outage_until(&self, ms: u64) {
        self.heard().outage_until_ms = ms;
    }

    /// Answers one request of the three services.
    pub(crate) fn call(&self, subscriber: Subscriber, body: &[u8], now_ms: u64) -> Response<Bytes> {
        if now_ms < self.heard().outage_until_ms {
            return respond(StatusCode::SERVICE_UNAVAILABLE, "text/plain", String::new());
        }
        match subscriber {
            Subscriber::CloudFront => self.create_invalidation(body),
            Subscriber::EventBridge => self.put_events(body),
            Subscriber::Sns => self.publish(body, now_ms),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Received> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// CloudFront's CreateInvalidation. A reference that it knows is the invalidation that it knows, unless it is about something else.
    fn create_invalidation(&self, body: &[u8]) -> Response<Bytes> {
        let body = String::from_utf8_lossy(body);
        let (Some(reference), items) = (elements(&body, "CallerReference").pop(), elements(&body, "Path")) else {
            return xml(
                StatusCode::BAD_REQUEST,
                "<ErrorResponse><Error><Code>MalformedXML</Code></Error></ErrorResponse>".to_owned(),
            );
        };
        let mut heard = self.heard();
        let known = heard.invalidations.entry(reference.clone()).or_insert_with(|| items.clone());
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

    /// EventBridge's PutEvents. It recognises no repetition.
    fn put_events(&self, body: &[u8]) -> Response<Bytes> {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let entries = request["Entries"].as_array().cloned().unwrap_or_default();
        let mut heard = self.heard();
        if heard.refusals > 0 {
            heard.refusals -= 1;
            let refused = json!({"ErrorCode": "ThrottlingException", "ErrorMessage": "too many events"});
            let answer = json!({"FailedEntryCount": entries.len(), "Entries": vec![refused; entries.len()]});
            return respond(StatusCode::OK, "application/x-amz-json-1.1", answer.to_string());
        }
        for entry in &entries {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            heard.events.push(Event {
                target: text("EventBusName"),
                kind: (text("Source"), text("DetailType")),
                deduplication_id: None,
                detail: serde_json::from_str(&text("Detail")).unwrap_or_default(),
            });
        }
        let answer = json!({"FailedEntryCount": 0, "Entries": vec![json!({"EventId": "heard"}); entries.len()]});
        respond(StatusCode::OK, "application/x-amz-json-1.1", answer.to_string())
    }

    /// SNS's Publish. A FIFO topic recognises a repetition by its id for five minutes, a standard one does not.
    fn publish(&self, body: &[u8], now_ms: u64) -> Response<Bytes> {
        let form: BTreeMap<String, String> = form(body);
        let text = |name: &str| form.get(name).cloned().unwrap_or_default();
        let action = text("Action");
        if action != "Publish" {
            return not_spoken(&action);
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
        let mut heard = self.heard();
        let known = event.deduplication_id.clone().and_then(|id| heard.known.insert(id, now_ms));
        if known.is_none_or(|at_ms| at_ms + FIFO_REMEMBERS_MS <= now_ms) {
            heard.events.push(event);
        }
        let answer = "<PublishResponse><PublishResult><MessageId>heard</MessageId></PublishResult></PublishResponse>";
        xml(StatusCode::OK, answer.to_owned())
    }
}

/// The texts of all elements of that name.
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

/// To somebody who speaks the Query protocol to a service that is not spoken to like that here, as older SDKs do to SQS.
fn not_spoken(action: &str) -> Response<Bytes> {
    let action = if action.is_empty() { "a form without Action" } else { action };
    let action = action.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let error = format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidAction</Code><Message>{action} is not taken: of the Query protocol \
         (a form with Action=…) only Publish of SNS is spoken here. SQS is spoken in AWS JSON, with the header x-amz-target: use an \
         SDK or AWS CLI from 2024 or later, or another client that does.</Message></Error><RequestId>local</RequestId></ErrorResponse>"
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

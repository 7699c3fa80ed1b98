//! Any rows and any request through the real server and the real SDK clients, over the stub of
//! DynamoDB, S3 and SQS below.
//!
//! The input is text. The first line is method and target, the lines up to an empty one are
//! headers. Each line after it is one attribute, `ROW NAME TYPE VALUE`: the row is identified by
//! its sort key alone, in any partition. The row `OBJECT` is the S3 object under any key: its
//! attribute `body`, the others as metadata.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use everfresh_core::aws_time::AwsTime;
use everfresh_core::clients::{ClientTimeouts, Clients, Explicit};
use everfresh_core::clock::Clock;
use everfresh_core::config::Config;
use everfresh_core::metrics;
use everfresh_serve::http::reply::Reply;
use everfresh_serve::http::request::Request;
use everfresh_serve::lambda::event::HttpAnswer;
use everfresh_serve::trigger::endpoint::reserved;
use everfresh_serve::trigger::signature::{RevalidateKeys, SignedRequest};
use everfresh_serve::{Server, Settings};
use serde_json::{Value, json};

const NOW_S: u64 = 1_763_270_000;
const HOST: &str = "www.acme.example";
const KEYS: &str = "cms:0123456789abcdef0123456789abcdef";

/// Any content of table and bucket gives a response: no panic, and only headers valid in HTTP.
pub fn rows(bytes: &[u8]) {
    statuses(bytes);
}

/// The statuses of three requests, one after the other.
fn statuses(bytes: &[u8]) -> [u16; 3] {
    let text = String::from_utf8_lossy(bytes);
    let (head, rows) = text.split_once("\n\n").unwrap_or((&text, ""));
    let request = request(head);
    let (clients, content) = clients();
    *content.lock().unwrap_or_else(PoisonError::into_inner) = Rows::parse(rows);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without a network");
    runtime.block_on(async {
        let server = server(clients);
        let mut statuses = [0; 3];
        // The second response comes from memory, the third is read again.
        for (status, pause) in statuses.iter_mut().zip([0, 0, 2]) {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            let served = server.serve(&request).await;
            assert_eq!(server.take_metrics().total(metrics::PANICS), 0, "the request panicked");
            is_well_formed(&served.reply, &request);
            server.finish(served.enqueues).await;
            assert_eq!(server.take_metrics().total(metrics::PANICS), 0, "the work after the reply panicked");
            *status = served.reply.status;
        }
        statuses
    })
}

fn is_well_formed(reply: &Reply, request: &Request) {
    assert!((200..600).contains(&reply.status), "{}", reply.status);
    for (at, (name, value)) in reply.headers.iter().enumerate() {
        let in_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(!name.is_empty() && name.bytes().all(in_name), "{name:?}");
        assert!(value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)), "{name}: {value:?}");
        assert!(reply.headers[..at].iter().all(|(other, _)| other != name), "duplicate header {name}");
        assert_ne!(name, "set-cookie");
    }
    assert!(reply.body.is_empty() || (request.method != "HEAD" && reply.status != 304));
    let answer = serde_json::to_string(&HttpAnswer::from(reply.clone())).expect("an answer is JSON");
    assert!(answer.starts_with(r#"{"statusCode":"#));
}

/// The request that `head` describes, signed if it is a trigger request.
fn request(head: &str) -> Request {
    let mut lines = head.lines();
    let (method, target) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
    let headers = lines.filter_map(|line| line.split_once(':'));
    let mut headers: Vec<(String, String)> =
        headers.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned())).collect();
    if !headers.iter().any(|(name, _)| name == "host") {
        headers.push(("host".to_owned(), HOST.to_owned()));
    }
    if reserved(target) {
        let (timestamp, nonce) = (NOW_S.to_string(), "5f0c3a1e9b7d4c2688aa01f3");
        let signed_request =
            SignedRequest { method, host: HOST, target, timestamp: &timestamp, nonce, request_id: "", body: b"" };
        let keys = RevalidateKeys::parse(KEYS).expect("long enough");
        let signature = keys.sign("cms", &signed_request).expect("a known key");
        let signed = [
            ("x-everfresh-key-id", "cms"),
            ("x-everfresh-timestamp", &timestamp),
            ("x-everfresh-nonce", nonce),
            ("x-everfresh-signature", &signature),
        ];
        headers.extend(signed.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    Request { method: method.to_owned(), target: target.to_owned(), headers, ..Request::default() }
}

fn server(clients: &Clients) -> Server {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    let config = CONFIG.get_or_init(|| Config::parse(crate::CONFIG).expect("valid test settings"));
    let settings = Settings::read(|variable| {
        Some(match variable {
            // A missing page costs a poll or two, not twenty.
            "EVERFRESH_WAIT_MS" => "200".to_owned(),
            "EVERFRESH_DEBUG_HEADER" => "true".to_owned(),
            "EVERFRESH_TAG_HEADER" => "cache-tag".to_owned(),
            "EVERFRESH_EARLY_REFRESH_PERCENT" => "50".to_owned(),
            "EVERFRESH_REVALIDATE_KEYS" => KEYS.to_owned(),
            "EVERFRESH_QUEUE_URL" => "http://in-process.invalid/queue".to_owned(),
            "EVERFRESH_CONFIG" | "FACETHEORY_CACHE_TABLE_NAME" | "EVERFRESH_BUCKET" => "everfresh".to_owned(),
            _ => return None,
        })
    });
    let began = tokio::time::Instant::now();
    let clock = Clock::new(move || UNIX_EPOCH + Duration::from_secs(NOW_S) + began.elapsed());
    let mut clients = clients.clone();
    clients.time = AwsTime::new(clock);
    Server::new(config.clone(), settings.expect("valid test settings"), &clients)
}

/// The SDK clients, and the content behind them. Made once: a client costs more than its requests.
fn clients() -> &'static (Clients, Arc<Mutex<Rows>>) {
    static CLIENTS: OnceLock<(Clients, Arc<Mutex<Rows>>)> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        let content = Arc::new(Mutex::new(Rows::default()));
        let clients = Clients::explicit(Explicit {
            http: SharedHttpClient::new(Store(content.clone())),
            endpoint: "http://in-process.invalid".to_owned(),
            region: "us-east-1".to_owned(),
            access_key: "x".to_owned(),
            secret_key: "x".to_owned(),
            timeouts: ClientTimeouts::READER,
            clock: Clock::new(|| UNIX_EPOCH + Duration::from_secs(NOW_S)),
            retry_partition: Some("rows".to_owned()),
        });
        (clients, content)
    })
}

/// Attributes by name, in DynamoDB JSON.
pub(crate) type Row = serde_json::Map<String, Value>;

/// What table and bucket have: rows by sort key, and one object.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) rows: BTreeMap<String, Row>,
    object: Option<Row>,
}

/// The stub of DynamoDB, S3 and SQS.
#[derive(Clone, Debug)]
struct Store(Arc<Mutex<Rows>>);

impl Rows {
    pub(crate) fn parse(text: &str) -> Self {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            let (Some(sk), Some(name), Some(kind)) = (words.next(), words.next(), words.next()) else { continue };
            let row = rows.entry(sk.to_owned()).or_default();
            row.insert("sk".to_owned(), json!({ "S": sk }));
            row.insert(name.to_owned(), attribute(kind, words.next().unwrap_or_default()));
        }
        let object = rows.remove("OBJECT");
        Self { rows, object }
    }

    fn answer(&self, request: &HttpRequest) -> http::Response<SdkBody> {
        let operation = request.headers().get("x-amz-target").and_then(|target| target.split_once('.'));
        let Some((_, operation)) = operation else { return self.object() };
        let body: Value =
            request.body().bytes().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
        let named = |key: &Value| self.rows.get(key["sk"]["S"].as_str()?);
        let body = match operation {
            "Query" => {
                let page: Vec<&Row> =
                    self.rows.range("HEALTH".to_owned()..="META".to_owned()).map(|(_, row)| row).collect();
                json!({ "Items": page, "Count": page.len(), "ScannedCount": page.len() })
            }
            "GetItem" => match named(&body["Key"]) {
                Some(row) => json!({ "Item": row }),
                None => json!({}),
            },
            "BatchGetItem" => {
                let keys = body["RequestItems"]["everfresh"]["Keys"].as_array();
                let found: Vec<&Row> = keys.into_iter().flatten().filter_map(named).collect();
                json!({ "Responses": { "everfresh": found }, "UnprocessedKeys": {} })
            }
            "SendMessage" => json!({ "MessageId": "m-1", "MD5OfMessageBody": "d41d8cd98f00b204e9800998ecf8427e" }),
            _ => json!({}),
        };
        response(http::Response::builder(), body.to_string().into_bytes())
    }

    fn object(&self) -> http::Response<SdkBody> {
        let Some(object) = self.object.as_ref() else {
            let body = "<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>";
            return response(http::Response::builder().status(404), body.as_bytes().to_vec());
        };
        let text = |value: &Value| value["S"].as_str().unwrap_or_default().to_owned();
        let body = object.get("body").map(text).unwrap_or_default();
        let mut answer = http::Response::builder().header("content-length", body.len());
        for (name, value) in object {
            let name = http::HeaderName::try_from(format!("x-amz-meta-{name}"));
            // A value that is invalid in HTTP is not sent.
            if let (Ok(name), Ok(value)) = (name, http::HeaderValue::try_from(text(value))) {
                answer = answer.header(name, value);
            }
        }
        response(answer, body.into_bytes())
    }
}

impl HttpClient for Store {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Store {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let answer = self.0.lock().unwrap_or_else(PoisonError::into_inner).answer(&request);
        let response = HttpResponse::try_from(answer).expect("a valid response");
        HttpConnectorFuture::ready(Ok(response))
    }
}

fn response(builder: http::response::Builder, body: Vec<u8>) -> http::Response<SdkBody> {
    builder.body(SdkBody::from(body)).expect("a valid response")
}

/// An attribute of that type. Several values are separated by `|`; a map's are `name=value`.
fn attribute(kind: &str, value: &str) -> Value {
    let all = || value.split('|');
    match kind {
        "N" => json!({ "N": value }),
        "BOOL" => json!({ "BOOL": value == "true" }),
        "NULL" => json!({ "NULL": true }),
        "B" => json!({ "B": "AAAA" }),
        "SS" => json!({ "SS": all().collect::<Vec<_>>() }),
        "NS" => json!({ "NS": all().collect::<Vec<_>>() }),
        "L" => json!({ "L": all().map(|text| json!({ "S": text })).collect::<Vec<_>>() }),
        "LM" => json!({ "L": all().map(map).collect::<Vec<_>>() }),
        "M" => map(value),
        _ => json!({ "S": value }),
    }
}

fn map(text: &str) -> Value {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    json!({ "M": pairs.map(|(name, value)| (name.to_owned(), json!({ "N": value }))).collect::<Row>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corpus_reaches_pages_errors_and_records() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/rows");
        let of = |name: &str| statuses(&std::fs::read(format!("{corpus}/{name}")).expect("in the corpus"));
        for (name, what, expected) in [
            ("00", "a page with a date beyond the year 9999", [200; 3]),
            ("01", "a page that the client has cached", [304; 3]),
            ("02", "a pointer to a page that is a 404", [404; 3]),
            ("03", "a malformed row", [503; 3]),
            ("04", "a negative time", [503; 3]),
            ("05", "the state of a request, and two replays", [200, 401, 401]),
            ("06", "a page whose status is 500", [500; 3]),
            ("07", "no page, and a cooldown", [503; 3]),
            ("08", "a malformed record, and two replays", [503, 401, 401]),
        ] {
            assert_eq!(of(name), expected, "{name}: {what}");
        }
    }
}

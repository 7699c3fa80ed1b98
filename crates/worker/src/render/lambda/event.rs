//! The event of a function URL, payload version 2.0.

use std::collections::BTreeMap;

use everfresh_core::domain::validators::Condition;
use everfresh_core::render::RenderRequest;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

const AGENT: &str = concat!("everfresh/", env!("CARGO_PKG_VERSION"));

/// There is no client: a render is shared by all readers. Frameworks insist on an address.
const SOURCE_IP: &str = "127.0.0.1";

/// A GET of the page on its public host, with nothing of its requester.
pub(super) fn of(request: &RenderRequest<'_>, now_ms: u64) -> Value {
    let host = request.host;
    let (path, query) = request.page.path().as_str().split_once('?').unwrap_or((request.page.path().as_str(), ""));
    let mut event = json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers(request),
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "everfresh",
            "domainName": host,
            "domainPrefix": host.split('.').next(),
            "http": {
                "method": "GET",
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": SOURCE_IP,
                "userAgent": AGENT,
            },
            "requestId": format!("{}-{now_ms}", request.page.hash()),
            "routeKey": "$default",
            "stage": "$default",
            "timeEpoch": now_ms,
        },
        "isBase64Encoded": false,
    });
    if !query.is_empty() {
        event["queryStringParameters"] = json!(parameters(query));
    }
    event
}

fn headers<'a>(request: &RenderRequest<'a>) -> BTreeMap<&'a str, &'a str> {
    let host = request.host;
    let mut headers = BTreeMap::from([
        ("accept", "text/html,*/*;q=0.8"),
        // A compressed body would be stored compressed, and not every client can decompress it.
        ("accept-encoding", "identity"),
        ("host", host),
        ("user-agent", AGENT),
        ("x-forwarded-host", host),
        ("x-forwarded-port", "443"),
        ("x-forwarded-proto", "https"),
    ]);
    headers.extend(request.headers.iter().copied());
    headers.extend(request.condition.map(Condition::header));
    if request.no_cache {
        // As to an HTTP origin, for caches of the framework.
        headers.extend([("cache-control", "no-cache"), ("pragma", "no-cache")]);
    }
    headers
}

/// Decoded parameters; the values of a repeated one are joined by commas.
fn parameters(query: &str) -> BTreeMap<String, String> {
    let mut parameters: BTreeMap<String, String> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value);
        parameters
            .entry(decoded(name))
            .and_modify(|all| {
                all.push(',');
                all.push_str(&value);
            })
            .or_insert(value);
    }
    parameters
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

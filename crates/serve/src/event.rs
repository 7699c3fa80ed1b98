//! Lambda's HTTP event (payload version 2.0: function URLs and HTTP APIs) as a request, and a reply as its answer.
//!
//! Read with a type of our own, and loosely: a field that is missing or odd must cost one reader a refusal, not the invocation.

use std::collections::{BTreeMap, HashMap};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::reply::Reply;
use crate::request::Request;

/// The parts of the event that are looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpEvent {
    #[serde(deserialize_with = "loosely")]
    raw_path: String,
    #[serde(deserialize_with = "loosely")]
    raw_query_string: String,
    #[serde(deserialize_with = "loosely")]
    cookies: Vec<String>,
    #[serde(deserialize_with = "loosely")]
    headers: HashMap<String, String>,
    #[serde(deserialize_with = "loosely")]
    request_context: RequestContext,
    #[serde(deserialize_with = "loosely")]
    body: String,
    #[serde(deserialize_with = "loosely")]
    is_base64_encoded: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequestContext {
    #[serde(deserialize_with = "loosely")]
    http: Http,
    #[serde(deserialize_with = "loosely")]
    stage: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Http {
    #[serde(deserialize_with = "loosely")]
    method: String,
}

/// A field that is not what it should be, `null` for one, counts as missing.
fn loosely<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// What Lambda is answered.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAnswer {
    status_code: u16,
    headers: HashMap<String, String>,
    body: String,
    is_base64_encoded: bool,
}

impl From<HttpEvent> for Request {
    fn from(event: HttpEvent) -> Self {
        let mut target = without_stage(event.raw_path, &event.request_context.stage);
        if !event.raw_query_string.is_empty() {
            target = format!("{target}?{}", event.raw_query_string);
        }
        let headers = joined(event.headers);
        let mut cookies = event.cookies;
        // An emulator may leave them in their header.
        let in_header = headers.iter().filter(|(name, _)| name == "cookie");
        cookies.extend(in_header.flat_map(|(_, value)| value.split(';')).map(|cookie| cookie.trim().to_owned()));
        // A body that cannot be decoded is none.
        let body = match event.is_base64_encoded {
            true => STANDARD.decode(event.body).unwrap_or_default(),
            false => event.body.into_bytes(),
        };
        Request { method: event.request_context.http.method, target, headers, cookies, body: body.into() }
    }
}

/// Headers by their names in lower case. Two that are told apart by case only are one, as the order of neither is known.
fn joined(headers: HashMap<String, String>) -> Vec<(String, String)> {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let all = by_name.entry(name.to_ascii_lowercase()).or_default();
        *all = if all.is_empty() { value } else { format!("{all}, {value}") };
    }
    by_name.into_iter().collect()
}

/// An HTTP API puts the name of a stage before the path, unless it is the default one.
fn without_stage(path: String, stage: &str) -> String {
    if stage.is_empty() || stage == "$default" {
        return path;
    }
    let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(stage));
    match rest {
        Some("") => "/".to_owned(),
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        Some(_) | None => path,
    }
}

impl From<Reply> for HttpAnswer {
    fn from(reply: Reply) -> Self {
        let (body, is_base64_encoded) = encoded(&reply.body);
        let mut headers: HashMap<String, String> = reply.headers.into_iter().collect();
        // Lambda counts for itself, and would not find what HEAD leaves out.
        headers.remove("content-length");
        Self { status_code: reply.status, headers, body, is_base64_encoded }
    }
}

/// Text as it is and everything else in base64; but also text that JSON's escapes would blow up beyond base64, for the answer as a
/// whole must stay under Lambda's 6 MB.
fn encoded(body: &[u8]) -> (String, bool) {
    let in_base64 = body.len().div_ceil(3) * 4;
    match std::str::from_utf8(body) {
        Ok(text) if in_json(body) <= in_base64 => (text.to_owned(), false),
        Ok(_) | Err(_) => (STANDARD.encode(body), true),
    }
}

/// How many bytes JSON makes of a text.
fn in_json(text: &[u8]) -> usize {
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.iter().map(escaped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn request(event: serde_json::Value) -> Request {
        serde_json::from_value::<HttpEvent>(event).unwrap().into()
    }

    #[test]
    fn a_function_urls_event_becomes_a_request() {
        let request = request(json!({
            "version": "2.0", "routeKey": "$default", "rawPath": "/products/42", "rawQueryString": "color=red&x=1",
            "cookies": ["a=1", "b=2"], "headers": {"Host": "www.acme.example", "if-none-match": "\"x\""},
            "requestContext": {"stage": "$default", "http": {"method": "GET", "path": "/products/42"}},
            "isBase64Encoded": false
        }));
        assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", "/products/42?color=red&x=1"));
        assert_eq!((request.header("host"), request.cookie("b")), (Some("www.acme.example"), Some("2")));
    }

    #[test]
    fn the_name_of_a_stage_is_no_part_of_the_path() {
        for (path, stage, target) in [
            ("/prod/a", "prod", "/a"),
            ("/prod", "prod", "/"),
            ("/prod/", "prod", "/"),
            ("/products", "prod", "/products"),
            ("/a", "$default", "/a"),
            ("/a", "", "/a"),
        ] {
            let request = request(json!({"rawPath": path, "requestContext": {"stage": stage}}));
            assert_eq!(request.target, target);
        }
    }

    #[test]
    fn a_body_comes_as_text_or_in_base64_and_an_odd_one_is_none() {
        for (event, expected) in [
            (json!({"body": "{}\u{e9}", "isBase64Encoded": false}), "{}\u{e9}"),
            (json!({"body": "e30=", "isBase64Encoded": true}), "{}"),
            (json!({"body": "e30="}), "e30="),
            (json!({"body": "not base64", "isBase64Encoded": true}), ""),
            (json!({"body": null, "isBase64Encoded": null}), ""),
            (json!({"body": {"a": 1}}), ""),
            (json!({}), ""),
        ] {
            let request = Request::from(serde_json::from_value::<HttpEvent>(event).unwrap());
            assert_eq!(request.body, expected);
        }
    }

    #[test]
    fn cookies_are_found_in_their_header_too() {
        let request = request(json!({"headers": {"cookie": "a=1; everfresh-preview=x"}}));
        assert_eq!(request.cookie("everfresh-preview"), Some("x"));
    }

    #[test]
    fn what_is_missing_or_odd_is_empty_and_refused_later() {
        for event in [
            json!({}),
            json!({"rawPath": null, "rawQueryString": null, "cookies": null, "headers": null, "requestContext": null}),
            json!({"rawPath": 7, "cookies": "a=1", "headers": ["host"], "requestContext": {"http": null, "stage": 1}}),
            json!({"headers": {"host": null}, "requestContext": {"http": {"method": ["GET"]}}, "body": {"a": 1}}),
        ] {
            assert_eq!(request(event), Request::default());
        }
    }

    #[test]
    fn a_header_that_comes_in_two_cases_is_ambiguous_and_not_a_matter_of_luck() {
        let request = request(json!({"headers": {"Host": "www.acme.example", "host": "globex.example"}}));
        let host = request.header("host").unwrap();
        assert!(host.contains("www.acme.example") && host.contains("globex.example"), "{host}");
    }

    #[test]
    fn text_is_text_and_bytes_are_base64() {
        let answer = HttpAnswer::from(Reply::new(200).with("content-length", "5").body("<p>é"));
        assert_eq!((answer.body.as_str(), answer.is_base64_encoded), ("<p>é", false));
        assert!(answer.headers.is_empty());
        let answer = HttpAnswer::from(Reply::new(200).body(vec![0xff, 0xfe, 0x00]));
        assert_eq!((answer.body.as_str(), answer.is_base64_encoded), ("//4A", true));
    }

    #[test]
    fn text_full_of_quotes_is_sent_in_base64_so_that_it_fits() {
        let quotes = "\"".repeat(4_000_000);
        let answer = serde_json::to_vec(&HttpAnswer::from(Reply::new(200).body(quotes))).unwrap();
        assert!(answer.len() < 6_000_000, "{}", answer.len());
    }

    proptest! {
        #[test]
        fn no_body_grows_beyond_base64(body: Vec<u8>) {
            let (text, is_base64) = encoded(&body);
            let json = serde_json::to_string(&text).unwrap();
            prop_assert!(json.len() <= body.len().div_ceil(3) * 4 + 2);
            if is_base64 {
                prop_assert_eq!(STANDARD.decode(text).unwrap(), body);
            } else {
                prop_assert_eq!(json.len(), in_json(&body) + 2);
                prop_assert_eq!(text.into_bytes(), body);
            }
        }
    }
}

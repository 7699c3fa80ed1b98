//! Lambda's HTTP event (payload version 2.0: function URLs and HTTP APIs), and its response.
//!
//! Parsed leniently, with a type of our own: a field that is missing or malformed must fail one
//! request, not the invocation.

use std::collections::{BTreeMap, HashMap};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::http::{Reply, Request};

/// The parts of the event that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpEvent {
    #[serde(deserialize_with = "lenient")]
    raw_path: String,
    #[serde(deserialize_with = "lenient")]
    raw_query_string: String,
    #[serde(deserialize_with = "lenient")]
    cookies: Vec<String>,
    #[serde(deserialize_with = "lenient")]
    headers: HashMap<String, String>,
    #[serde(deserialize_with = "lenient")]
    request_context: RequestContext,
    #[serde(deserialize_with = "lenient")]
    body: String,
    #[serde(deserialize_with = "lenient")]
    is_base64_encoded: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequestContext {
    #[serde(deserialize_with = "lenient")]
    http: Http,
    #[serde(deserialize_with = "lenient")]
    stage: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Http {
    #[serde(deserialize_with = "lenient")]
    method: String,
    #[serde(deserialize_with = "lenient", rename = "sourceIp")]
    source_ip: String,
}

/// A field of another type, `null` for one, counts as missing.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// The response to Lambda.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAnswer {
    status_code: u16,
    headers: HashMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cookies: Vec<String>,
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
        // An emulator may leave them in the `Cookie` header.
        let in_header = headers.iter().filter(|(name, _)| name == "cookie");
        cookies.extend(in_header.flat_map(|(_, value)| value.split(';')).map(|cookie| cookie.trim().to_owned()));
        // A body that cannot be decoded counts as empty.
        let body = match event.is_base64_encoded {
            true => STANDARD.decode(event.body).unwrap_or_default(),
            false => event.body.into_bytes(),
        };
        let client = client(&headers, event.request_context.http.source_ip);
        Request {
            method: event.request_context.http.method,
            target,
            headers,
            cookies,
            body: body.into(),
            client,
            // A function URL has no other scheme.
            is_encrypted: true,
            is_upgrade: false,
        }
    }
}

/// The visitor's address: the last one that the distribution, or Lambda itself, has appended to
/// `X-Forwarded-For`. Those before it may be forged.
fn client(headers: &[(String, String)], source_ip: String) -> Option<String> {
    let forwarded = headers.iter().find(|(name, _)| name == "x-forwarded-for");
    let last = forwarded.and_then(|(_, value)| value.rsplit(',').next()).map(|address| address.trim().to_owned());
    last.or(Some(source_ip)).filter(|address| !address.is_empty())
}

/// Header names in lower case. Values of names that differ in case only are joined, because their
/// order is not known.
fn joined(headers: HashMap<String, String>) -> Vec<(String, String)> {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let all = by_name.entry(name.to_ascii_lowercase()).or_default();
        *all = if all.is_empty() { value } else { format!("{all}, {value}") };
    }
    by_name.into_iter().collect()
}

/// An HTTP API prefixes the path with the stage, unless it is the default one.
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
        let (cookies, headers): (Vec<_>, Vec<_>) =
            reply.headers.into_iter().partition(|(name, _)| name == "set-cookie");
        let cookies = cookies.into_iter().map(|(_, value)| value).collect();
        let mut headers: HashMap<String, String> = headers.into_iter().collect();
        // Lambda sets it from the body, which HEAD does not have.
        headers.remove("content-length");
        Self { status_code: reply.status, headers, cookies, body, is_base64_encoded }
    }
}

/// Text as it is, unless JSON's escapes would make it longer than base64, and everything else in
/// base64: the response as a whole must stay under Lambda's 6 MB.
fn encoded(body: &[u8]) -> (String, bool) {
    let base64_len = body.len().div_ceil(3) * 4;
    match std::str::from_utf8(body) {
        Ok(text) if json_len(body) <= base64_len => (text.to_owned(), false),
        Ok(_) | Err(_) => (STANDARD.encode(body), true),
    }
}

/// The length of a text in JSON, without quotes.
fn json_len(text: &[u8]) -> usize {
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.iter().map(escaped).sum()
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;

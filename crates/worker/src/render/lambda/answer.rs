//! Reads a function's result as a function URL does.
//!
//! | Result | Response |
//! |---|---|
//! | an object with `statusCode` | that, with `headers`, `multiValueHeaders` (version 1.0), `cookies` (2.0), `body`, `isBase64Encoded` |
//! | a head without body, eight zero bytes, bytes | the result of a streaming function that is invoked without streaming: that head and these bytes |
//! | any other JSON | status 200, `application/json`, the JSON itself |

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

/// Between head and body of a streamed result.
const DELIMITER: [u8; 8] = [0; 8];

#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("the function's result is not JSON")]
    Json(#[source] serde_json::Error),
    #[error("the function's result has bytes behind its JSON")]
    Surplus,
    #[error("{field} in the function's result is malformed: expected {expected}")]
    Field { field: &'static str, expected: &'static str },
    #[error("the function's result has a header with an invalid name or value")]
    Header,
    #[error("the body in the function's result is not Base64")]
    Base64(#[source] base64::DecodeError),
    #[error("the body is larger than {max_bytes} bytes")]
    TooLarge { max_bytes: u64 },
}

impl From<AnswerError> for RenderFailure {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::TooLarge { max_bytes } => Self::TooLarge { max_bytes, head: None },
            AnswerError::Json(_)
            | AnswerError::Surplus
            | AnswerError::Field { .. }
            | AnswerError::Header
            | AnswerError::Base64(_) => Self::Unreadable(Box::new(error)),
        }
    }
}

/// The response in a function's result, with a body of at most `max_bytes`.
pub(super) fn read(payload: Vec<u8>, max_bytes: u64) -> Result<Rendered, AnswerError> {
    let payload = Bytes::from(payload);
    let mut values = serde_json::Deserializer::from_slice(&payload).into_iter::<Value>();
    let first = match values.next() {
        Some(value) => value.map_err(AnswerError::Json)?,
        None => return Err(AnswerError::Json(serde::de::Error::custom("it is empty"))),
    };
    let rest = payload.slice(values.byte_offset()..);
    let streamed = first.is_object() && rest.starts_with(&DELIMITER);
    if !streamed && !rest.trim_ascii().is_empty() {
        return Err(AnswerError::Surplus);
    }
    match first {
        Value::Object(head) if streamed => {
            let status = if head.contains_key("statusCode") { status(&head)? } else { 200 };
            rendered(status, headers(&head)?, rest.slice(DELIMITER.len()..), max_bytes)
        }
        Value::Object(mut answer) if answer.contains_key("statusCode") => {
            let body = body(answer.remove("body"), answer.get("isBase64Encoded"), max_bytes)?;
            rendered(status(&answer)?, headers(&answer)?, body, max_bytes)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            rendered(200, vec![("content-type".to_owned(), "application/json".to_owned())], payload, max_bytes)
        }
    }
}

fn rendered(status: u16, headers: Vec<(String, String)>, body: Bytes, max_bytes: u64) -> Result<Rendered, AnswerError> {
    if body.len() as u64 > max_bytes {
        return Err(AnswerError::TooLarge { max_bytes });
    }
    Ok(Rendered { status, headers, declared_bytes: Some(body.len() as u64), body })
}

fn status(answer: &Map<String, Value>) -> Result<u16, AnswerError> {
    let number = answer.get("statusCode").and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
    number
        .filter(|status| (200..=599).contains(status))
        .ok_or(AnswerError::Field { field: "statusCode", expected: "a number from 200 to 599" })
}

/// All headers, names in lower case, cookies as `set-cookie`. A name in `multiValueHeaders`
/// replaces the same name in `headers`, as in API Gateway.
fn headers(answer: &Map<String, Value>) -> Result<Vec<(String, String)>, AnswerError> {
    let mut headers = Vec::new();
    for (name, values) in table(answer, "multiValueHeaders")? {
        push(&mut headers, name, values, "multiValueHeaders")?;
    }
    let several: Vec<String> = headers.iter().map(|(name, _): &(String, String)| name.clone()).collect();
    for (name, value) in table(answer, "headers")? {
        if !several.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            push(&mut headers, name, value, "headers")?;
        }
    }
    match answer.get("cookies") {
        None | Some(Value::Null) => {}
        Some(cookies @ Value::Array(_)) => push(&mut headers, "set-cookie", cookies, "cookies")?,
        Some(_) => return Err(AnswerError::Field { field: "cookies", expected: "a list of texts" }),
    }
    // The result is complete, and a function URL ignores what it says about its own length: some
    // frameworks count characters, or the bytes before compression.
    headers.retain(|(name, _)| name != "content-length" && name != "transfer-encoding");
    Ok(headers)
}

/// The entries of an object, none for `null`.
fn table<'a>(
    answer: &'a Map<String, Value>,
    field: &'static str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, AnswerError> {
    match answer.get(field) {
        None | Some(Value::Null) => Ok(None.into_iter().flatten()),
        Some(Value::Object(entries)) => Ok(Some(entries).into_iter().flatten()),
        Some(_) => Err(AnswerError::Field { field, expected: "an object" }),
    }
}

/// Appends a header once per value. `null` is none.
fn push(
    headers: &mut Vec<(String, String)>,
    name: &str,
    values: &Value,
    field: &'static str,
) -> Result<(), AnswerError> {
    let single = std::slice::from_ref(values);
    for value in values.as_array().map_or(single, Vec::as_slice) {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::Array(_) | Value::Object(_) => return Err(AnswerError::Field { field, expected: "texts" }),
        };
        let name = HeaderName::try_from(name).map_err(|_| AnswerError::Header)?;
        HeaderValue::try_from(text.as_bytes()).map_err(|_| AnswerError::Header)?;
        headers.push((name.as_str().to_owned(), text));
    }
    Ok(())
}

fn body(body: Option<Value>, is_base64: Option<&Value>, max_bytes: u64) -> Result<Bytes, AnswerError> {
    let text = match body {
        None | Some(Value::Null) => return Ok(Bytes::new()),
        Some(Value::String(text)) => text,
        Some(_) => return Err(AnswerError::Field { field: "body", expected: "a text" }),
    };
    match is_base64 {
        None | Some(Value::Null | Value::Bool(false)) => Ok(Bytes::from(text)),
        Some(Value::Bool(true)) => {
            // Four characters hold at most three bytes: refused before anything is decoded.
            if (text.len() / 4 * 3) as u64 > max_bytes.saturating_add(2) {
                return Err(AnswerError::TooLarge { max_bytes });
            }
            STANDARD.decode(text).map(Bytes::from).map_err(AnswerError::Base64)
        }
        Some(_) => Err(AnswerError::Field { field: "isBase64Encoded", expected: "true or false" }),
    }
}

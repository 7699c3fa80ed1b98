//! Reads the response to its end, up to the size limit.

use bytes::{Bytes, BytesMut};
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use http::Response;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::error::OriginError;

/// Reads a response whose head has arrived.
pub(crate) async fn read(response: Response<Incoming>, max_bytes: u64) -> Result<Rendered, RenderFailure> {
    let (head, body) = response.into_parts();
    check_transfer_coding(&head.headers)?;
    let declared_bytes = declared_bytes(&head.headers);
    let head =
        Rendered { status: head.status.as_u16(), headers: texts(&head.headers), body: Bytes::new(), declared_bytes };
    match read_body(body, declared_bytes, max_bytes).await? {
        Some(body) => Ok(Rendered { body, ..head }),
        None => Err(RenderFailure::TooLarge { max_bytes, head: Some(Box::new(head)) }),
    }
}

/// Refuses every transfer coding except a single `chunked`. The HTTP library decodes only that one
/// and would pass on others undecoded: a compressed page, or chunks with their sizes.
pub(crate) fn check_transfer_coding(headers: &HeaderMap) -> Result<(), OriginError> {
    let codings: Vec<_> = headers.get_all(TRANSFER_ENCODING).iter().map(text).collect();
    match codings.as_slice() {
        [] => Ok(()),
        [only] if only.trim().eq_ignore_ascii_case("chunked") => Ok(()),
        _ => Err(OriginError::TransferCoding { codings: codings.join(", ") }),
    }
}

/// Never holds more than `max_bytes`; none if there are more.
async fn read_body(
    mut body: Incoming,
    declared_bytes: Option<u64>,
    max_bytes: u64,
) -> Result<Option<Bytes>, OriginError> {
    if declared_bytes.is_some_and(|declared| declared > max_bytes) {
        return Ok(None);
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(OriginError::Exchange)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if (bytes.len() + data.len()) as u64 > max_bytes {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes.freeze()))
}

/// The `Content-Length`. The HTTP parser has refused several that differ.
fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// All headers as text. Bytes that are not UTF-8 become replacement characters, which the gate
/// refuses in a stored header; other headers are dropped later.
fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

//! What came back, read to its end or to the cap.

use bytes::{Bytes, BytesMut};
use everfresh_core::render::RenderFailure;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::connections::OriginError;

/// Reads to the end, or to the cap: what lies beyond it is never held.
pub(crate) async fn read(
    mut body: Incoming,
    declared_bytes: Option<u64>,
    max_bytes: u64,
) -> Result<Bytes, RenderFailure> {
    if declared_bytes.is_some_and(|declared| declared > max_bytes) {
        return Err(RenderFailure::TooLarge { max_bytes });
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(OriginError::Exchange)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if (bytes.len() + data.len()) as u64 > max_bytes {
            return Err(RenderFailure::TooLarge { max_bytes });
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// The announced length. Several that differ do not get this far: the parser refuses them.
pub(crate) fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// All headers as text. Bytes that are no UTF-8 become replacement characters, which the gate refuses in a header that is
/// stored and nobody sees in one that is not.
pub(crate) fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

//! Removes the content codings of a fetched page: it is stored as it is, because not every client
//! can decode it.

use bytes::Bytes;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use tokio::task::spawn_blocking;

use crate::codings::Coding;
use crate::error::OriginError;

/// `Accept-Encoding` of a fetch that does not decode: a coded body would be stored coded.
pub(crate) const IDENTITY: &str = "identity";

/// The decoder of all codings. A value, so that a binary that never names it does not contain it.
pub(crate) const DECODER: Decoder = Decoder { accepted: "gzip, br, zstd", decode };

#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder {
    /// Sent as `Accept-Encoding`.
    pub(crate) accepted: &'static str,
    decode: fn(Rendered, u64) -> Result<Rendered, RenderFailure>,
}

impl Decoder {
    /// On a thread of its own, because a large page takes tens of milliseconds, and there a panic
    /// of a decoder is this page's failure.
    pub(crate) async fn decode(self, page: Rendered, max_bytes: u64) -> Result<Rendered, RenderFailure> {
        if !page.headers.iter().any(|(name, _)| name == CODINGS) {
            return Ok(page);
        }
        spawn_blocking(move || (self.decode)(page, max_bytes)).await.map_err(OriginError::Decoder)?
    }
}

const CODINGS: &str = "content-encoding";

/// Applied one after another; more are no page.
const MAX_CODINGS: usize = 2;

/// The decoded size may be this many times the coded one, and [`FREE_BYTES`] more: beyond it, it is
/// an attack on memory and time. Real pages are compressed to a tenth or a twentieth.
const MAX_RATIO: u64 = 200;

/// For pages so small or so uniform that the ratio says nothing.
const FREE_BYTES: u64 = 64 * 1024;

/// Digests of the coded body.
const DIGESTS: [&str; 4] = ["content-digest", "content-md5", "digest", "repr-digest"];

/// The page without its codings, of at most `max_bytes`. A coding that is not accepted, or too many
/// of them, leave it as it is.
fn decode(page: Rendered, max_bytes: u64) -> Result<Rendered, RenderFailure> {
    let Some(codings) = codings(&page.headers).filter(|codings| !codings.is_empty()) else { return Ok(page) };
    let mut headers = page.headers;
    headers.retain(|(name, _)| !describes_coded(name));
    let head = Rendered { status: page.status, headers, body: Bytes::new(), declared_bytes: None };
    let mut body = page.body;
    // A 304, or a page of no bytes, has none that could be decoded.
    if !body.is_empty() {
        for coding in codings.into_iter().rev() {
            let mut output = Output::new(body.len() as u64, max_bytes);
            coding.decode(&body, &mut output)?;
            match output.finish() {
                Some(decoded) => body = decoded,
                None => return Err(RenderFailure::TooLarge { max_bytes, head: Some(Box::new(head)) }),
            }
        }
    }
    Ok(Rendered { body, ..head })
}

/// The codings in the order in which they were applied. `None` if one is not accepted.
fn codings(headers: &[(String, String)]) -> Option<Vec<Coding>> {
    let lines = headers.iter().filter(|(name, _)| name == CODINGS);
    let names = lines.flat_map(|(_, value)| value.split(',')).map(str::trim);
    let names = names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
    let codings: Vec<_> = names.map(Coding::parse).collect::<Option<_>>()?;
    (codings.len() <= MAX_CODINGS).then_some(codings)
}

fn describes_coded(name: &str) -> bool {
    [CODINGS, "content-length"].contains(&name) || DIGESTS.contains(&name)
}

/// Decoded bytes, up to both limits.
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Of all decoded bytes; those beyond `max_bytes` are not kept.
    length: u64,
    max_bytes: u64,
    max_decoded: u64,
}

impl Output {
    fn new(coded: u64, max_bytes: u64) -> Self {
        let max_decoded = coded.saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES);
        Self { bytes: Vec::new(), length: 0, max_bytes, max_decoded }
    }

    /// Beyond `max_bytes` it only counts: an attack or a broken stream must not pass for a page
    /// that is too large.
    pub(crate) fn push(&mut self, decoded: &[u8]) -> Result<(), OriginError> {
        self.length += decoded.len() as u64;
        if self.length > self.max_decoded {
            return Err(OriginError::Inflates { ratio: MAX_RATIO });
        }
        if self.length <= self.max_bytes {
            self.bytes.extend_from_slice(decoded);
        } else {
            self.bytes = Vec::new();
        }
        Ok(())
    }

    /// The whole body; none if it is too large.
    fn finish(self) -> Option<Bytes> {
        (self.length <= self.max_bytes).then(|| self.bytes.into())
    }
}

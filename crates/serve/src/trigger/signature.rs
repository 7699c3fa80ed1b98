//! Signed requests: which key signed, that the signature is valid, and that it is recent.
//!
//! Four headers of their own, because CloudFront overwrites `Authorization` with its own signature:
//!
//! | Header | What |
//! |---|---|
//! | `x-everfresh-key-id` | which key signed |
//! | `x-everfresh-timestamp` | when, in Unix seconds; at most 300 from AWS's time, before or after |
//! | `x-everfresh-nonce` | 16 to 64 letters, digits, `_` and `-`; never the same twice |
//! | `x-everfresh-signature` | the HMAC-SHA256 of the text below with the key's secret, in lower-case hex |
//!
//! What is signed are these eight lines, joined by single newlines and with none at the end:
//!
//! ```text
//! everfresh-1                          the version of these rules
//! POST                                 the method
//! www.acme.example                     the host in lower case, without port and final dot
//! /_everfresh/revalidate               path and query as they are sent
//! 1763270000                           x-everfresh-timestamp
//! 5f0c3a1e9b7d4c2688aa01f3            x-everfresh-nonce
//! order-4711                           x-request-id; an empty line if there is none
//! 6a3f…                                the body's SHA-256 in lower-case hex, even of an empty body
//! ```
//!
//! `producers/revalidate.py` and `producers/revalidate.sh` are examples.

use everfresh_core::domain::digest::Digest;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::http::canonical_hex;

/// The first line of what is signed.
pub const VERSION: &str = "everfresh-1";

/// How far a timestamp may be from AWS's time, in seconds.
pub const WINDOW_S: u64 = 300;

/// The shortest secret that is accepted, in bytes.
pub const LEAST_SECRET_BYTES: usize = 32;

const MOST_ID_BYTES: usize = 64;

/// How long a nonce is kept after its timestamp has become too old, in seconds. Clocks may be
/// corrected.
const KEPT_S: u64 = 3600;

/// The signature of an unknown key is verified with this, so that it takes as long as a known one.
const UNKNOWN_KEY_SECRET: &[u8] = &[0; LEAST_SECRET_BYTES];

/// The named keys of signed requests: a new one is added before the old one is removed. Without
/// any, the endpoints are off.
#[derive(Clone, Default)]
pub struct RevalidateKeys(Vec<Key>);

#[derive(Clone)]
struct Key {
    id: String,
    secret: Vec<u8>,
}

/// Repeats nothing of the list: what looks like a name may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("key {0} of the list must be NAME:SECRET, with a name of 1 to {MOST_ID_BYTES} letters, digits, _ and -")]
    Name(usize),
    #[error(
        "the secret of key {0} of the list must have at least {LEAST_SECRET_BYTES} characters: make one with `openssl rand -hex 32`"
    )]
    ShortSecret(usize),
    #[error("key {0} of the list has the name of another one")]
    SameName(usize),
}

/// The signed parts of a request, as sent.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    pub method: &'a str,
    /// The host that decides the tenant, normalised.
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// `x-everfresh-timestamp`.
    pub timestamp: &'a str,
    /// `x-everfresh-nonce`.
    pub nonce: &'a str,
    /// `x-request-id`; empty without one.
    pub request_id: &'a str,
    pub body: &'a [u8],
}

/// A request with a valid and recent signature. It counts once: its nonce must be spent.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted {
    pub key_id: String,
    pub nonce: String,
    /// Until when the nonce must be kept, in Unix seconds.
    pub keep_until: u64,
}

/// Why a signature is not accepted. For the log only; the response has no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("a signed part of the request is missing or malformed")]
    Malformed,
    #[error("no configured key has the name in x-everfresh-key-id")]
    UnknownKey,
    #[error("x-everfresh-signature is not the signature of this request with this key")]
    Signature,
    #[error("x-everfresh-timestamp is more than {WINDOW_S} s from AWS's time")]
    Time,
    #[error("x-everfresh-nonce was used before")]
    Replayed,
}

impl Denied {
    /// The field `why` of the log line.
    pub fn as_str(self) -> &'static str {
        match self {
            Denied::Malformed => "malformed",
            Denied::UnknownKey => "unknown-key",
            Denied::Signature => "signature",
            Denied::Time => "time",
            Denied::Replayed => "replayed",
        }
    }
}

impl RevalidateKeys {
    /// Keys as `name:secret`, separated by commas; none at all in an empty text.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut keys: Vec<Key> = Vec::new();
        for (index, entry) in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).enumerate() {
            let at = index + 1;
            let (id, secret) = entry.split_once(':').ok_or(KeysError::Name(at))?;
            if !is_token(id, 1..=MOST_ID_BYTES) {
                return Err(KeysError::Name(at));
            }
            if secret.len() < LEAST_SECRET_BYTES {
                return Err(KeysError::ShortSecret(at));
            }
            if keys.iter().any(|key| key.id == id) {
                return Err(KeysError::SameName(at));
            }
            keys.push(Key { id: id.to_owned(), secret: secret.as_bytes().to_vec() });
        }
        Ok(Self(keys))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// None without such a key.
    pub fn sign(&self, key_id: &str, request: &SignedRequest<'_>) -> Option<String> {
        let key = self.0.iter().find(|key| key.id == key_id)?;
        Some(canonical_hex::to_hex(&request.mac(&key.secret)?.finalize().into_bytes()))
    }

    /// Verifies the signature in constant time, then the timestamp.
    pub fn admit(
        &self,
        key_id: &str,
        signature: &str,
        request: &SignedRequest<'_>,
        now_ms: u64,
    ) -> Result<Admitted, Denied> {
        let (Some(timestamp), Some(signature)) =
            (canonical_hex::parse_number(request.timestamp), canonical_hex::parse_hex(signature))
        else {
            return Err(Denied::Malformed);
        };
        if !is_token(request.nonce, 16..=64) || !request.is_unambiguous() {
            return Err(Denied::Malformed);
        }
        let key = self.0.iter().find(|key| key.id == key_id);
        let secret = key.map_or(UNKNOWN_KEY_SECRET, |key| &key.secret);
        let signed = request.mac(secret).is_some_and(|mac| mac.verify_slice(&signature).is_ok());
        if key.is_none() {
            return Err(Denied::UnknownKey);
        }
        if !signed {
            return Err(Denied::Signature);
        }
        if timestamp.abs_diff(now_ms / 1000) > WINDOW_S {
            return Err(Denied::Time);
        }
        let keep_until = timestamp.saturating_add(WINDOW_S + KEPT_S);
        Ok(Admitted { key_id: key_id.to_owned(), nonce: request.nonce.to_owned(), keep_until })
    }
}

/// Never shows a key.
impl std::fmt::Debug for RevalidateKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RevalidateKeys({})", self.0.len())
    }
}

impl SignedRequest<'_> {
    /// The text that is signed.
    pub fn text(&self) -> String {
        let Self { method, host, target, timestamp, nonce, request_id, body } = self;
        let body = Digest::of(body);
        format!("{VERSION}\n{method}\n{host}\n{target}\n{timestamp}\n{nonce}\n{request_id}\n{body}")
    }

    /// A line break inside a line would let two requests have one text. The other lines are parsed.
    fn is_unambiguous(&self) -> bool {
        let control = |text: &str| text.chars().any(char::is_control);
        ![self.method, self.host, self.target, self.request_id].into_iter().any(control)
    }

    fn mac(&self, secret: &[u8]) -> Option<Hmac<Sha256>> {
        // HMAC takes keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
        mac.update(self.text().as_bytes());
        Some(mac)
    }
}

fn is_token(text: &str, bytes: std::ops::RangeInclusive<usize>) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    bytes.contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;

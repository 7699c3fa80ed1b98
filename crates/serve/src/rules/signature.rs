//! Signed requests: who asks, that it is they, and that they ask now.
//!
//! Four headers of their own, for a distribution in front overwrites `Authorization` with its own signature:
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
//! www.acme.example                     the host that is asked, in lower case, without port and final dot
//! /_everfresh/revalidate               path and query as they are sent
//! 1763270000                           x-everfresh-timestamp
//! 5f0c3a1e9b7d4c2688aa01f3            x-everfresh-nonce
//! order-4711                           x-request-id; an empty line if there is none
//! 6a3f…                                the SHA-256 of the body in lower-case hex, also of an empty one
//! ```
//!
//! `producers/revalidate.py` and `producers/revalidate.sh` do so.

use everfresh_core::domain::digest::Digest;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::plain;

/// The first line of what is signed.
pub const VERSION: &str = "everfresh-1";

/// How far from AWS's time a signature's may be, in seconds.
pub const WINDOW_S: u64 = 300;

/// The shortest secret that is accepted, in bytes.
pub const LEAST_SECRET_BYTES: usize = 32;

/// The longest name of a key.
const MOST_ID_BYTES: usize = 64;

/// How long a nonce is remembered after its signature has become too old to be believed, in seconds. Clocks may be corrected.
const REMEMBERED_S: u64 = 3600;

/// What the signature of a key that does not exist is compared with, so that it takes as long as one that does.
const NOBODYS_SECRET: &[u8] = &[0; LEAST_SECRET_BYTES];

/// The keys that requests are signed with, each with its name: a new one is added before the old one is taken away. None switches the
/// endpoints off.
#[derive(Clone, Default)]
pub struct RevalidateKeys(Vec<Key>);

#[derive(Clone)]
struct Key {
    id: String,
    secret: Vec<u8>,
}

/// What is wrong with the list of keys. Repeats nothing of it: what looks like a name may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// No name, or one that is none.
    #[error("key {0} of the list must be NAME:SECRET, with a name of 1 to {MOST_ID_BYTES} letters, digits, _ and -")]
    Name(usize),
    /// A secret that can be guessed.
    #[error(
        "the secret of key {0} of the list must have at least {LEAST_SECRET_BYTES} characters: make one with `openssl rand -hex 32`"
    )]
    ShortSecret(usize),
    /// Two keys of one name.
    #[error("key {0} of the list has the name of another one")]
    SameName(usize),
}

/// A request as far as it is signed, in its own words.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    /// The method.
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
    /// The body.
    pub body: &'a [u8],
}

/// A request that was signed, now, with a key that is believed. It counts once: its nonce must be spent.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The key.
    pub key_id: String,
    /// The nonce.
    pub nonce: String,
    /// Until when the nonce must be remembered, in Unix seconds.
    pub keep_until: u64,
}

/// Why a request is not believed. For the log; who asks is told nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A header is missing, or is nothing that could have been signed.
    Malformed,
    /// No key of that name.
    UnknownKey,
    /// Another signature than the key's.
    Signature,
    /// Too old, or not yet.
    Time,
    /// The nonce was used before.
    Replayed,
}

impl Denied {
    /// Its word.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The signature of a letter; none without such a key.
    pub fn sign(&self, key_id: &str, letter: &SignedRequest<'_>) -> Option<String> {
        let key = self.0.iter().find(|key| key.id == key_id)?;
        Some(plain::write(&letter.mac(&key.secret)?.finalize().into_bytes()))
    }

    /// Whether the letter was signed with that key, and now. Compared in constant time.
    pub fn admit(
        &self,
        key_id: &str,
        signature: &str,
        letter: &SignedRequest<'_>,
        now_ms: u64,
    ) -> Result<Admitted, Denied> {
        let (Some(timestamp), Some(signature)) = (plain::number(letter.timestamp), plain::read(signature)) else {
            return Err(Denied::Malformed);
        };
        if !is_token(letter.nonce, 16..=64) || !letter.has_one_reading() {
            return Err(Denied::Malformed);
        }
        let key = self.0.iter().find(|key| key.id == key_id);
        let secret = key.map_or(NOBODYS_SECRET, |key| &key.secret);
        let signed = letter.mac(secret).is_some_and(|mac| mac.verify_slice(&signature).is_ok());
        if key.is_none() {
            return Err(Denied::UnknownKey);
        }
        if !signed {
            return Err(Denied::Signature);
        }
        if timestamp.abs_diff(now_ms / 1000) > WINDOW_S {
            return Err(Denied::Time);
        }
        let keep_until = timestamp.saturating_add(WINDOW_S + REMEMBERED_S);
        Ok(Admitted { key_id: key_id.to_owned(), nonce: letter.nonce.to_owned(), keep_until })
    }
}

/// Never shows a key.
impl std::fmt::Debug for RevalidateKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RevalidateKeys({})", self.0.len())
    }
}

impl SignedRequest<'_> {
    /// What is signed.
    pub fn text(&self) -> String {
        let Self { method, host, target, timestamp, nonce, request_id, body } = self;
        let body = Digest::of(body);
        format!("{VERSION}\n{method}\n{host}\n{target}\n{timestamp}\n{nonce}\n{request_id}\n{body}")
    }

    /// A line break inside a line would let two letters have one text. The other lines cannot hold any.
    fn has_one_reading(&self) -> bool {
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
mod tests {
    use super::*;

    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";
    const NOW_MS: u64 = 1_763_270_000_999;

    const LETTER: SignedRequest<'static> = SignedRequest {
        method: "POST",
        host: "www.acme.example",
        target: "/_everfresh/revalidate",
        timestamp: "1763270000",
        nonce: "5f0c3a1e9b7d4c2688aa01f3",
        request_id: "order-4711",
        body: br#"{"path":"/products/42"}"#,
    };

    fn keys(text: &str) -> RevalidateKeys {
        RevalidateKeys::parse(text).unwrap()
    }

    fn old() -> RevalidateKeys {
        keys(&format!("old:{OLD}"))
    }

    /// Signs one letter and shows another with its signature.
    fn judged(signed: &SignedRequest<'static>, shown: &SignedRequest<'static>) -> Result<(), Denied> {
        let signature = old().sign("old", signed).unwrap();
        old().admit("old", &signature, shown, NOW_MS).map(|_| ())
    }

    #[test]
    fn other_languages_come_to_the_same_signature() {
        // producers/revalidate.py's `signature` says so of the same letter.
        assert_eq!(
            old().sign("old", &LETTER).as_deref(),
            Some("7058345cd8cff5c393376e9bad75bc9731b704d131dc00ae7159ea1e89511bac")
        );
    }

    #[test]
    fn what_was_signed_is_admitted_once_its_nonce_is_spent() {
        let signature = old().sign("old", &LETTER).unwrap();
        let admitted = old().admit("old", &signature, &LETTER, NOW_MS).unwrap();
        assert_eq!((admitted.key_id.as_str(), admitted.nonce.as_str()), ("old", LETTER.nonce));
        assert!(admitted.keep_until > 1_763_270_000 + 2 * WINDOW_S, "longer than anybody would believe it");
        assert_eq!(admitted.keep_until, 1_763_270_000 + 300 + 3600);
    }

    #[test]
    fn logs_tell_refusals_by_their_words() {
        let all = [Denied::Malformed, Denied::UnknownKey, Denied::Signature, Denied::Time, Denied::Replayed];
        assert_eq!(all.map(Denied::as_str), ["malformed", "unknown-key", "signature", "time", "replayed"]);
    }

    #[test]
    fn whatever_is_changed_is_noticed() {
        for (what, changed) in [
            ("method", SignedRequest { method: "GET", ..LETTER }),
            ("host", SignedRequest { host: "globex.example", ..LETTER }),
            ("path", SignedRequest { target: "/_everfresh/requests/inval.k", ..LETTER }),
            ("query", SignedRequest { target: "/_everfresh/revalidate?after=0", ..LETTER }),
            ("time", SignedRequest { timestamp: "1763270001", ..LETTER }),
            ("nonce", SignedRequest { nonce: "5f0c3a1e9b7d4c2688aa01f4", ..LETTER }),
            ("request id", SignedRequest { request_id: "order-4712", ..LETTER }),
            ("no request id", SignedRequest { request_id: "", ..LETTER }),
            ("body", SignedRequest { body: br#"{"path":"/products/43"}"#, ..LETTER }),
            ("no body", SignedRequest { body: b"", ..LETTER }),
        ] {
            assert_eq!(judged(&LETTER, &changed), Err(Denied::Signature), "{what}");
            assert_eq!(judged(&changed, &changed), Ok(()), "{what}");
        }
    }

    #[test]
    fn nothing_that_has_two_readings_is_admitted_however_it_is_signed() {
        let long = Box::leak("n".repeat(65).into_boxed_str());
        for (what, odd) in [
            ("a line in the path", SignedRequest { target: "/_everfresh/revalidate\n1763270000", ..LETTER }),
            ("a line in the request id", SignedRequest { request_id: "a\nb", ..LETTER }),
            ("a zero in the request id", SignedRequest { request_id: "a\0", ..LETTER }),
            ("a time with a sign", SignedRequest { timestamp: "+1763270000", ..LETTER }),
            ("a time with zeros", SignedRequest { timestamp: "01763270000", ..LETTER }),
            ("no time", SignedRequest { timestamp: "", ..LETTER }),
            ("no nonce", SignedRequest { nonce: "", ..LETTER }),
            ("a short nonce", SignedRequest { nonce: "123456789012345", ..LETTER }),
            ("a long nonce", SignedRequest { nonce: long, ..LETTER }),
            ("a nonce of two words", SignedRequest { nonce: "5f0c3a1e9b7d, 4c2688aa", ..LETTER }),
            ("a nonce that leaves its key", SignedRequest { nonce: "5f0c3a1e9b7d#4c2688aa", ..LETTER }),
        ] {
            assert_eq!(judged(&odd, &odd), Err(Denied::Malformed), "{what}");
        }
    }

    #[test]
    fn time_may_be_off_by_five_minutes_in_either_direction() {
        for (timestamp, expected) in [
            ("1763269700", Ok(())),
            ("1763270300", Ok(())),
            ("1763269699", Err(Denied::Time)),
            ("1763270301", Err(Denied::Time)),
            ("0", Err(Denied::Time)),
            ("18446744073709551615", Err(Denied::Time)),
        ] {
            let letter = SignedRequest { timestamp, ..LETTER };
            assert_eq!(judged(&letter, &letter), expected, "{timestamp}");
        }
    }

    #[test]
    fn both_keys_are_believed_while_one_replaces_the_other_each_under_its_own_name() {
        let both = keys(&format!("old:{OLD}, new:{NEW}"));
        for id in ["old", "new"] {
            let signature = both.sign(id, &LETTER).unwrap();
            assert!(both.admit(id, &signature, &LETTER, NOW_MS).is_ok(), "{id}");
            let other = if id == "old" { "new" } else { "old" };
            assert_eq!(both.admit(other, &signature, &LETTER, NOW_MS), Err(Denied::Signature));
        }
        let new = both.sign("new", &LETTER).unwrap();
        assert_eq!(old().admit("new", &new, &LETTER, NOW_MS), Err(Denied::UnknownKey), "not yet, or not any more");
    }

    #[test]
    fn forged_and_malformed_signatures_are_nothing() {
        let good = old().sign("old", &LETTER).unwrap();
        let nobodys = plain::write(&LETTER.mac(NOBODYS_SECRET).unwrap().finalize().into_bytes());
        assert_eq!(old().admit("nobody", &nobodys, &LETTER, NOW_MS), Err(Denied::UnknownKey));
        for (key_id, signature, expected) in [
            ("old", String::new(), Denied::Malformed),
            ("old", good.to_uppercase(), Denied::Malformed),
            ("old", good[..63].to_owned(), Denied::Malformed),
            ("old", format!("{good}0"), Denied::Malformed),
            ("old", format!("{good}, {good}"), Denied::Malformed),
            ("old", "x".repeat(100_000), Denied::Malformed),
            ("old", "0".repeat(64), Denied::Signature),
            ("old", nobodys.clone(), Denied::Signature),
            ("Old", good.clone(), Denied::UnknownKey),
            ("", good.clone(), Denied::UnknownKey),
            ("old, old", good.clone(), Denied::UnknownKey),
        ] {
            assert_eq!(old().admit(key_id, &signature, &LETTER, NOW_MS), Err(expected), "{key_id} {signature:.70}");
        }
        assert!(RevalidateKeys::default().admit("old", &good, &LETTER, NOW_MS).is_err());
    }

    #[test]
    fn keys_have_names_and_long_secrets_and_are_never_shown() {
        assert!(keys("").is_empty() && keys(" , ").is_empty());
        assert!(!keys(&format!("a:{OLD}")).is_empty());
        let with_colon = keys(&format!("a:{OLD}:more"));
        assert_ne!(with_colon.sign("a", &LETTER), keys(&format!("a:{OLD}")).sign("a", &LETTER));
        let long = "i".repeat(65);
        for (text, expected) in [
            (OLD.to_owned(), KeysError::Name(1)),
            (format!(":{OLD}"), KeysError::Name(1)),
            (format!("a b:{OLD}"), KeysError::Name(1)),
            (format!("a#b:{OLD}"), KeysError::Name(1)),
            (format!("{long}:{OLD}"), KeysError::Name(1)),
            (format!("a:{OLD},b:short"), KeysError::ShortSecret(2)),
            (format!("a:{OLD},a:{NEW}"), KeysError::SameName(2)),
        ] {
            let error = RevalidateKeys::parse(&text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains(OLD) && !error.to_string().contains("short,"), "{error}");
        }
        assert_eq!(format!("{:?}", keys(&format!("a:{OLD}"))), "RevalidateKeys(1)");
    }
}

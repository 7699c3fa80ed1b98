//! The signed preview cookie.
//!
//! `everfresh-preview=<expires>.<signature>`: the expiry in Unix seconds, and the HMAC-SHA256, in
//! hex, of `everfresh-preview`, the tenant and the expiry, joined by newlines. It opens one
//! tenant's drafts to any holder until then, so it is short-lived and is sent over HTTPS only.

use everfresh_core::domain::page_key::Tenant;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::http::canonical_hex;

pub const COOKIE: &str = "everfresh-preview";

pub const LEAST_KEY_BYTES: usize = 32;

/// The first key signs, each of them verifies, so that a key can be rotated. Without any, previews
/// are off.
#[derive(Clone, Default)]
pub struct PreviewKeys(Vec<Vec<u8>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a preview key must have at least {LEAST_KEY_BYTES} characters: make one with `openssl rand -hex 32`")]
pub struct ShortKey;

impl PreviewKeys {
    /// Keys separated by commas; none at all in an empty text.
    pub fn parse(text: &str) -> Result<Self, ShortKey> {
        let keys = text.split(',').map(str::trim).filter(|key| !key.is_empty());
        let keys: Vec<Vec<u8>> = keys.map(|key| key.as_bytes().to_vec()).collect();
        if keys.iter().any(|key| key.len() < LEAST_KEY_BYTES) {
            return Err(ShortKey);
        }
        Ok(Self(keys))
    }

    /// The cookie's value; none without a key.
    pub fn sign(&self, tenant: &Tenant, expires_at: u64) -> Option<String> {
        let signature = mac(self.0.first()?, tenant, expires_at)?.finalize().into_bytes();
        Some(format!("{expires_at}.{}", canonical_hex::to_hex(&signature)))
    }

    /// Verifies the cookie in constant time, and its expiry.
    pub fn admits(&self, cookie: &str, tenant: &Tenant, now_ms: u64) -> bool {
        let Some((expires, signature)) = cookie.split_once('.') else { return false };
        let Some(expires_at) = canonical_hex::parse_number(expires) else { return false };
        let Some(signature) = canonical_hex::parse_hex(signature) else { return false };
        let signed =
            |key: &Vec<u8>| mac(key, tenant, expires_at).is_some_and(|mac| mac.verify_slice(&signature).is_ok());
        expires_at > now_ms / 1000 && self.0.iter().any(signed)
    }
}

/// Never shows a key.
impl std::fmt::Debug for PreviewKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PreviewKeys({})", self.0.len())
    }
}

fn mac(key: &[u8], tenant: &Tenant, expires_at: u64) -> Option<Hmac<Sha256>> {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(format!("{COOKIE}\n{tenant}\n{expires_at}").as_bytes());
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    #[test]
    fn signed_cookie_admits_its_tenant_until_expiry() {
        let keys = PreviewKeys::parse(OLD).unwrap();
        let cookie = keys.sign(&tenant("acme"), 1_000).unwrap();
        assert!(keys.admits(&cookie, &tenant("acme"), 999_999));
        assert!(!keys.admits(&cookie, &tenant("acme"), 1_000_000), "at the second of its expiry");
        assert!(!keys.admits(&cookie, &tenant("globex"), 0));
    }

    #[test]
    fn both_keys_verify_during_rotation() {
        let old = PreviewKeys::parse(OLD).unwrap().sign(&tenant("acme"), 1_000).unwrap();
        let both = PreviewKeys::parse(&format!("{NEW}, {OLD}")).unwrap();
        assert!(both.admits(&old, &tenant("acme"), 0));
        let new = both.sign(&tenant("acme"), 1_000).unwrap();
        assert!(PreviewKeys::parse(NEW).unwrap().admits(&new, &tenant("acme"), 0));
        assert!(!PreviewKeys::parse(OLD).unwrap().admits(&new, &tenant("acme"), 0));
    }

    #[test]
    fn debug_output_shows_no_key() {
        assert_eq!(format!("{:?}", PreviewKeys::parse(OLD).unwrap()), "PreviewKeys(1)");
    }

    #[test]
    fn forged_and_malformed_cookies_are_rejected() {
        let keys = PreviewKeys::parse(OLD).unwrap();
        let acme = tenant("acme");
        let good = keys.sign(&acme, 1_000).unwrap();
        let (_, signature) = good.split_once('.').unwrap();
        let zeros = "0".repeat(64);
        for cookie in [
            String::new(),
            "1000".into(),
            "1000.".into(),
            format!("9999.{signature}"),
            format!("01000.{signature}"),
            format!("+1000.{signature}"),
            format!("1000.{}", signature.to_uppercase()),
            format!("1000.{}", &signature[1..]),
            format!("1000.{signature}0"),
            format!("1000.{zeros}"),
            format!("18446744073709551616.{signature}"),
            format!(".{signature}"),
            "x".repeat(100_000),
        ] {
            assert!(!keys.admits(&cookie, &acme, 0), "{}", &cookie[..cookie.len().min(80)]);
        }
    }

    #[test]
    fn without_a_key_no_cookie_is_admitted() {
        let none = PreviewKeys::parse("").unwrap();
        assert_eq!(none.sign(&tenant("acme"), 1_000), None);
        let cookie = PreviewKeys::parse(OLD).unwrap().sign(&tenant("acme"), 1_000).unwrap();
        assert!(!none.admits(&cookie, &tenant("acme"), 0));
        assert_eq!(PreviewKeys::parse("short").unwrap_err(), ShortKey);
        assert!(!format!("{:?}", PreviewKeys::parse(OLD).unwrap()).contains("0123"));
    }
}

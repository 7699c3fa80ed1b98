//! The lease: the expiring, exclusive right to publish a page's next version.
//!
//! The lease saves work; it does not order commits. A delayed duplicate of an old write to the LOCK
//! row can grant it twice, and then the condition on META refuses the second commit (I2).

use crate::domain::page::LockRow;
use crate::domain::page_key::PageKey;
use crate::domain::seconds;

/// How much longer than the lease its row lives. Far above clock skew, so that no reader depends on
/// when it is deleted.
pub const TTL_BUFFER_S: u64 = 3600;

/// Identifies one holder of a lease: 32 random hex digits, never used twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseToken(String);

impl LeaseToken {
    pub fn new(random: u128) -> Self {
        Self(format!("{random:032x}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A lease that was acquired. It cannot be copied: commit and release take it by value, so it is
/// used once.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    page: PageKey,
    token: LeaseToken,
    expires_at: u64,
}

impl Lease {
    /// A lease on `page` from now on, for at least `length_ms`.
    pub fn new(page: PageKey, token: LeaseToken, now_ms: u64, length_ms: u64) -> Self {
        let expires_at = seconds::ceil(now_ms.saturating_add(length_ms));
        Self { page, token, expires_at }
    }

    /// Extends the lease from now on. A clock that jumped back does not shorten it.
    pub fn renew(&mut self, now_ms: u64, length_ms: u64) {
        let expires_at = seconds::ceil(now_ms.saturating_add(length_ms));
        self.expires_at = self.expires_at.max(expires_at);
    }

    pub fn page(&self) -> &PageKey {
        &self.page
    }

    pub fn token(&self) -> &LeaseToken {
        &self.token
    }

    pub fn row(&self) -> LockRow {
        LockRow {
            lease_token: self.token.0.clone(),
            lease_expires_at: self.expires_at,
            ttl: Some(self.expires_at.saturating_add(TTL_BUFFER_S)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::page_key::{CanonicalPath, Tenant};
    use proptest::prelude::*;

    fn lease(now_ms: u64, length_ms: u64) -> Lease {
        let path = CanonicalPath::stored("/a").unwrap();
        let page = PageKey::new(Tenant::parse("acme").unwrap(), path);
        Lease::new(page, LeaseToken::new(7), now_ms, length_ms)
    }

    #[test]
    fn token_fits_where_a_client_request_token_must_fit() {
        assert_eq!(LeaseToken::new(u128::MAX).as_str().len(), 32);
        assert_eq!(LeaseToken::new(255).as_str(), format!("{}ff", "0".repeat(30)));
    }

    #[test]
    fn lease_ends_exactly_at_its_expiry() {
        let lease = lease(1_000, 30_000);
        assert_eq!(lease.row().lease_expires_at, 31);
        assert!(lease.row().held(30_999));
        assert!(!lease.row().held(31_000));
    }

    #[test]
    fn expiry_is_rounded_up_and_its_row_lives_longer() {
        let row = lease(1_001, 30_000).row();
        assert_eq!(row.lease_expires_at, 32);
        assert_eq!(row.ttl, Some(32 + TTL_BUFFER_S));
    }

    #[test]
    fn renewal_keeps_the_token_and_never_shortens() {
        let mut renewed = lease(100_000, 30_000);
        renewed.renew(110_000, 30_000);
        assert_eq!(renewed.row().lease_expires_at, 140);
        let mut rounded = lease(100_000, 30_000);
        rounded.renew(110_001, 30_000);
        assert_eq!(rounded.row().lease_expires_at, 141);
        // The clock jumped back.
        renewed.renew(50_000, 30_000);
        assert_eq!(renewed.row().lease_expires_at, 140);
        assert_eq!(renewed.token(), &LeaseToken::new(7));
    }

    proptest! {
        #[test]
        fn lease_lasts_its_length_and_less_than_a_second_more(
            now_ms in 0..4_000_000_000_000u64,
            length_ms in 1..900_000u64,
        ) {
            let lease = lease(now_ms, length_ms);
            prop_assert!(lease.row().held(now_ms + length_ms - 1));
            prop_assert!(!lease.row().held(now_ms + length_ms + 999));
        }
    }
}

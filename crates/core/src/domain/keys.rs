//! The table's keys: every partition key and sort key that Everfresh reads or writes is built here.
//!
//! | Partition key | Sort key | Row |
//! |---|---|---|
//! | [`PageKey::pk`] | `HEALTH` | failures, cooldown, pin, path watermark |
//! | | `LOCK` | lease |
//! | | `META` | published version |
//! | | `REQ#<idempotency key>` | record of a request |
//! | | `VER#<version>` | kept version |
//! | [`Tenant::inval_pk`] | `EPOCH` | newest watermark of the tenant |
//! | | `TAG#<tag>`, `PREFIX#<prefix>` | watermark |
//! | | `REQ#<idempotency key>` | record of a request by tag |
//! | | `WITHDRAWN#<ten minutes>` | number of pages that the origin took down in that time, and an operator's limit |
//! | `NONCE#<key id>` | nonce | spent nonce of a signed request |
//! | `CONTROL` | `PAUSE`, `PAUSE#<tenant>` | regeneration is paused, of all tenants or of one |
//! | | `SWEEP#<tenant>` | how far the sweep of a tenant's objects has come |
//!
//! # Partition key of a page
//!
//! | Table | Partition key |
//! |---|---|
//! | several tenants | `TENANT#<tenant>#CACHE#<page hash>` |
//! | one tenant | `CACHE#<page hash>` |
//! | with raw keys | the same, with the cache key in place of its hash |
//!
//! A tenant holds no `#`, so the text between the first two `#` is the tenant and nothing that
//! follows can imitate another one (I7).

use crate::domain::invalidations::Prefix;
use crate::domain::page_key::{CanonicalPath, KeyLayout, PageHash, PageKey, Tenant};
use crate::domain::request::IdempotencyKey;
use crate::domain::tag::Tag;
use crate::domain::version::Version;

/// `HEALTH` < `LOCK` < `META`, so that one query reads a page's three rows.
pub(crate) const HEALTH: &str = "HEALTH";
pub(crate) const LOCK: &str = "LOCK";
pub(crate) const META: &str = "META";

pub(crate) const EPOCH: &str = "EPOCH";

pub(super) const PREFIX: &str = "PREFIX#";
pub(crate) const VERSION: &str = "VER#";
pub(crate) const REQUEST: &str = "REQ#";

/// Partition of what operators switch.
pub(crate) const CONTROL: &str = "CONTROL";

/// Sort key of the pause of all tenants, and beginning of that of one.
pub(crate) const PAUSE: &str = "PAUSE";

/// Sort key of the pause of one tenant.
pub(crate) fn pause_sk(tenant: &Tenant) -> String {
    format!("{PAUSE}#{tenant}")
}

/// Sort key of how far the sweep of a tenant's objects has come.
pub(crate) fn sweep_sk(tenant: &Tenant) -> String {
    format!("SWEEP#{tenant}")
}

/// Sort key of the count of withdrawals in the ten minutes that begin at `from_ms`.
pub(crate) fn withdrawn_sk(from_ms: u64) -> String {
    format!("WITHDRAWN#{from_ms:016}")
}

/// Partition of a signing key's nonces. The serving function's role may write to `NONCE#`
/// partitions and to no other.
pub(crate) fn nonce_pk(key_id: &str) -> String {
    format!("NONCE#{key_id}")
}

/// Sort key of a request's record.
pub(crate) fn req_sk(key: &IdempotencyKey) -> String {
    format!("{REQUEST}{key}")
}

/// Sort keys of every watermark that can apply to a page. Each is within DynamoDB's limit: for one
/// key that is too long, DynamoDB refuses the whole batch.
pub(crate) fn watermark_sks(path: &CanonicalPath, tags: &[Tag]) -> Vec<String> {
    let tags = tags.iter().map(Tag::sk);
    let prefixes = Prefix::covering(path);
    tags.chain(prefixes.iter().map(Prefix::sk)).collect()
}

impl PageKey {
    /// The partition that holds every row of this page. At most 1,102 bytes, under
    /// [`MAX_PARTITION_KEY_BYTES`](crate::domain::page_key::MAX_PARTITION_KEY_BYTES).
    pub fn pk(&self, layout: KeyLayout) -> String {
        if layout.raw_keys {
            page_pk(self.tenant(), self.path().as_str(), layout)
        } else {
            page_pk(self.tenant(), &self.hash().to_string(), layout)
        }
    }
}

impl PageHash {
    /// Partition key of the tenant's page with this hash. None in a table with raw keys, where the
    /// hash does not lead to the partition.
    pub fn pk(&self, tenant: &Tenant, layout: KeyLayout) -> Option<String> {
        (!layout.raw_keys).then(|| page_pk(tenant, &self.to_string(), layout))
    }
}

fn page_pk(tenant: &Tenant, key: &str, layout: KeyLayout) -> String {
    if layout.single_tenant { format!("CACHE#{key}") } else { format!("TENANT#{tenant}#CACHE#{key}") }
}

impl Tenant {
    /// Partition of the tenant's invalidations: the epoch, the watermarks and the requests by tag.
    pub fn inval_pk(&self) -> String {
        format!("TENANT#{self}#INVAL")
    }
}

impl Version {
    /// Sort key of the version's own row.
    pub fn sk(&self) -> String {
        format!("{VERSION}{self}")
    }

    /// The version whose row has that sort key. None for a foreign version row.
    pub fn of_sk(sk: &str) -> Option<Self> {
        sk.strip_prefix(VERSION)?.parse().ok()
    }
}

impl Tag {
    /// Sort key of the tag's watermark.
    pub fn sk(&self) -> String {
        format!("TAG#{self}")
    }
}

impl Prefix {
    /// Sort key of the prefix's watermark.
    pub fn sk(&self) -> String {
        format!("{PREFIX}{}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::page_key::{MAX_SORT_KEY_BYTES, NormalPath};
    use proptest::prelude::*;

    const LAYOUTS: [KeyLayout; 4] = [
        KeyLayout { single_tenant: false, raw_keys: false },
        KeyLayout { single_tenant: false, raw_keys: true },
        KeyLayout { single_tenant: true, raw_keys: false },
        KeyLayout { single_tenant: true, raw_keys: true },
    ];

    fn path(text: &str) -> CanonicalPath {
        CanonicalPath::stored(text).unwrap()
    }

    fn page(tenant: &str, text: &str) -> PageKey {
        PageKey::new(Tenant::parse(tenant).unwrap(), path(text))
    }

    #[test]
    fn hash_alone_leads_to_the_same_partition() {
        let page = page("acme", "/a");
        for layout in LAYOUTS {
            let expected = (!layout.raw_keys).then(|| page.pk(layout));
            assert_eq!(page.hash().pk(page.tenant(), layout), expected);
        }
    }

    #[test]
    fn longest_partition_key_fits_into_dynamodb() {
        let page = page(&"t".repeat(64), &format!("/{}", "a".repeat(1023)));
        let layout = KeyLayout { single_tenant: false, raw_keys: true };
        assert_eq!(page.pk(layout).len(), 1102);
    }

    #[test]
    fn longest_prefix_fits_into_a_sort_key() {
        let longest = format!("/{}", "x".repeat(Prefix::MAX_BYTES - 1));
        assert_eq!(Prefix::of(&path(&longest)).unwrap().sk().len(), MAX_SORT_KEY_BYTES);
    }

    #[test]
    fn page_and_invalidation_partitions_never_meet() {
        let tenant = Tenant::parse("acme").unwrap();
        for layout in LAYOUTS {
            assert_ne!(page("acme", "/INVAL").pk(layout), tenant.inval_pk());
        }
    }

    #[test]
    fn watermarks_of_a_page_are_those_of_its_tags_and_prefixes() {
        let tags = [Tag::parse("products").unwrap(), Tag::parse("product-42").unwrap()];
        let sks = watermark_sks(&path("/products/42"), &tags);
        let expected = ["TAG#products", "TAG#product-42", "PREFIX#/", "PREFIX#/products", "PREFIX#/products/42"];
        assert_eq!(sks, expected);
    }

    #[test]
    fn version_is_read_back_from_its_sort_key() {
        let version = Version::next(1_763_270_000_123, None, None, 0xbeef);
        assert_eq!(version.sk(), "VER#0001763270000123-0000beef");
        assert_eq!(Version::of_sk(&version.sk()), Some(version));
        assert_eq!(Version::of_sk("VER#foreign"), None);
    }

    /// Small alphabets, so that equal and nearly equal pairs are common.
    fn any_page() -> impl Strategy<Value = PageKey> {
        let path = "/[ab]{0,2}(/[ab]{1,2})?(\\?a=[ab#%23]{0,2})?";
        let path = path.prop_filter_map("no canonical form", |raw| NormalPath::parse(&raw).ok()?.keep(&["a"]).ok());
        ("[ab][ab_-]{0,2}", path).prop_map(|(tenant, path)| PageKey::new(Tenant::parse(&tenant).unwrap(), path))
    }

    proptest! {
        #[test]
        fn partition_keys_are_injective(left in any_page(), right in any_page()) {
            for layout in LAYOUTS {
                let same_page = if layout.single_tenant {
                    left.path() == right.path()
                } else {
                    left == right
                };
                prop_assert_eq!(left.pk(layout) == right.pk(layout), same_page);
            }
        }

        #[test]
        fn partition_key_names_its_tenant_and_no_other(page in any_page()) {
            for raw_keys in [false, true] {
                let pk = page.pk(KeyLayout { single_tenant: false, raw_keys });
                let mut parts = pk.splitn(4, '#');
                prop_assert_eq!(parts.next(), Some("TENANT"));
                prop_assert_eq!(parts.next(), Some(page.tenant().as_str()));
                prop_assert_eq!(parts.next(), Some("CACHE"));
                let key = parts.next().unwrap();
                if raw_keys {
                    prop_assert_eq!(CanonicalPath::stored(key), Some(page.path().clone()));
                } else {
                    prop_assert_eq!(PageHash::parse(key), Some(page.hash()));
                }
            }
        }
    }
}

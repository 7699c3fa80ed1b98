//! The response of a render, and where it is stored.

use bytes::Bytes;

use crate::domain::digest::{Digest, FieldDigest};
use crate::domain::headers::{self, HeaderError};
use crate::domain::page_key::{KeyLayout, PageKey, Tenant};
use crate::domain::version::Version;

/// A renderer's response, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub status: u16,
    /// All headers, as received.
    pub headers: Vec<(String, String)>,
    /// As much of the body as was received.
    pub body: Bytes,
    /// The declared content length, if any.
    pub declared_bytes: Option<u64>,
}

impl Rendered {
    /// The response without its body.
    pub fn head(&self) -> Self {
        Self { status: self.status, headers: self.headers.clone(), body: Bytes::new(), declared_bytes: None }
    }
}

/// A page as it is published: status, stored headers and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Artifact {
    /// Keeps status and body, and those headers that may be stored.
    pub fn new(rendered: Rendered) -> Result<Self, HeaderError> {
        let headers = headers::stored(&rendered.headers)?;
        Ok(Self { status: rendered.status, headers, body: rendered.body })
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// Stored headers: lower case, sorted by name.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    pub fn body_digest(&self) -> Digest {
        Digest::of(&self.body)
    }

    pub fn artifact_digest(&self) -> Digest {
        artifact_digest(self.status, &self.headers, self.body_digest())
    }
}

/// Digest of status, body and the [content headers](headers::CONTENT). Equal digests: the content
/// did not change.
pub fn artifact_digest(status: u16, stored: &[(String, String)], body_digest: Digest) -> Digest {
    let content = || headers::content(stored);
    let mut list = FieldDigest::new("everfresh-artifact").number(u64::from(status)).number(content().count() as u64);
    for (name, value) in content() {
        list = list.field(name.as_bytes()).field(value.as_bytes());
    }
    list.field(body_digest.to_string().as_bytes()).finish()
}

/// The strong ETag of a body: its digest in quotes.
pub fn etag(body_digest: Digest) -> String {
    format!("\"{body_digest}\"")
}

/// The object key of one attempt: `<tenant>/<page hash>/<version>`.
///
/// The version has a random part, so no two attempts share a key: nothing is ever overwritten, and
/// whatever removes an object that no row points at cannot remove what a commit is about to point
/// at (I4).
pub fn object_key(page: &PageKey, version: &Version) -> String {
    format!("{}/{}/{version}", page.tenant(), page.hash())
}

/// The key of a body that the publish gate refused. No tenant's name begins with an underscore, so
/// no page's object and no sweep is below this prefix; the bucket deletes what is there after
/// [`QUARANTINE_DAYS`].
pub fn quarantine_key(page: &PageKey, version: &Version) -> String {
    format!("{QUARANTINE}{}", object_key(page, version))
}

/// What keys of refused bodies begin with.
pub const QUARANTINE: &str = "_quarantine/";

/// For how long a refused body is kept: the template's rule for the bucket.
pub const QUARANTINE_DAYS: u64 = 7;

/// Why a row's body may not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// Empty, over-long, with control characters, a leading slash, or empty and dot segments.
    #[error("s3_key is not an object key")]
    Malformed,
    #[error("s3_key points into another bucket")]
    OtherBucket,
    #[error("s3_key points outside the tenant's prefix")]
    OtherTenant,
}

/// The object key in `s3_key`, which is a plain key or `s3://bucket/key`.
///
/// Checked, because foreign writers write rows too: the bucket must be ours, and where the table
/// holds several tenants the key must be under this tenant's prefix (I7).
pub fn locate<'a>(s3_key: &'a str, bucket: &str, tenant: &Tenant, layout: KeyLayout) -> Result<&'a str, PointerError> {
    let key = match s3_key.strip_prefix("s3://") {
        None => s3_key,
        Some(rest) => {
            let (named, key) = rest.split_once('/').ok_or(PointerError::Malformed)?;
            if named != bucket {
                return Err(PointerError::OtherBucket);
            }
            key
        }
    };
    let well_formed = key.len() <= 1024
        && !key.contains(|character: char| character.is_control() || character == '\\')
        && key.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !well_formed {
        return Err(PointerError::Malformed);
    }
    let own = key.strip_prefix(tenant.as_str()).is_some_and(|rest| rest.starts_with('/'));
    if !own && !layout.single_tenant {
        return Err(PointerError::OtherTenant);
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::page_key::CanonicalPath;
    use proptest::prelude::*;

    fn artifact(status: u16, headers: &[(&str, &str)], body: &'static str) -> Artifact {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let headers = headers.iter().map(own).collect();
        let body = Bytes::from_static(body.as_bytes());
        Artifact::new(Rendered { status, headers, body, declared_bytes: None }).unwrap()
    }

    const HTML: (&str, &str) = ("content-type", "text/html");

    #[test]
    fn headers_that_are_not_stored_do_not_make_a_change() {
        let before = artifact(200, &[HTML], "hello");
        let after = artifact(200, &[("date", "today"), HTML, ("x-request-id", "7")], "hello");
        assert_eq!(before.artifact_digest(), after.artifact_digest());
    }

    #[test]
    fn status_headers_and_body_each_make_a_change() {
        let artifacts = [
            artifact(200, &[HTML], "hello"),
            artifact(404, &[HTML], "hello"),
            artifact(200, &[("content-type", "text/plain")], "hello"),
            artifact(200, &[], "hello"),
            artifact(200, &[HTML, ("link", "x")], "hello"),
            artifact(200, &[HTML], "hello!"),
        ];
        for (index, left) in artifacts.iter().enumerate() {
            for right in &artifacts[index + 1..] {
                assert_ne!(left.artifact_digest(), right.artifact_digest());
            }
        }
        assert_eq!(artifacts[0].body_digest(), artifacts[1].body_digest());
    }

    #[test]
    fn etag_is_the_quoted_digest_of_the_body() {
        let tag = etag(artifact(200, &[], "hello").body_digest());
        let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(tag, format!("\"{hello}\""));
    }

    fn page(tenant: &str) -> PageKey {
        let path = CanonicalPath::stored("/a").unwrap();
        PageKey::new(Tenant::parse(tenant).unwrap(), path)
    }

    const SEVERAL: KeyLayout = KeyLayout { single_tenant: false, raw_keys: false };
    const SINGLE: KeyLayout = KeyLayout { single_tenant: true, raw_keys: false };

    #[test]
    fn own_objects_are_found_by_plain_key_and_by_address() {
        let page = page("acme");
        let key = object_key(&page, &Version::next(5, None, None, 9));
        let hash = page.hash();
        assert_eq!(key, format!("acme/{hash}/0000000000000005-00000009"));
        assert_eq!(locate(&key, "pages", page.tenant(), SEVERAL), Ok(key.as_str()));
        let address = format!("s3://pages/{key}");
        assert_eq!(locate(&address, "pages", page.tenant(), SEVERAL), Ok(key.as_str()));
    }

    #[test]
    fn objects_of_others_are_refused() {
        use PointerError::*;
        let cases = [
            ("globex/h/v", OtherTenant),
            ("acme2/h/v", OtherTenant),
            ("acme", OtherTenant),
            ("s3://other/acme/h/v", OtherBucket),
            ("s3://pages.evil/acme/h/v", OtherBucket),
            ("s3://pages", Malformed),
            ("s3:///acme/h/v", OtherBucket),
            ("S3://pages/acme/h/v", Malformed),
            ("https://pages/acme/h", Malformed),
            ("", Malformed),
            ("/acme/h/v", Malformed),
            ("acme/", Malformed),
            ("acme/../globex/h", Malformed),
            ("acme/./h", Malformed),
            ("acme//h", Malformed),
            ("acme\\h", Malformed),
            ("acme/h\n", Malformed),
        ];
        let acme = Tenant::parse("acme").unwrap();
        for (s3_key, expected) in cases {
            assert_eq!(locate(s3_key, "pages", &acme, SEVERAL), Err(expected), "{s3_key:?}");
        }
        let longest = format!("acme/{}", "x".repeat(1019));
        assert!(locate(&longest, "pages", &acme, SEVERAL).is_ok());
        let long = format!("{longest}x");
        assert_eq!(locate(&long, "pages", &acme, SEVERAL), Err(Malformed));
    }

    #[test]
    fn single_tenant_table_reads_foreign_object_keys() {
        let acme = Tenant::parse("acme").unwrap();
        assert_eq!(locate("html/abc.html", "pages", &acme, SINGLE), Ok("html/abc.html"));
        let address = locate("s3://other/html/abc.html", "pages", &acme, SINGLE);
        assert_eq!(address, Err(PointerError::OtherBucket));
    }

    proptest! {
        #[test]
        fn no_pointer_leads_out_of_the_tenant(
            s3_key in "(s3://)?(pages/|other/)?(acme|acm|globex|\\.\\.|)?[/a\\.]{0,4}(globex)?[a-z/]{0,4}",
        ) {
            let acme = Tenant::parse("acme").unwrap();
            if let Ok(key) = locate(&s3_key, "pages", &acme, SEVERAL) {
                prop_assert!(key.starts_with("acme/"));
                prop_assert!(key.split('/').all(|part| part != ".."));
            }
        }

        #[test]
        fn attempts_and_tenants_never_share_an_object(left: u32, right: u32, ms in 0..9_999u64) {
            let version = |random| Version::next(ms, None, None, random);
            let key = |tenant, random| object_key(&page(tenant), &version(random));
            prop_assert_eq!(key("acme", left) == key("acme", right), left == right);
            prop_assert_ne!(key("acme", left), key("globex", left));
        }
    }
}

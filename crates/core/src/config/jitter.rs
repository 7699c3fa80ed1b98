//! Jitter of a page's life.

use crate::domain::digest::FieldDigest;
use crate::domain::page_key::PageHash;
use crate::domain::version::Version;

/// The life of one version: `seconds`, shortened by up to a tenth, so that pages which were
/// published together do not all expire together. At least one second, never longer than the route
/// says, and the same for the same page and version, so that a repeated commit writes the same row.
pub fn jittered(seconds: u64, page: PageHash, version: &Version) -> u64 {
    let digest = FieldDigest::new("everfresh-jitter")
        .field(page.to_string().as_bytes())
        .field(version.to_string().as_bytes())
        .finish();
    let cut = digest.leading_u64() % (seconds / 10 + 1);
    (seconds - cut).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::page_key::CanonicalPath;
    use proptest::prelude::*;

    fn page(path: &str) -> PageHash {
        PageHash::of(&CanonicalPath::stored(path).unwrap())
    }

    #[test]
    fn lives_of_pages_published_together_are_spread() {
        let version = Version::next(1, None, None, 1);
        let lives: std::collections::BTreeSet<u64> =
            (0..1000).map(|n| jittered(600, page(&format!("/{n}")), &version)).collect();
        assert_eq!(lives.len(), 61);
        assert_eq!((lives.first(), lives.last()), (Some(&540), Some(&600)));
    }

    proptest! {
        #[test]
        fn life_is_within_a_tenth_and_repeatable(seconds in 1..100_000_000u64, ms in 0..9_999u64, random: u32) {
            let version = Version::next(ms, None, None, random);
            let life = jittered(seconds, page("/a"), &version);
            prop_assert!(life >= 1 && life <= seconds && life >= seconds - seconds / 10);
            prop_assert_eq!(life, jittered(seconds, page("/a"), &version));
        }
    }
}

//! Version ids: the order of a page's commits.

use std::fmt;
use std::str::FromStr;

use crate::domain::seconds;

/// One commit of a page's META. Written `<milliseconds, 16 digits>-<8 hex digits>`, so that text
/// order is version order.
///
/// Versions order commits and nothing else. Coverage compares `source_ms`, which is never raised to
/// make a version grow: that would claim to have seen changes that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    ms: u64,
    random: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a version id: expected 16 digits, `-` and 8 lower-case hex digits")]
pub struct VersionError;

const DIGITS: usize = 16;

/// Later times are cut to this: a billion versions still fit above it into 16 digits.
const LATEST_MS: u64 = 10u64.pow(16) - 10u64.pow(9);

/// The last millisecond in 16 digits.
const LAST_MS: u64 = 10u64.pow(16) - 1;

impl Version {
    /// The version after `previous`: greater than it whatever the clocks say (I2).
    ///
    /// `foreign_generated_at` is the `generated_at`, in seconds, of a foreign row, which has no
    /// version to grow from. `random` distinguishes two attempts that saw the same row at the same
    /// time.
    pub fn next(source_ms: u64, previous: Option<&Version>, foreign_generated_at: Option<u64>, random: u32) -> Self {
        let after_foreign = foreign_generated_at.map_or(0, seconds::to_ms);
        let by_clock = Self { ms: source_ms.max(after_foreign).min(LATEST_MS), random };
        match previous {
            Some(previous) if by_clock.ms <= previous.ms => previous.successor(random),
            Some(_) | None => by_clock,
        }
    }

    /// In the last millisecond the random part counts on. The very last version has no successor:
    /// callers check [`Version::is_last`].
    fn successor(&self, random: u32) -> Self {
        if self.ms < LAST_MS {
            return Self { ms: self.ms + 1, random };
        }
        Self { ms: LAST_MS, random: self.random.saturating_add(1) }
    }

    /// Whether no version can follow. No worker gets here by itself: it would take a billion
    /// commits after the end of time.
    pub fn is_last(&self) -> bool {
        *self == Self { ms: LAST_MS, random: u32::MAX }
    }

    /// Its place in time, roughly: at least the moment its render began.
    pub fn ms(&self) -> u64 {
        self.ms
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0width$}-{:08x}", self.ms, self.random, width = DIGITS)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    /// Reads exactly what [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let (ms, random) = text.split_once('-').ok_or(VersionError)?;
        let all = |text: &str, allowed: fn(&u8) -> bool| text.as_bytes().iter().all(allowed);
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if ms.len() != DIGITS || !all(ms, u8::is_ascii_digit) {
            return Err(VersionError);
        }
        if random.len() != 8 || !all(random, is_hex) {
            return Err(VersionError);
        }
        Ok(Self {
            ms: ms.parse().map_err(|_| VersionError)?,
            random: u32::from_str_radix(random, 16).map_err(|_| VersionError)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_763_270_000_123;

    #[test]
    fn first_version_is_the_time_of_its_source() {
        let version = Version::next(NOW, None, None, 0xbeef);
        assert_eq!(version.to_string(), "0001763270000123-0000beef");
    }

    #[test]
    fn version_grows_when_the_clock_jumped_back() {
        let previous = Version::next(NOW, None, None, u32::MAX);
        let version = Version::next(NOW - 60_000, Some(&previous), None, 0);
        assert_eq!(version.ms(), NOW + 1);
        assert!(version > previous);
    }

    #[test]
    fn version_after_a_foreign_row_is_not_before_it() {
        let generated_at = NOW / 1000 + 30;
        let version = Version::next(NOW, None, Some(generated_at), 0);
        assert_eq!(version.ms(), generated_at * 1000);
        assert_eq!(Version::next(NOW, None, Some(1), 0).ms(), NOW);
    }

    #[test]
    fn versions_grow_after_a_foreign_row_in_milliseconds() {
        for generated_at in [NOW, u64::MAX] {
            let first = Version::next(NOW, None, Some(generated_at), 7);
            let second = Version::next(NOW, Some(&first), None, 0);
            assert!(second > first);
            assert!(second.to_string() > first.to_string());
        }
    }

    #[test]
    fn version_at_the_end_of_the_digits_has_a_readable_successor() {
        for text in ["9999999999999998-ffffffff", "9999999999999999-00000000", "9999999999999999-fffffffe"] {
            let previous: Version = text.parse().unwrap();
            let next = Version::next(NOW, Some(&previous), Some(NOW), 7);
            assert!(next > previous, "{text}");
            assert!(!previous.is_last());
            assert_eq!(next.to_string().parse::<Version>(), Ok(next), "{text}");
        }
        assert!("9999999999999999-ffffffff".parse::<Version>().unwrap().is_last());
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "",
            "-",
            "1763270000123-0000beef",
            "0001763270000123-beef",
            "0001763270000123-0000BEEF",
            "0001763270000123_0000beef",
            "+001763270000123-0000beef",
            "0001763270000123-+000beef",
            "0001763270000123-0000beef ",
            "0001763270000123-0000beef-1",
        ] {
            assert_eq!(text.parse::<Version>(), Err(VersionError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn versions_of_one_page_grow_under_any_clock(
            clocks in prop::collection::vec((0..=u64::MAX, any::<u32>(), prop::option::of(any::<u64>())), 1..20),
        ) {
            let mut previous: Option<Version> = None;
            for (source_ms, random, generated_at) in clocks {
                let next = Version::next(source_ms, previous.as_ref(), generated_at, random);
                if let Some(previous) = previous {
                    prop_assert!(next > previous);
                    prop_assert!(next.to_string() > previous.to_string());
                }
                prop_assert_eq!(next.to_string().parse::<Version>(), Ok(next));
                previous = Some(next);
            }
        }
    }
}

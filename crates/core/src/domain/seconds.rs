//! Conversion between milliseconds, Everfresh's own unit, and whole seconds, that of the shared
//! table.
//!
//! An expiry is rounded up when written, the current time is rounded down, and the two are compared
//! strictly. For whole seconds that gives the same result as comparing in milliseconds.

/// An expiry or a duration in whole seconds: never earlier than meant.
pub fn ceil(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

/// The current time in whole seconds.
pub fn floor(ms: u64) -> u64 {
    ms / 1000
}

/// The instant at which second `seconds` begins, in milliseconds. Saturates: foreign
/// writers may store anything.
pub fn to_ms(seconds: u64) -> u64 {
    seconds.saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comparing_in_seconds_equals_comparing_in_milliseconds(
            expires_at in 0..2_000u64,
            now_ms in 0..2_000_000u64,
        ) {
            prop_assert_eq!(expires_at > floor(now_ms), to_ms(expires_at) > now_ms);
        }

        #[test]
        fn a_written_expiry_is_never_early(ms: u64) {
            prop_assert!(to_ms(ceil(ms)) >= ms || ms > u64::MAX - 1000);
        }
    }
}

//! Random tokens and ids. Two sandboxes that start at the same moment must not draw the same ones.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

static OF_THIS_PROCESS: OnceLock<u128> = OnceLock::new();

/// Leaves only fastrand's stream, so that a simulation can repeat a run in another process. Call
/// before the first draw; never in a Lambda function.
pub fn make_predictable() {
    OF_THIS_PROCESS.get_or_init(|| 0);
}

/// 128 bits that no other process draws: fastrand's stream, which a simulation can seed, combined
/// with the operating system's random bits of this process. The stream alone is seeded by a clock,
/// which is not enough among thousands of sandboxes.
pub fn token() -> u128 {
    let own = OF_THIS_PROCESS.get_or_init(|| {
        let word = || u128::from(RandomState::new().build_hasher().finish());
        word() << 64 | word()
    });
    fastrand::u128(..) ^ own
}

/// 32 bits of the same.
pub(crate) fn number() -> u32 {
    (token() & u128::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_with_the_same_stream_draw_different_tokens() {
        fastrand::seed(7);
        let stream_alone = fastrand::u128(..);
        fastrand::seed(7);
        assert_ne!(token(), stream_alone, "combined with the bits of this process");
        assert_ne!(token(), token());
    }
}

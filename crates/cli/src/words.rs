//! Words for people: ages and shortened keys.

use std::time::Duration;

use everfresh_core::domain::seconds;

use crate::page::show::in_words;

/// How often long work says how far it is.
pub(crate) const PROGRESS: Duration = Duration::from_secs(2);

/// How long ago, for example `2 h 1 min ago`.
pub(crate) fn age(at_ms: u64, now_ms: u64) -> String {
    format!("{} ago", in_words(seconds::floor(now_ms.saturating_sub(at_ms))))
}

/// The first characters of a text that is longer than `length`.
pub(crate) fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some(_) => text.chars().take(length.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_shortened() {
        assert_eq!(shortened("order-4711", 10), "order-4711");
        assert_eq!(shortened("order-47110", 10), "order-471…");
    }
}

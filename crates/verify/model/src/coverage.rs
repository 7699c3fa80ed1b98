//! Decisions about time: whether a version covers a message, and whether a watermark makes it
//! stale.

use crate::guards::{Guard, Guards};
use crate::state::{Kind, Meta, Tick};

/// Whether the version in META covers a message, by timestamps alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// The render certainly began after the message was sent.
    Covered,
    /// The two times are closer than the clock error.
    TooClose,
    /// The render certainly began before.
    NotCovered,
}

/// Compares a version's `source_ms` with a message's sent time.
pub(crate) fn coverage(guards: Guards, meta: Option<Meta>, sent: Tick, epsilon: Tick) -> Coverage {
    let Some(source_ms) = meta.and_then(|meta| source_ms(guards, meta)) else {
        return Coverage::NotCovered;
    };
    let epsilon = if guards.on(Guard::CoverageEpsilon) { epsilon } else { 0 };
    if source_ms >= sent + epsilon {
        Coverage::Covered
    } else if source_ms < sent - epsilon {
        Coverage::NotCovered
    } else {
        Coverage::TooClose
    }
}

fn source_ms(guards: Guards, meta: Meta) -> Option<Tick> {
    if meta.kind == Kind::Foreign && !guards.on(Guard::ForeignRowCoversNothing) {
        return Some(meta.generated_at);
    }
    meta.source_ms
}

/// Whether the path watermark makes the page stale, so that the next read enqueues it.
pub(crate) fn stale(guards: Guards, meta: Option<Meta>, watermark: Option<Tick>, epsilon: Tick) -> bool {
    let Some(watermark) = watermark else {
        return false;
    };
    let distance = if guards.on(Guard::WatermarkEpsilon) { epsilon } else { 0 };
    match meta.and_then(|meta| meta.source_ms) {
        Some(source_ms) => source_ms < watermark + distance,
        None => true,
    }
}

/// The watermark that an operator writes when the operator's clock shows `now`.
pub(crate) fn watermark(guards: Guards, now: Tick, epsilon: Tick) -> Tick {
    if guards.on(Guard::WatermarkUpperBound) { now + epsilon } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::NO_VERSION;

    fn page(source_ms: Option<Tick>) -> Option<Meta> {
        Some(Meta {
            kind: Kind::Page,
            version: NO_VERSION,
            source_ms,
            generated_at: 0,
            body: 0,
            rev: 0,
            since: 0,
            era: 0,
        })
    }

    #[test]
    fn coverage_is_decided_only_beyond_epsilon() {
        let judge = |source_ms| coverage(Guards::all(), page(Some(source_ms)), 10, 2);
        assert_eq!(judge(12), Coverage::Covered);
        assert_eq!(judge(11), Coverage::TooClose);
        assert_eq!(judge(8), Coverage::TooClose);
        assert_eq!(judge(7), Coverage::NotCovered);
    }

    #[test]
    fn row_without_source_ms_covers_nothing_and_is_stale() {
        assert_eq!(coverage(Guards::all(), page(None), 0, 2), Coverage::NotCovered);
        assert!(stale(Guards::all(), page(None), Some(-5), 2));
        assert!(!stale(Guards::all(), page(None), None, 2));
    }
}

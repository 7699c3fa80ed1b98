//! The words for what a page is like, by which lists are filtered.

use everfresh_core::domain::freshness::Freshness;
use everfresh_core::ledger::PageState as Rows;

use crate::args::StateArg;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageState {
    Fresh,
    Stale,
    /// Its last attempt failed. It may be fresh all the same.
    Failing,
    Pinned,
    Bypassed,
    Purged,
    Missing,
}

/// Every state that applies. The first is the most important one: what an operator has done, then
/// what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageStates(Vec<PageState>);

impl PageStates {
    pub(crate) fn of(freshness: &Freshness, rows: &Rows) -> Self {
        // A purged page is pinned too: the word says it.
        if *freshness == Freshness::Gone {
            return Self(vec![PageState::Purged]);
        }
        let mut states = Vec::new();
        if rows.health.pinned() {
            states.push(PageState::Pinned);
        }
        if rows.health.failures > 0 {
            states.push(PageState::Failing);
        }
        states.push(match freshness {
            Freshness::Gone => PageState::Purged,
            Freshness::Bypass { .. } => PageState::Bypassed,
            Freshness::Fresh { .. } => PageState::Fresh,
            Freshness::Stale { .. } | Freshness::Expired { .. } => PageState::Stale,
            Freshness::Missing => PageState::Missing,
        });
        Self(states)
    }

    /// The first one.
    pub(crate) fn main(&self) -> &'static str {
        self.0.first().map_or("missing", |state| state.as_str())
    }

    pub(crate) fn all(&self) -> Vec<&'static str> {
        self.0.iter().map(|state| state.as_str()).collect()
    }

    pub(crate) fn match_any(&self, wanted: Option<StateArg>) -> bool {
        let Some(wanted) = wanted else { return true };
        self.0.contains(&match wanted {
            StateArg::Fresh => PageState::Fresh,
            StateArg::Stale => PageState::Stale,
            StateArg::Failing => PageState::Failing,
            StateArg::Pinned => PageState::Pinned,
            StateArg::Bypassed => PageState::Bypassed,
            StateArg::Purged => PageState::Purged,
        })
    }
}

impl PageState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Failing => "failing",
            Self::Pinned => "pinned",
            Self::Bypassed => "bypassed",
            Self::Purged => "purged",
            Self::Missing => "missing",
        }
    }
}

#[cfg(test)]
mod tests {
    use everfresh_core::domain::health::Health;

    use super::*;

    #[test]
    fn pinned_failing_page_is_in_both_lists() {
        let health = Health { failures: 2, pinned_at_ms: Some(1), ..Health::default() };
        let rows = Rows { health, ..Rows::default() };
        let states = PageStates::of(&Freshness::Fresh { until_ms: 1 }, &rows);
        assert_eq!((states.main(), states.all()), ("pinned", vec!["pinned", "failing", "fresh"]));
        for (wanted, listed) in [
            (Some(StateArg::Pinned), true),
            (Some(StateArg::Failing), true),
            (Some(StateArg::Stale), false),
            (None, true),
        ] {
            assert_eq!(states.match_any(wanted), listed, "{wanted:?}");
        }
        assert_eq!(PageStates::of(&Freshness::Gone, &rows).all(), ["purged"]);
    }
}

//! The one word for what a page is like, by which lists are filtered.

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

impl PageState {
    /// What an operator has done goes first, then what is wrong.
    pub(crate) fn of(freshness: &Freshness, rows: &Rows, _now_ms: u64) -> Self {
        match freshness {
            Freshness::Gone => Self::Purged,
            _ if rows.health.pinned() => Self::Pinned,
            _ if rows.health.failures > 0 => Self::Failing,
            Freshness::Bypass { .. } => Self::Bypassed,
            Freshness::Fresh { .. } => Self::Fresh,
            Freshness::Stale { .. } | Freshness::Expired { .. } => Self::Stale,
            Freshness::Missing => Self::Missing,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
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

    pub(crate) fn matches(self, wanted: Option<StateArg>) -> bool {
        let Some(wanted) = wanted else { return true };
        self == match wanted {
            StateArg::Fresh => Self::Fresh,
            StateArg::Stale => Self::Stale,
            StateArg::Failing => Self::Failing,
            StateArg::Pinned => Self::Pinned,
            StateArg::Bypassed => Self::Bypassed,
            StateArg::Purged => Self::Purged,
        }
    }
}

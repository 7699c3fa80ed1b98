//! Bypass: a version that says that the origin answers this page for each reader by itself.
//!
//! A page that sets a cookie, requires a log-in or is marked private must not be stored, and that
//! is no failure. The worker publishes it as a version without a body, and the serving function
//! passes the requests for it to the origin.

use crate::domain::seconds;

/// Why the origin's answer is not stored. Published content is withdrawn for each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BypassReason {
    SetCookie,
    /// `private`, or a `Cache-Control` that cannot be parsed.
    Private,
    NoStore,
    /// `no-cache`, and nothing that allows a shared cache more.
    NoCache,
    /// It varies by a header that is not part of the page's key.
    Vary,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 451.
    LegalReasons,
    /// A temporary redirect, or a permanent one to another site or to the page itself.
    Redirect,
    /// 204 and other successes without a whole page.
    NoContent,
    TooLarge,
    /// A content coding that not every reader can decode.
    Encoded,
    /// Another 4xx, where nothing is published.
    ClientError,
}

impl BypassReason {
    pub const ALL: [BypassReason; 13] = [
        BypassReason::SetCookie,
        BypassReason::Private,
        BypassReason::NoStore,
        BypassReason::NoCache,
        BypassReason::Vary,
        BypassReason::Unauthorized,
        BypassReason::Forbidden,
        BypassReason::LegalReasons,
        BypassReason::Redirect,
        BypassReason::NoContent,
        BypassReason::TooLarge,
        BypassReason::Encoded,
        BypassReason::ClientError,
    ];

    /// The word in the table, in logs and in `Cache-Status`.
    pub fn as_str(self) -> &'static str {
        match self {
            BypassReason::SetCookie => "set-cookie",
            BypassReason::Private => "private",
            BypassReason::NoStore => "no-store",
            BypassReason::NoCache => "no-cache",
            BypassReason::Vary => "vary",
            BypassReason::Unauthorized => "unauthorized",
            BypassReason::Forbidden => "forbidden",
            BypassReason::LegalReasons => "legal-reasons",
            BypassReason::Redirect => "redirect",
            BypassReason::NoContent => "no-content",
            BypassReason::TooLarge => "too-large",
            BypassReason::Encoded => "encoded",
            BypassReason::ClientError => "client-error",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// The first pause before a bypass is checked, unless the route's pages live shorter.
const FIRST_CHECK_S: u64 = 10;

/// The longest pause between two checks, before jitter.
const LONGEST_CHECK_S: u64 = 3_600;

/// The longest pause with jitter. A check that is due later comes from a broken clock.
pub const LONGEST_CHECK_MS: u64 = LONGEST_CHECK_S * 1_250;

/// What META says of a page that is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bypass {
    pub reason: BypassReason,
    /// When a reader's request enqueues a check whether the page can be stored again.
    pub check_at_ms: u64,
    /// The pause before that check. It doubles while the answer stays a bypass.
    pub check_after_s: u64,
}

impl Bypass {
    /// The bypass that is committed at `now_ms` after `previous`, on a route whose pages are fresh
    /// for `revalidate_s`. A stray cookie heals soon, and a site that is never stored costs few
    /// renders. `jitter`, any number, adds up to a quarter.
    pub fn next(reason: BypassReason, previous: Option<&Bypass>, revalidate_s: u64, now_ms: u64, jitter: u32) -> Self {
        let first_s = revalidate_s.clamp(1, FIRST_CHECK_S);
        let check_after_s = previous
            .map_or(first_s, |previous| previous.check_after_s.saturating_mul(2).clamp(first_s, LONGEST_CHECK_S));
        let pause_ms = seconds::to_ms(check_after_s);
        let pause_ms = pause_ms + u64::from(jitter) % (pause_ms / 4 + 1);
        Self { reason, check_at_ms: now_ms.saturating_add(pause_ms), check_after_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_words_are_read_back_and_distinct() {
        for reason in BypassReason::ALL {
            assert_eq!(BypassReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(BypassReason::parse("from a newer version"), None);
    }

    #[test]
    fn checks_double_from_ten_seconds_to_an_hour() {
        let mut last = None;
        let mut pauses = Vec::new();
        for _ in 0..11 {
            let bypass = Bypass::next(BypassReason::Private, last.as_ref(), 60, 1_000, 0);
            assert_eq!(bypass.check_at_ms, 1_000 + bypass.check_after_s * 1_000);
            pauses.push(bypass.check_after_s);
            last = Some(bypass);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
    }

    #[test]
    fn route_with_a_shorter_life_is_checked_sooner() {
        let next = |revalidate_s, jitter| Bypass::next(BypassReason::Vary, None, revalidate_s, 0, jitter);
        assert_eq!(next(5, 0).check_at_ms, 5_000);
        assert_eq!(next(5, 1_250).check_at_ms, 6_250);
        assert_eq!(next(5, 1_251).check_at_ms, 5_000);
        assert_eq!(next(3_600, 0).check_after_s, 10);
    }
}

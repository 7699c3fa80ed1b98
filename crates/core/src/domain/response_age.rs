//! Responses out of a cache at or before the origin.
//!
//! A response with an `Age` was made that long ago, so its render began then, and not when the
//! request was sent. If that is before a change that it must show, publishing it would complete the
//! request with content from before the change.

use crate::domain::artifact::Rendered;

/// Pause before the next attempt, if the cache does not say how long it keeps the response.
const FIRST_RETRY_MS: u64 = 5_000;
const LONGEST_RETRY_MS: u64 = 900_000;
/// Pause after an answer with which a cache has begun to renew itself.
const STALE_RETRY_MS: u64 = 2_000;
/// Between two retries, the part of the lifetime of a hit of unknown age: all retries together last
/// longer than the hit.
const HIT_PARTS: u64 = 7;

/// The age of a page that its framework keeps until it is revalidated on demand.
const YEAR_S: u64 = 31_536_000;

const TOO_MANY_REQUESTS_MS: u64 = 60_000;

/// How often a response may be too old before the request goes to the dead-letter queue.
pub const MAX_STALE_RESPONSES: u32 = 10;

/// When a response was made, by AWS's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// After the render began.
    Now,
    /// At `source_ms` or later, and after every change that it must show.
    Earlier {
        /// The moment that the version's `source_ms` may claim.
        source_ms: u64,
        /// When to render again, if the caller does not publish it.
        retry_ms: u64,
    },
    /// Before a change that it must show.
    TooEarly {
        /// When to render again.
        retry_ms: u64,
    },
}

/// Dates the response to a render that began at `began_ms`, by a clock that is off by less than ε;
/// none if the clock's error is not known.
///
/// The response must not be older than `not_before_ms`. `stale_answers` counts earlier responses
/// that were too old.
pub fn made(rendered: &Rendered, began_ms: Option<u64>, not_before_ms: u64, now_ms: u64, stale_answers: u32) -> Made {
    let Some(age_s) = age_s(rendered) else { return Made::Now };
    // Whole seconds, rounded down on the way: it may be almost one older.
    let age_ms = age_s.saturating_add(1).saturating_mul(1000);
    let retry_ms = retry_ms(rendered, age_s, not_before_ms, now_ms, stale_answers);
    match began_ms.map(|began_ms| began_ms.saturating_sub(age_ms)) {
        Some(source_ms) if source_ms >= not_before_ms => Made::Earlier { source_ms, retry_ms },
        Some(_) | None => Made::TooEarly { retry_ms },
    }
}

/// When the cache no longer has this response, by its lifetime; else after a backoff.
fn retry_ms(rendered: &Rendered, age_s: u64, not_before_ms: u64, now_ms: u64, stale_answers: u32) -> u64 {
    let kept_ms = lifetime_s(rendered).map(|lifetime_s| lifetime_s.saturating_sub(age_s).saturating_mul(1000));
    let backoff_ms = FIRST_RETRY_MS << stale_answers.min(20);
    let wait_ms = match list(rendered, "x-nextjs-cache").next() {
        // It has begun to render, and keeps the result for no longer than its lifetime.
        Some("STALE") => STALE_RETRY_MS,
        // How much of its lifetime is over is not known.
        Some("HIT") => {
            (next_lifetime_s(rendered).saturating_mul(1000) / HIT_PARTS).clamp(FIRST_RETRY_MS, LONGEST_RETRY_MS)
        }
        Some(_) | None => kept_ms.unwrap_or(backoff_ms).clamp(FIRST_RETRY_MS, LONGEST_RETRY_MS),
    };
    // From this moment on a response without an age is new enough.
    let soonest_ms = not_before_ms.saturating_add(2_000).min(now_ms.saturating_add(LONGEST_RETRY_MS));
    now_ms.saturating_add(wait_ms).max(soonest_ms)
}

/// For how long the origin wants to be left alone, by its `Retry-After`. After a 429 at least a
/// minute: its limit is for all pages, and those that wait would use up their attempts in turn.
pub fn retry_after_ms(rendered: &Rendered) -> Option<u64> {
    let said = list(rendered, "retry-after").find_map(number);
    let said_ms = said.map(|seconds| seconds.saturating_mul(1000).min(LONGEST_RETRY_MS));
    said_ms.max((rendered.status == 429).then_some(TOO_MANY_REQUESTS_MS))
}

/// How old the response is, in seconds; zero if it was made now. With an `Age` that is no number
/// its lifetime may be over.
pub fn age_seconds(rendered: &Rendered) -> u64 {
    let mut ages = list(rendered, "age").map(number);
    match (ages.next(), ages.next()) {
        (None, _) => 0,
        (Some(age), None) => age.unwrap_or(u64::MAX),
        (Some(_), Some(_)) => u64::MAX,
    }
}

/// The greatest `Age` of the response, or what its framework's own cache says. A value that is no
/// number is ignored.
fn age_s(rendered: &Rendered) -> Option<u64> {
    list(rendered, "age").filter_map(number).chain(age_in_next(rendered)).max()
}

/// Next.js keeps pages itself, sends no `Age`, and does not obey a request's `Cache-Control`. A hit
/// is no older than its own lifetime, and a stale answer is older. So a hit of a page that only
/// `revalidatePath` renews, with a lifetime of a year, may be a year old: it completes no request
/// that knows of a change.
fn age_in_next(rendered: &Rendered) -> Option<u64> {
    match list(rendered, "x-nextjs-cache").next()? {
        "HIT" => Some(next_lifetime_s(rendered)),
        "STALE" => Some(next_lifetime_s(rendered).saturating_add(YEAR_S)),
        _ => None,
    }
}

/// How long Next.js keeps a page: its `s-maxage`. A `max-age` is what an app's own headers say to
/// browsers.
fn next_lifetime_s(rendered: &Rendered) -> u64 {
    directive_s(rendered, "s-maxage").unwrap_or(YEAR_S)
}

/// How long a shared cache keeps it, by its `Cache-Control`.
fn lifetime_s(rendered: &Rendered) -> Option<u64> {
    directive_s(rendered, "s-maxage").or_else(|| directive_s(rendered, "max-age"))
}

fn directive_s(rendered: &Rendered, wanted: &str) -> Option<u64> {
    let named = list(rendered, "cache-control").filter_map(|directive| directive.split_once('='));
    named.filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted)).find_map(|(_, value)| number(value))
}

fn list<'r>(rendered: &'r Rendered, name: &'r str) -> impl Iterator<Item = &'r str> {
    let named = rendered.headers.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name));
    named.flat_map(|(_, value)| value.split(',')).map(str::trim)
}

/// A number of seconds; one that is too large is very large.
fn number(text: &str) -> Option<u64> {
    let digits = text.trim().trim_matches('"');
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: u64 = 1_763_270_000_000;

    fn answer(headers: &[(&str, &str)]) -> Rendered {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Rendered { status: 200, headers, body: bytes::Bytes::new(), declared_bytes: None }
    }

    fn judged(headers: &[(&str, &str)], not_before_ms: u64) -> Made {
        made(&answer(headers), Some(BEGAN), not_before_ms, BEGAN + 100, 0)
    }

    fn source(made: Made) -> Option<u64> {
        match made {
            Made::Earlier { source_ms, .. } => Some(source_ms),
            Made::Now | Made::TooEarly { .. } => None,
        }
    }

    #[test]
    fn response_without_age_was_made_now() {
        assert_eq!(judged(&[("cache-control", "s-maxage=60")], u64::MAX), Made::Now);
        for age in ["", "-1", "soon", "1.5", "+3", "0x10"] {
            assert_eq!(judged(&[("age", age)], u64::MAX), Made::Now, "{age:?}");
        }
    }

    #[test]
    fn age_that_is_no_number_is_beyond_any_lifetime() {
        assert_eq!(age_seconds(&answer(&[])), 0);
        assert_eq!(age_seconds(&answer(&[("Age", "7")])), 7);
        for ages in [&["abc"][..], &["-1"], &["7.0"], &["0, 0"], &["7", "0"]] {
            let headers: Vec<_> = ages.iter().map(|age| ("age", *age)).collect();
            assert_eq!(age_seconds(&answer(&headers)), u64::MAX, "{ages:?}");
        }
    }

    #[test]
    fn age_is_rounded_up_by_a_second() {
        for (age, source_ms) in [("0", BEGAN - 1_000), ("59", BEGAN - 60_000), ("3, 59", BEGAN - 60_000)] {
            assert_eq!(source(judged(&[("Age", age)], source_ms)), Some(source_ms), "{age}");
            assert!(matches!(judged(&[("Age", age)], source_ms + 1), Made::TooEarly { .. }), "{age}");
        }
        let two = [("age", "3"), ("age", "59")];
        assert_eq!(source(judged(&two, 0)), Some(BEGAN - 60_000));
        assert_eq!(source(judged(&[("age", "99999999999999999999999")], 0)), Some(0));
    }

    #[test]
    fn hit_of_next_may_be_as_old_as_its_lifetime() {
        for (lifetime, age_s) in [
            ("s-maxage=5, stale-while-revalidate=31535995", 5),
            ("s-maxage=7200", 7_200),
            ("s-maxage=31536000", YEAR_S),
            // Set by the app: its cache may keep the page for longer.
            ("public, max-age=0, must-revalidate", YEAR_S),
        ] {
            let lifetime = ("cache-control", lifetime);
            let hit = [lifetime, ("x-nextjs-cache", "HIT")];
            assert_eq!(source(judged(&hit, 0)), Some(BEGAN - (age_s + 1) * 1_000), "{lifetime:?}");
            assert!(matches!(judged(&hit, BEGAN), Made::TooEarly { .. }), "{lifetime:?}");
            let stale = judged(&[lifetime, ("x-nextjs-cache", "STALE")], BEGAN - age_s * 1_000);
            assert!(matches!(stale, Made::TooEarly { retry_ms } if retry_ms == BEGAN + 100 + STALE_RETRY_MS));
            for word in ["MISS", "REVALIDATED", "PRERENDER"] {
                assert_eq!(judged(&[lifetime, ("x-nextjs-cache", word)], u64::MAX), Made::Now, "{word}");
            }
        }
        assert_eq!(source(judged(&[("x-nextjs-cache", "HIT")], 0)), Some(BEGAN - (YEAR_S + 1) * 1_000));
    }

    #[test]
    fn retries_of_a_hit_outlast_its_lifetime_of_two_hours() {
        for lifetime_s in [1, 60, 600, 3_600, 7_200] {
            let lifetime = format!("s-maxage={lifetime_s}");
            let hit = answer(&[("cache-control", &lifetime), ("x-nextjs-cache", "HIT")]);
            let mut now_ms = BEGAN;
            for stale_answers in 1..MAX_STALE_RESPONSES {
                let Made::TooEarly { retry_ms } = made(&hit, Some(BEGAN), BEGAN, now_ms, stale_answers - 1) else {
                    panic!("it may be older")
                };
                now_ms = retry_ms;
            }
            assert!(now_ms > BEGAN + (lifetime_s + 1) * 1_000 + 2_000, "{lifetime_s}");
        }
    }

    #[test]
    fn response_with_age_is_too_early_for_an_unbounded_clock() {
        let made = made(&answer(&[("age", "0")]), None, 0, BEGAN, 0);
        assert!(matches!(made, Made::TooEarly { .. }));
    }

    #[test]
    fn retry_comes_when_the_cached_response_has_expired() {
        let retry = |headers: &[(&str, &str)]| match judged(headers, BEGAN) {
            Made::TooEarly { retry_ms } => retry_ms - BEGAN - 100,
            Made::Now | Made::Earlier { .. } => panic!("it is new enough"),
        };
        let Made::Earlier { retry_ms, .. } = judged(&[("age", "50"), ("cache-control", "max-age=60")], 0) else {
            panic!("it is too old")
        };
        assert_eq!(retry_ms - BEGAN - 100, 10_000, "also if the caller does not publish it");
        assert_eq!(retry(&[("age", "50"), ("cache-control", "public, s-maxage=60, max-age=5")]), 10_000);
        assert_eq!(retry(&[("age", "50"), ("cache-control", "max-age=60")]), 10_000);
        assert_eq!(retry(&[("age", "50"), ("cache-control", "max-age=60000")]), LONGEST_RETRY_MS);
        assert_eq!(retry(&[("age", "70"), ("cache-control", "max-age=60")]), FIRST_RETRY_MS, "stale already");
        assert_eq!(retry(&[("age", "50")]), FIRST_RETRY_MS);
    }

    #[test]
    fn retries_without_a_lifetime_back_off() {
        let rendered = answer(&[("age", "50")]);
        let mut last_ms = 0;
        for stale_answers in 0..40 {
            let Made::TooEarly { retry_ms } = made(&rendered, Some(BEGAN), BEGAN, BEGAN, stale_answers) else {
                panic!()
            };
            assert!(retry_ms >= last_ms);
            last_ms = retry_ms;
        }
        assert_eq!(last_ms, BEGAN + LONGEST_RETRY_MS);
    }
}

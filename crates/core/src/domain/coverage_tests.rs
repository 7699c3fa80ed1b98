use super::*;
use crate::domain::freshness::Why;
use proptest::prelude::*;

const SENT: u64 = 1_763_270_000_000;
const EPSILON: u64 = 2_000;
const POLICY: Policy = Policy { deploy: 7, max_stale_seconds: None, epsilon_ms: EPSILON };
const TOO_CLOSE: Coverage = Coverage::TooClose { until_ms: SENT + EPSILON };

const ALL_FRESHNESS: [Freshness; 7] = [
    Freshness::Fresh { until_ms: u64::MAX },
    Freshness::Stale { why: Why::Age },
    Freshness::Expired { why: Why::Age },
    Freshness::Missing,
    Freshness::Gone,
    Freshness::Bypass { due: None },
    Freshness::Bypass { due: Some(Why::Age) },
];

fn query(reason: Reason) -> CoverageQuery {
    CoverageQuery { reason, sent_ms: SENT }
}

fn meta(source_ms: Option<u64>) -> Meta {
    Meta { source_ms, deploy: Some(7), ..Meta::default() }
}

fn changed_at(source_ms: u64, now_ms: u64) -> Coverage {
    let meta = meta(Some(source_ms));
    coverage(&query(Reason::Changed), Some(&meta), ALL_FRESHNESS[0], &POLICY, now_ms)
}

#[test]
fn changed_request_has_three_results_with_exact_borders() {
    let waiting = SENT + EPSILON - 1;
    let waited = SENT + EPSILON;
    let table = [
        (SENT - EPSILON - 1, Coverage::NotCovered, Coverage::NotCovered),
        (SENT - EPSILON, TOO_CLOSE, Coverage::NotCovered),
        (SENT, TOO_CLOSE, Coverage::NotCovered),
        (SENT + EPSILON - 1, TOO_CLOSE, Coverage::NotCovered),
        (SENT + EPSILON, Coverage::Covered, Coverage::Covered),
    ];
    for (source_ms, while_waiting, after_waiting) in table {
        assert_eq!(changed_at(source_ms, waiting), while_waiting, "{source_ms}");
        assert_eq!(changed_at(source_ms, waited), after_waiting, "{source_ms}");
    }
}

#[test]
fn freshness_does_not_decide_a_changed_request() {
    for freshness in ALL_FRESHNESS {
        let judge =
            |source_ms| coverage(&query(Reason::Changed), Some(&meta(Some(source_ms))), freshness, &POLICY, SENT);
        assert_eq!(judge(0), Coverage::NotCovered);
        assert_eq!(judge(SENT + EPSILON), Coverage::Covered);
    }
}

#[test]
fn row_without_source_covers_no_changed_request() {
    for row in [None, Some(meta(None))] {
        let judged = coverage(&query(Reason::Changed), row.as_ref(), ALL_FRESHNESS[0], &POLICY, u64::MAX);
        assert_eq!(judged, Coverage::NotCovered);
    }
}

#[test]
fn source_in_the_future_covers_no_request() {
    let now_ms = SENT + 10_000;
    assert_eq!(changed_at(now_ms + 2 * EPSILON, now_ms), Coverage::Covered);
    assert_eq!(changed_at(now_ms + 2 * EPSILON + 1, now_ms), Coverage::NotCovered);
    let about_to_end = Freshness::Fresh { until_ms: now_ms + 1 };
    let meta = meta(Some(now_ms + 2 * EPSILON + 1));
    assert_eq!(coverage(&query(Reason::Expired), Some(&meta), about_to_end, &POLICY, now_ms), Coverage::NotCovered);
}

#[test]
fn expired_request_is_covered_by_a_fresh_or_purged_page() {
    for freshness in ALL_FRESHNESS {
        let judged = coverage(&query(Reason::Expired), Some(&meta(None)), freshness, &POLICY, SENT);
        let expected = matches!(freshness, Freshness::Fresh { .. } | Freshness::Gone | Freshness::Bypass { due: None });
        assert_eq!(judged == Coverage::Covered, expected, "{freshness:?}");
        assert!(!matches!(judged, Coverage::TooClose { .. }));
    }
}

#[test]
fn prewarm_is_covered_by_a_fresh_page_of_this_deployment() {
    for freshness in ALL_FRESHNESS {
        for deploy in [None, Some(6), Some(7), Some(8)] {
            let meta = Meta { deploy, ..meta(None) };
            let judged = coverage(&query(Reason::Prewarm), Some(&meta), freshness, &POLICY, SENT);
            let current = deploy >= Some(7);
            let expected = match freshness {
                Freshness::Fresh { .. } => current,
                Freshness::Gone => true,
                Freshness::Bypass { due: None } => current,
                Freshness::Stale { .. }
                | Freshness::Expired { .. }
                | Freshness::Missing
                | Freshness::Bypass { due: Some(_) } => false,
            };
            assert_eq!(judged == Coverage::Covered, expected, "{freshness:?} {deploy:?}");
        }
    }
}

#[test]
fn page_about_to_expire_covers_only_requests_from_before_its_render() {
    let now_ms = SENT + 10;
    for (until_ms, source_ms, expected) in [
        (now_ms + EPSILON + 1, None, true),
        (now_ms + EPSILON, None, false),
        (now_ms + 1, Some(SENT - 1), false),
        (now_ms + 1, Some(SENT), true),
    ] {
        let fresh = Freshness::Fresh { until_ms };
        let judged = coverage(&query(Reason::Expired), Some(&meta(source_ms)), fresh, &POLICY, now_ms);
        assert_eq!(judged == Coverage::Covered, expected, "{until_ms} {source_ms:?}");
    }
}

/// What one page costs when requests come one after the other, each with its own worker and clock
/// error.
///
/// Renders take no time and commit at once; a request that is too close comes back after its delay.
fn renders(sent: &[u64], errors_ms: &[i64]) -> u32 {
    let mut published: Option<Meta> = None;
    let mut renders = 0;
    let mut waiting: Vec<(u64, usize)> = sent.iter().copied().zip(0..).collect();
    while let Some(next) = waiting.iter().copied().min() {
        waiting.retain(|other| *other != next);
        let (true_now_ms, index) = next;
        let error_ms = errors_ms[index % errors_ms.len()];
        let now_ms = true_now_ms.checked_add_signed(error_ms).unwrap();
        let query = CoverageQuery { sent_ms: sent[index], ..query(Reason::Changed) };
        match coverage(&query, published.as_ref(), Freshness::Missing, &POLICY, now_ms) {
            Coverage::Covered => {}
            Coverage::TooClose { until_ms } => {
                let delay_s = until_ms.saturating_sub(now_ms).div_ceil(1000).max(1);
                waiting.push((true_now_ms + delay_s * 1000, index));
            }
            Coverage::NotCovered => {
                renders += 1;
                published = Some(meta(Some(now_ms.max(sent[index]))));
            }
        }
    }
    renders
}

#[test]
fn hundred_requests_at_once_cost_at_most_two_renders() {
    assert_eq!(renders(&[SENT; 100], &[0]), 2);
    assert_eq!(renders(&[SENT], &[0]), 1);
}

fn rank(coverage: Coverage) -> u8 {
    match coverage {
        Coverage::NotCovered => 0,
        Coverage::TooClose { .. } => 1,
        Coverage::Covered => 2,
    }
}

proptest! {
    #[test]
    fn later_source_never_covers_less_unless_in_the_future(
        source_ms in SENT - 5_000..SENT + 5_000,
        later_ms in 0..5_000u64,
        now_ms in SENT - 5_000..SENT + 5_000,
    ) {
        prop_assume!(source_ms + later_ms <= now_ms + 2 * EPSILON);
        let (earlier, later) = (changed_at(source_ms, now_ms), changed_at(source_ms + later_ms, now_ms));
        prop_assert!(rank(earlier) <= rank(later));
    }

    #[test]
    fn render_that_may_have_begun_before_the_message_covers_nothing(
        began_ms in SENT - 5_000..SENT + 5_000,
        error_ms in -1_999..2_000i64,
        now_ms in SENT - 5_000..SENT + 50_000,
    ) {
        let source_ms = began_ms.checked_add_signed(error_ms).unwrap();
        if changed_at(source_ms, now_ms) == Coverage::Covered {
            prop_assert!(began_ms > SENT);
        }
    }

    #[test]
    fn render_two_errors_after_the_message_covers_it(
        lead_ms in 2 * EPSILON..10_000,
        error_ms in -1_999..2_000i64,
    ) {
        let source_ms = (SENT + lead_ms).checked_add_signed(error_ms).unwrap();
        prop_assert_eq!(changed_at(source_ms, source_ms), Coverage::Covered);
    }

    #[test]
    fn render_after_waiting_begins_after_the_message_was_sent(
        source_ms in SENT - 2_000..SENT + 2_000,
        error_ms in -1_999..2_000i64,
        wait_ms in 0..10_000u64,
    ) {
        let now_ms = SENT + wait_ms;
        if changed_at(source_ms, now_ms) == Coverage::NotCovered {
            prop_assert!(now_ms.checked_add_signed(-error_ms).unwrap() > SENT);
        }
    }

    #[test]
    fn waiting_has_an_end(source_ms: u64, sent_ms in 0..u64::MAX / 2, now_ms: u64) {
        let query = CoverageQuery { sent_ms, ..query(Reason::Changed) };
        let meta = meta(Some(source_ms));
        let judge = |now_ms| coverage(&query, Some(&meta), Freshness::Missing, &POLICY, now_ms);
        if let Coverage::TooClose { until_ms } = judge(now_ms) {
            prop_assert!(until_ms > now_ms);
            prop_assert_eq!(judge(until_ms), Coverage::NotCovered);
        }
    }

    #[test]
    fn simultaneous_requests_cost_at_most_two_renders_within_the_clock_error(
        count in 1..60usize,
        errors_ms in prop::collection::vec(-1_999..2_000i64, 1..10),
    ) {
        prop_assert!(renders(&vec![SENT; count], &errors_ms) <= 2);
    }
}

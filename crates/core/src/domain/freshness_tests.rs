use super::*;
use crate::domain::bypass::BypassReason;
use crate::domain::invalidations::Watermark;
use crate::domain::version::Version;
use proptest::prelude::*;

/// A whole second, so that seconds and milliseconds are easy to compare.
const NOW: u64 = 1_763_270_000_000;
const POLICY: Policy = Policy { deploy: 7, max_stale_seconds: Some(3600), epsilon_ms: 2_000 };

/// A page of ours, generated `age_s` seconds ago, fresh for a minute, rendered within 500 ms.
fn page(age_s: u64) -> Meta {
    let source_ms = NOW - age_s * 1000 - 500;
    Meta {
        s3_key: "acme/h/v".into(),
        generated_at: NOW / 1000 - age_s,
        revalidate_seconds: 60,
        version: Some(Version::next(source_ms, None, None, 0)),
        source_ms: Some(source_ms),
        deploy: Some(7),
        ..Meta::default()
    }
}

/// The same as a foreign writer would write it.
fn foreign(age_s: u64) -> Meta {
    let ours = page(age_s);
    Meta { version: None, source_ms: None, deploy: None, ..ours }
}

fn judge(meta: &Meta, health: &Health, watermark_ms: Option<u64>) -> Freshness {
    let invalidations = Invalidations { epoch_ms: watermark_ms, watermark_ms, hard_ms: None };
    freshness(Some(meta), health, &invalidations, &POLICY, NOW)
}

fn plain(meta: &Meta) -> Freshness {
    judge(meta, &Health::default(), None)
}

fn by_path(meta: &Meta, watermark_ms: u64) -> Freshness {
    let health = Health { path_watermark_ms: Some(watermark_ms), ..Health::default() };
    judge(meta, &health, None)
}

fn by_tag(meta: &Meta, watermark_ms: u64) -> Freshness {
    judge(meta, &Health::default(), Some(watermark_ms))
}

fn pinned() -> Health {
    Health { pinned_at_ms: Some(1), ..Health::default() }
}

const INVALIDATED: Freshness = Freshness::Stale { why: Why::Invalidated };
const AGED: Freshness = Freshness::Stale { why: Why::Age };

#[test]
fn hard_invalidation_expires_older_versions_only() {
    let began_ms = page(10).source_ms.unwrap();
    let judged = |at_ms: u64, pinned_at_ms: Option<u64>| {
        let watermark = Watermark { at_ms, hard_ms: Some(at_ms) };
        let by_path =
            Health { path_watermark_ms: Some(at_ms), path_hard_ms: Some(at_ms), pinned_at_ms, ..Health::default() };
        let by_tag = Invalidations::new(Some(at_ms), [watermark]);
        let pinned = Health { pinned_at_ms, ..Health::default() };
        [
            freshness(Some(&page(10)), &by_path, &Invalidations::default(), &POLICY, NOW),
            freshness(Some(&page(10)), &pinned, &by_tag, &POLICY, NOW),
        ]
    };
    let expired = Freshness::Expired { why: Why::InvalidatedHard };
    assert_eq!(judged(began_ms - POLICY.epsilon_ms + 1, None), [expired; 2]);
    assert!(judged(began_ms - POLICY.epsilon_ms, None).iter().all(Freshness::satisfies));
    assert!(judged(NOW, Some(1)).iter().all(Freshness::satisfies), "an operator chose the pinned version");
    // A later soft invalidation leaves the version expired; an older hard one leaves it stale.
    let soft =
        Health { path_watermark_ms: Some(NOW), path_hard_ms: Some(began_ms - POLICY.epsilon_ms), ..Health::default() };
    assert_eq!(judge(&page(10), &soft, None), INVALIDATED);
}

#[test]
fn page_without_a_row_is_missing() {
    let none = Invalidations::default();
    assert_eq!(freshness(None, &pinned(), &none, &POLICY, NOW), Freshness::Missing);
}

#[test]
fn age_alone_decides_to_the_millisecond() {
    let at =
        |meta: &Meta, now_ms| freshness(Some(meta), &Health::default(), &Invalidations::default(), &POLICY, now_ms);
    let meta = page(0);
    let end = NOW + 60_000;
    assert_eq!(at(&meta, NOW), Freshness::Fresh { until_ms: end });
    assert_eq!(at(&meta, end - 1), Freshness::Fresh { until_ms: end });
    assert_eq!(at(&meta, end), AGED);
    assert_eq!(at(&meta, end + 3_600_000 - 1), AGED);
    assert_eq!(at(&meta, end + 3_600_000), Freshness::Expired { why: Why::Age });
}

#[test]
fn without_max_stale_nothing_expires() {
    let policy = Policy { max_stale_seconds: None, ..POLICY };
    let none = Invalidations::default();
    let meta = page(10_000_000);
    assert_eq!(freshness(Some(&meta), &Health::default(), &none, &policy, NOW), AGED);
}

#[test]
fn ttl_in_the_past_does_not_matter() {
    let meta = Meta { ttl: Some(1), ..page(0) };
    assert_eq!(plain(&meta), plain(&page(0)));
}

#[test]
fn path_watermark_is_compared_with_the_start_of_the_render() {
    let meta = page(10);
    let source_ms = meta.source_ms.unwrap();
    assert!(matches!(by_path(&meta, source_ms - 2_000), Freshness::Fresh { .. }));
    assert_eq!(by_path(&meta, source_ms - 1_999), INVALIDATED);
}

#[test]
fn tag_watermark_within_clock_error_of_the_source_is_not_trusted() {
    let meta = page(10);
    let source_ms = meta.source_ms.unwrap();
    assert!(matches!(by_tag(&meta, source_ms - 2_000), Freshness::Fresh { .. }));
    assert_eq!(by_tag(&meta, source_ms - 1_999), INVALIDATED);
    assert_eq!(by_tag(&meta, source_ms + 5_000), INVALIDATED);
}

#[test]
fn source_in_the_future_outlives_no_invalidation() {
    let meta = Meta { source_ms: Some(NOW + 4_001), ..page(10) };
    assert_eq!(by_tag(&meta, NOW - 60_000), INVALIDATED);
    assert!(needs_watermarks(&meta, Some(NOW - 60_000), &POLICY, NOW));
}

#[test]
fn epoch_newer_than_the_page_needs_its_watermarks() {
    let meta = page(10);
    let source_ms = meta.source_ms.unwrap();
    assert!(!needs_watermarks(&meta, None, &POLICY, NOW));
    assert!(!needs_watermarks(&meta, Some(source_ms - 2_000), &POLICY, NOW));
    assert!(needs_watermarks(&meta, Some(source_ms - 1_999), &POLICY, NOW));
    let others = Invalidations { epoch_ms: Some(NOW), ..Invalidations::default() };
    let judged = freshness(Some(&meta), &Health::default(), &others, &POLICY, NOW);
    assert!(matches!(judged, Freshness::Fresh { .. }));
}

#[test]
fn foreign_row_counts_if_its_render_surely_followed_the_watermark() {
    let meta = foreign(0);
    let began_ms = NOW - UNKNOWN_RENDER_MS;
    assert!(matches!(by_path(&meta, began_ms - 2_000), Freshness::Fresh { .. }));
    assert_eq!(by_path(&meta, began_ms - 1_999), INVALIDATED);
    assert_eq!(by_tag(&meta, began_ms), INVALIDATED);
    assert_eq!(by_tag(&meta, NOW - 1_000), INVALIDATED);
    assert!(matches!(plain(&meta), Freshness::Fresh { .. }));
}

#[test]
fn version_without_source_is_treated_like_a_foreign_row() {
    let meta = Meta { source_ms: None, ..page(0) };
    assert!(!meta.is_foreign());
    assert_eq!(by_tag(&meta, NOW - 1_000), INVALIDATED);
}

#[test]
fn life_of_zero_means_invalidated_and_expires_only_after_max_stale() {
    let meta = Meta { revalidate_seconds: 0, ..page(10) };
    assert_eq!(plain(&meta), INVALIDATED);
    // Generated two hours ago, invalidated just now: stale since just now.
    let old = Meta { revalidate_seconds: 0, ..page(7200) };
    assert_eq!(by_path(&old, NOW - 1_000), INVALIDATED);
    assert_eq!(by_path(&old, NOW - 3_600_000), Freshness::Expired { why: Why::Invalidated });
    assert_eq!(plain(&old), Freshness::Expired { why: Why::Invalidated });
}

#[test]
fn page_long_invalidated_is_expired_although_its_life_is_not_over() {
    let meta = Meta { revalidate_seconds: 86_400, ..page(10_000) };
    assert_eq!(by_tag(&meta, NOW - 3_600_000), Freshness::Expired { why: Why::Invalidated });
    assert_eq!(by_tag(&meta, NOW - 3_599_999), INVALIDATED);
}

#[test]
fn late_invalidation_does_not_make_an_expired_page_merely_stale() {
    let meta = page(4_000);
    assert_eq!(plain(&meta), Freshness::Expired { why: Why::Age });
    assert_eq!(by_tag(&meta, NOW), Freshness::Expired { why: Why::Invalidated });
}

#[test]
fn only_a_page_of_an_older_deployment_is_stale() {
    let deployed = |deploy| plain(&Meta { deploy, ..page(0) });
    assert_eq!(deployed(Some(6)), Freshness::Stale { why: Why::Deployed });
    assert!(matches!(deployed(Some(7)), Freshness::Fresh { .. }));
    assert!(matches!(deployed(Some(8)), Freshness::Fresh { .. }));
    assert!(matches!(deployed(None), Freshness::Fresh { .. }));
}

#[test]
fn pinned_page_is_fresh_despite_age_deployment_and_watermarks() {
    let meta = Meta { deploy: Some(1), revalidate_seconds: 0, ..page(10_000_000) };
    let fresh = Freshness::Fresh { until_ms: NOW + PINNED_FRESH_MS };
    assert_eq!(judge(&meta, &pinned(), Some(NOW)), fresh);
}

#[test]
fn purged_page_is_gone_until_published_again() {
    let meta = Meta { tombstone: true, status: Some(410), ..page(10_000_000) };
    assert_eq!(judge(&meta, &pinned(), Some(NOW)), Freshness::Gone);
    let answered_410 = Meta { status: Some(410), ..page(0) };
    assert!(matches!(plain(&answered_410), Freshness::Fresh { .. }));
}

#[test]
fn clock_that_jumped_back_does_not_lengthen_a_life() {
    let meta = Meta { generated_at: NOW / 1000 + 200, ..page(0) };
    assert_eq!(plain(&meta), Freshness::Fresh { until_ms: NOW + 60_000 });
}

#[test]
fn row_from_the_far_future_is_stale_but_served() {
    let bearable = Meta { generated_at: NOW / 1000 + 300, ..page(0) };
    assert!(matches!(plain(&bearable), Freshness::Fresh { .. }));
    let future = Meta { generated_at: NOW / 1000 + 301, ..page(0) };
    assert_eq!(plain(&future), Freshness::Stale { why: Why::Clock });
    let counted_in_ms = Meta { generated_at: NOW, ..foreign(0) };
    assert_eq!(plain(&counted_in_ms), Freshness::Stale { why: Why::Clock });
    let absurd = Meta { generated_at: u64::MAX, revalidate_seconds: u64::MAX, ..foreign(0) };
    assert_eq!(plain(&absurd), Freshness::Stale { why: Why::Clock });
}

#[test]
fn freshness_gives_the_reason_to_enqueue() {
    let cases = [
        (Freshness::Fresh { until_ms: 1 }, None),
        (Freshness::Gone, None),
        (Freshness::Missing, Some(Reason::Expired)),
        (AGED, Some(Reason::Expired)),
        (INVALIDATED, Some(Reason::Changed)),
        (Freshness::Expired { why: Why::Invalidated }, Some(Reason::Changed)),
        (Freshness::Stale { why: Why::Deployed }, Some(Reason::Expired)),
        (Freshness::Stale { why: Why::Clock }, Some(Reason::Expired)),
    ];
    for (freshness, reason) in cases {
        assert_eq!(freshness.reason(), reason, "{freshness:?}");
        assert_eq!(freshness.satisfies(), reason.is_none());
    }
}

fn any_meta() -> impl Strategy<Value = Meta> {
    let times = (0..200u64, 0..100u64, prop::option::of(0..200_000u64), prop::option::of(5..9u64));
    times.prop_map(|(generated_at, revalidate_seconds, source_ms, deploy)| Meta {
        generated_at,
        revalidate_seconds,
        source_ms,
        deploy,
        ..Meta::default()
    })
}

/// 0 best, 2 worst; only for pages that have a row and are not purged.
fn badness(freshness: Freshness) -> u8 {
    match freshness {
        Freshness::Fresh { .. } => 0,
        Freshness::Stale { .. } => 1,
        Freshness::Expired { .. } => 2,
        Freshness::Missing | Freshness::Gone | Freshness::Bypass { .. } => unreachable!("a page is there"),
    }
}

#[test]
fn bypass_is_checked_when_due_invalidated_or_of_an_older_deployment() {
    let bypass = Bypass { reason: BypassReason::Private, check_at_ms: 100_000, check_after_s: 10 };
    let meta = Meta {
        generated_at: 50,
        source_ms: Some(50_000),
        deploy: Some(POLICY.deploy),
        bypass: Some(bypass),
        ..Meta::default()
    };
    let none = Invalidations::default();
    let healthy = Health::default();
    let judge = |meta: &Meta, health: &Health, invalidations: &Invalidations, now_ms| {
        freshness(Some(meta), health, invalidations, &POLICY, now_ms)
    };
    let due = |why| Freshness::Bypass { due: Some(why) };
    assert_eq!(judge(&meta, &healthy, &none, 99_999), Freshness::Bypass { due: None });
    assert_eq!(judge(&meta, &healthy, &none, 100_000), due(Why::Age));
    let older = Meta { deploy: Some(POLICY.deploy - 1), ..meta.clone() };
    assert_eq!(judge(&older, &healthy, &none, 60_000), due(Why::Deployed));
    let watermark = Invalidations::new(Some(60_000), [Watermark { at_ms: 60_000, hard_ms: None }]);
    assert_eq!(judge(&meta, &healthy, &watermark, 60_000), due(Why::Invalidated));
    assert_eq!(due(Why::Invalidated).reason(), Some(Reason::Changed));
    assert_eq!(due(Why::Age).reason(), Some(Reason::Expired));
    let pinned = Health { pinned_at_ms: Some(1), ..Health::default() };
    assert_eq!(judge(&meta, &pinned, &watermark, 200_000), Freshness::Bypass { due: None });
    let purged = Meta { tombstone: true, ..meta.clone() };
    assert_eq!(judge(&purged, &healthy, &none, 60_000), Freshness::Gone);
    let broken_clock = Meta { bypass: Some(Bypass { check_at_ms: u64::MAX, ..bypass }), ..meta };
    assert_eq!(judge(&broken_clock, &healthy, &none, 60_000), due(Why::Clock));
}

#[test]
fn origin_shortens_the_time_stale_and_never_lengthens_it() {
    for (route, origin, expected) in [
        (None, None, None),
        (Some(9), None, Some(9)),
        (None, Some(5), Some(5)),
        (Some(9), Some(5), Some(5)),
        (Some(5), Some(9), Some(5)),
    ] {
        let policy = Policy { max_stale_seconds: route, ..POLICY };
        let meta = Meta { max_stale_seconds: origin, ..Meta::default() };
        assert_eq!(max_stale_seconds(&meta, &policy), expected);
    }
}

proptest! {
    #[test]
    fn page_never_gets_fresher_by_waiting(
        meta in any_meta(),
        path_watermark_ms in prop::option::of(0..200_000u64),
        watermark_ms in prop::option::of(0..200_000u64),
        max_stale_seconds in prop::option::of(0..100u64),
        now_ms in 0..400_000u64,
        later_ms in 0..400_000u64,
    ) {
        // Beyond the tolerance a clock is wrong, and the page recovers as time passes.
        prop_assume!(meta.generated_at * 1000 <= now_ms + FUTURE_TOLERANCE_MS);
        prop_assume!(meta.believable_source_ms(now_ms, POLICY.epsilon_ms) == meta.source_ms);
        let health = Health { path_watermark_ms, ..Health::default() };
        let invalidations = Invalidations { epoch_ms: watermark_ms, watermark_ms, hard_ms: None };
        let policy = Policy { max_stale_seconds, ..POLICY };
        let at = |now_ms| freshness(Some(&meta), &health, &invalidations, &policy, now_ms);
        prop_assert!(badness(at(now_ms)) <= badness(at(now_ms + later_ms)));
    }

    #[test]
    fn page_is_fresh_until_the_stated_moment(meta in any_meta(), now_ms in 0..400_000u64) {
        let at = |now_ms| {
            freshness(Some(&meta), &Health::default(), &Invalidations::default(), &POLICY, now_ms)
        };
        if let Freshness::Fresh { until_ms } = at(now_ms) {
            prop_assert!(until_ms > now_ms);
            prop_assert!(until_ms <= now_ms + meta.revalidate_seconds * 1000);
            let still_fresh = matches!(at(until_ms - 1), Freshness::Fresh { .. });
            prop_assert!(still_fresh);
        }
    }

    #[test]
    fn newer_watermark_never_makes_a_page_fresh(
        meta in any_meta(),
        watermark_ms in 0..200_000u64,
        newer_ms in 0..200_000u64,
        now_ms in 0..400_000u64,
    ) {
        let policy = Policy { max_stale_seconds: None, ..POLICY };
        let at = |watermark_ms| {
            let invalidations = Invalidations { epoch_ms: watermark_ms, watermark_ms, hard_ms: None };
            badness(freshness(Some(&meta), &Health::default(), &invalidations, &policy, now_ms))
        };
        prop_assert!(at(None) <= at(Some(watermark_ms)));
        prop_assert!(at(Some(watermark_ms)) <= at(Some(watermark_ms + newer_ms)));
    }

    #[test]
    fn tag_invalidation_is_not_missed_under_clock_error_below_epsilon(
        began_ms in 10_000..100_000u64,
        error_ms in -1_999..2_000i64,
        watermark_ms in 10_000..100_000u64,
    ) {
        let source_ms = began_ms.checked_add_signed(error_ms).unwrap();
        let meta = Meta {
            generated_at: 101,
            revalidate_seconds: 60,
            source_ms: Some(source_ms),
            ..Meta::default()
        };
        let invalidations =
            Invalidations { epoch_ms: Some(watermark_ms), watermark_ms: Some(watermark_ms), hard_ms: None };
        let judged = freshness(Some(&meta), &Health::default(), &invalidations, &POLICY, 101_000);
        if began_ms <= watermark_ms {
            prop_assert_eq!(judged, INVALIDATED);
        }
        prop_assert!(needs_watermarks(&meta, Some(watermark_ms), &POLICY, 101_000) == (judged == INVALIDATED));
    }

    #[test]
    fn no_numbers_overflow(
        generated_at: u64,
        revalidate_seconds: u64,
        source_ms: Option<u64>,
        watermark_ms: Option<u64>,
        max_stale_seconds: Option<u64>,
        epsilon_ms: u64,
        now_ms: u64,
    ) {
        let meta = Meta { generated_at, revalidate_seconds, source_ms, ..Meta::default() };
        let invalidations = Invalidations { watermark_ms, ..Invalidations::default() };
        let policy = Policy { deploy: 1, max_stale_seconds, epsilon_ms };
        freshness(Some(&meta), &Health::default(), &invalidations, &policy, now_ms);
    }
}

#[test]
fn stale_if_error_ends_the_time_without_a_newer_version() {
    let policy = Policy { max_stale_seconds: None, ..POLICY };
    let says = |stale_s, if_error_s, must_revalidate| Meta {
        max_stale_seconds: stale_s,
        stale_if_error_seconds: if_error_s,
        must_revalidate,
        ..page(0)
    };
    let ends_after_s = |meta: &Meta| (0..2_000u64).find(|s| meta.must_not_be_served(&policy, NOW + s * 1_000));
    for (stale_s, if_error_s, must_revalidate, ends_s) in [
        (Some(30), Some(600), true, Some(660)),
        (Some(30), Some(600), false, Some(660)),
        (Some(30), Some(0), true, Some(90)),
        (Some(30), None, true, Some(90)),
        (Some(30), None, false, None),
        (None, None, true, None),
    ] {
        let meta = says(stale_s, if_error_s, must_revalidate);
        assert_eq!(ends_after_s(&meta), ends_s, "{stale_s:?} {if_error_s:?} {must_revalidate}");
        let expired = meta.must_not_be_served_expired(Why::Age, &policy, NOW + 120_000);
        assert_eq!(expired, must_revalidate && if_error_s != Some(600), "{stale_s:?} {if_error_s:?} {must_revalidate}");
    }
}

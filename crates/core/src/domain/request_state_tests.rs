//! Tables of situations and the state that each gives.

use super::*;
use crate::domain::bypass::{Bypass, BypassReason};
use crate::domain::freshness::Why;

const EPSILON_MS: u64 = 2_000;
const SENT_MS: u64 = 1_000_000;
const NOW_MS: u64 = SENT_MS + 60_000;
const POLICY: Policy = Policy { deploy: 7, max_stale_seconds: None, epsilon_ms: EPSILON_MS };

fn rendered_at(source_ms: u64) -> Meta {
    Meta { source_ms: Some(source_ms), deploy: Some(7), ..Meta::default() }
}

/// Nothing is published, and nothing keeps the page from being rendered.
fn idle(health: &Health) -> Situation<'_> {
    Situation {
        reason: Reason::Changed,
        sent_ms: SENT_MS,
        meta: None,
        health,
        lock: None,
        freshness: Freshness::Missing,
        policy: &POLICY,
        paused: false,
        queued: Some(0),
        now_ms: NOW_MS,
    }
}

#[test]
fn render_surely_after_the_sending_completes_the_request() {
    let health = Health::default();
    let completed = RequestState::Completed { version: None };
    for (source_ms, state) in [
        (SENT_MS + EPSILON_MS, completed),
        (SENT_MS + EPSILON_MS - 1, RequestState::Unknown),
        (SENT_MS - 1, RequestState::Unknown),
        (NOW_MS + 2 * EPSILON_MS, completed),
        // Dated by a broken clock.
        (NOW_MS + 2 * EPSILON_MS + 1, RequestState::Unknown),
    ] {
        let meta = rendered_at(source_ms);
        assert_eq!(request_state(&Situation { meta: Some(&meta), ..idle(&health) }), state, "{source_ms}");
    }
    let foreign = Meta { source_ms: None, ..rendered_at(0) };
    assert_eq!(request_state(&Situation { meta: Some(&foreign), ..idle(&health) }), RequestState::Unknown);
}

#[test]
fn request_sent_before_a_message_of_the_render_is_completed() {
    let health = Health::default();
    let completed = RequestState::Completed { version: None };
    // The render began a moment after the sending: coverage cannot tell their order.
    let base = rendered_at(SENT_MS + 10);
    for (newest_sent_ms, state) in [
        (Some(SENT_MS), completed),
        (Some(SENT_MS + 5), completed),
        // The sender's clock may have been ahead of the queue's.
        (Some(SENT_MS - EPSILON_MS), completed),
        (Some(SENT_MS - EPSILON_MS - 1), RequestState::Unknown),
        // A foreign writer dropped it, or an older Everfresh wrote the row.
        (None, RequestState::Unknown),
    ] {
        let meta = Meta { newest_sent_ms, ..base.clone() };
        assert_eq!(request_state(&Situation { meta: Some(&meta), ..idle(&health) }), state, "{newest_sent_ms:?}");
    }
    // As long as its own render may be still to come, it waits.
    let meta = Meta { newest_sent_ms: Some(SENT_MS - 1), ..base.clone() };
    let until_ms = SENT_MS + 3 * EPSILON_MS;
    let early = Situation { meta: Some(&meta), now_ms: until_ms - 1, ..idle(&health) };
    assert_eq!(request_state(&early), RequestState::Waiting { why: Waiting::TooClose { until_ms } });
    let queued = Situation { meta: Some(&meta), queued: Some(2), ..idle(&health) };
    assert_eq!(request_state(&queued), RequestState::Waiting { why: Waiting::Queued { messages: 2 } });
    let uncounted = Situation { meta: Some(&meta), queued: None, ..idle(&health) };
    assert_eq!(request_state(&uncounted), RequestState::Unknown);
    let bypass = Some(Bypass { reason: BypassReason::SetCookie, check_at_ms: 0, check_after_s: 0 });
    let meta = Meta { newest_sent_ms: Some(SENT_MS), bypass, ..base.clone() };
    let bypassed = RequestState::Bypassed { version: None };
    assert_eq!(request_state(&Situation { meta: Some(&meta), ..idle(&health) }), bypassed);
    // Pinned afterwards: the change is shown all the same.
    let pinned = Health { pinned_at_ms: Some(NOW_MS), ..Health::default() };
    let meta = Meta { newest_sent_ms: Some(SENT_MS), ..base };
    assert_eq!(request_state(&Situation { meta: Some(&meta), ..idle(&pinned) }), completed);
}

#[test]
fn covering_version_without_a_body_is_a_bypass() {
    let health = Health::default();
    let bypass = Some(Bypass { reason: BypassReason::SetCookie, check_at_ms: 0, check_after_s: 0 });
    let meta = Meta { bypass, ..rendered_at(NOW_MS) };
    let state = request_state(&Situation { meta: Some(&meta), ..idle(&health) });
    assert_eq!(state, RequestState::Bypassed { version: None });
}

#[test]
fn fresh_page_covers_the_other_reasons_only() {
    let health = Health::default();
    let meta = rendered_at(SENT_MS - 30_000);
    let fresh = Freshness::Fresh { until_ms: NOW_MS + 60_000 };
    let stale = Freshness::Stale { why: Why::Age };
    for (reason, freshness, completed) in [
        (Reason::Expired, fresh, true),
        (Reason::Prewarm, fresh, true),
        (Reason::Changed, fresh, false),
        (Reason::Expired, stale, false),
        (Reason::Prewarm, stale, false),
    ] {
        let state = request_state(&Situation { reason, freshness, meta: Some(&meta), ..idle(&health) });
        assert_eq!(matches!(state, RequestState::Completed { .. }), completed, "{reason} {freshness:?}");
    }
}

#[test]
fn pin_ends_a_change_only_once_it_is_recorded() {
    let pinned = |wanted_at_ms| Health { pinned_at_ms: Some(1), wanted_at_ms, ..Health::default() };
    for (health, reason, ended) in [
        (pinned(Some(SENT_MS)), Reason::Changed, true),
        (pinned(Some(SENT_MS - EPSILON_MS)), Reason::Changed, true),
        (pinned(Some(SENT_MS - EPSILON_MS - 1)), Reason::Changed, false),
        (pinned(None), Reason::Changed, false),
        (pinned(None), Reason::Expired, true),
        (pinned(None), Reason::Prewarm, true),
        (Health { wanted_at_ms: Some(NOW_MS), ..Health::default() }, Reason::Changed, false),
    ] {
        let state = request_state(&Situation { reason, ..idle(&health) });
        assert_eq!(state == RequestState::Pinned, ended, "{reason} {health:?}");
    }
}

#[test]
fn waiting_request_has_its_first_reason() {
    let lock = |at_ms: u64| LockRow { lease_token: "t".into(), lease_expires_at: at_ms / 1_000, ttl: None };
    let (held, expired) = (lock(NOW_MS + 5_000), lock(NOW_MS));
    let calm = Health::default();
    let cooling = Health { next_attempt_ms: Some(NOW_MS + 1), ..Health::default() };
    let base = idle(&calm);
    let close = rendered_at(SENT_MS + 1);
    let early = Situation { meta: Some(&close), now_ms: SENT_MS + 10, ..base };
    for (situation, why) in [
        (Situation { paused: true, queued: Some(3), ..early }, Waiting::TooClose { until_ms: SENT_MS + EPSILON_MS }),
        (Situation { paused: true, health: &cooling, lock: Some(&held), ..base }, Waiting::Paused),
        (Situation { health: &cooling, lock: Some(&held), ..base }, Waiting::Cooldown { until_ms: NOW_MS + 1 }),
        (Situation { lock: Some(&held), queued: Some(3), ..base }, Waiting::Leased { until_ms: NOW_MS + 5_000 }),
        (Situation { lock: Some(&expired), queued: Some(3), ..base }, Waiting::Queued { messages: 3 }),
    ] {
        assert_eq!(request_state(&situation), RequestState::Waiting { why });
    }
    assert_eq!(request_state(&Situation { lock: Some(&expired), ..base }), RequestState::Unknown);
}

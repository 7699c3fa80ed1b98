use super::*;
use crate::domain::bypass::BypassReason;
use crate::domain::outcome::ErrorClass;
use crate::domain::version::Version;
use proptest::prelude::*;

const NOW: u64 = 1_763_270_000_000;

fn first_delivery() -> Delivery {
    Delivery { sent_ms: NOW, received_ms: NOW, receive_count: 1, now_ms: NOW, jitter: 0 }
}

fn version() -> Version {
    Version::next(NOW, None, None, 0)
}

fn decide(outcome: Outcome, reason: Reason) -> Disposition {
    disposition(&outcome, reason, &first_delivery())
}

/// Every outcome, with every kind of data that matters.
fn all_outcomes() -> Vec<Outcome> {
    let until_ms = NOW + 30_000;
    let mut outcomes = vec![
        Outcome::Committed { version: Some(version()) },
        Outcome::Committed { version: None },
        Outcome::Unchanged { version: version() },
        Outcome::Bypassed { version: version(), reason: BypassReason::Private, withdrawn: true },
        Outcome::AlreadyCovered,
        Outcome::Replayed,
        Outcome::TooClose { until_ms },
        Outcome::Superseded,
        Outcome::Pinned { wanted_recorded: true },
        Outcome::Pinned { wanted_recorded: false },
        Outcome::Rejected { reason: RejectReason::BadMessage },
    ];
    for why in [
        Busy::Lease { until_ms },
        Busy::Claim { until_ms },
        Busy::Cooldown { until_ms },
        Busy::LostLease,
        Busy::NoTime,
        Busy::OtherPage,
        Busy::OlderDeploy,
        Busy::OriginStale { until_ms },
        Busy::Withdrawals { until_ms },
        Busy::NotificationPending { published: true },
        Busy::Unavailable,
    ] {
        outcomes.push(Outcome::Busy { why });
    }
    for class in ErrorClass::ALL {
        for nothing_published in [false, true] {
            outcomes.push(Outcome::Failed { class, next_attempt_ms: until_ms, nothing_published });
        }
    }
    outcomes
}

/// What I1 lets a worker ack.
fn may_ack(outcome: &Outcome, reason: Reason) -> bool {
    let covered = matches!(
        outcome,
        Outcome::Committed { .. }
            | Outcome::Unchanged { .. }
            | Outcome::Bypassed { .. }
            | Outcome::AlreadyCovered
            | Outcome::Replayed
    );
    let excused = matches!(
        (outcome, reason),
        (Outcome::Pinned { wanted_recorded: true }, Reason::Changed)
            | (Outcome::Pinned { .. }, Reason::Expired | Reason::Prewarm)
            | (
                Outcome::Busy { why: Busy::Cooldown { .. } | Busy::OriginStale { .. } | Busy::Withdrawals { .. } },
                Reason::Expired | Reason::Prewarm
            )
            | (Outcome::Failed { nothing_published: true, .. }, Reason::Expired)
    );
    covered || excused
}

#[test]
fn acks_are_exactly_those_that_lose_nothing() {
    for outcome in all_outcomes() {
        for reason in Reason::ALL {
            let acked = decide(outcome.clone(), reason) == Disposition::Ack;
            assert_eq!(acked, may_ack(&outcome, reason), "{outcome:?} {reason}");
        }
    }
}

#[test]
fn only_rejections_and_final_failures_are_rejected_at_once() {
    for outcome in all_outcomes() {
        for reason in Reason::ALL {
            let rejected = matches!(decide(outcome.clone(), reason), Disposition::Reject { .. });
            let expected = !may_ack(&outcome, reason)
                && matches!(
                    outcome,
                    Outcome::Rejected { .. } | Outcome::Failed { class: ErrorClass::OriginForbidden, .. }
                );
            assert_eq!(rejected, expected, "{outcome:?} {reason}");
        }
    }
}

#[test]
fn delays_without_jitter() {
    let until_ms = NOW + 30_001;
    let cases = [
        (Outcome::TooClose { until_ms: NOW + 1 }, 1),
        (Outcome::TooClose { until_ms: NOW + 1_001 }, 2),
        (Outcome::TooClose { until_ms: NOW - 5_000 }, 1),
        (Outcome::Superseded, 1),
        (Outcome::Busy { why: Busy::Lease { until_ms } }, 31),
        (Outcome::Busy { why: Busy::Claim { until_ms: NOW } }, 1),
        (Outcome::Busy { why: Busy::Cooldown { until_ms } }, 31),
        (Outcome::Busy { why: Busy::OriginStale { until_ms } }, 31),
        (Outcome::Busy { why: Busy::Withdrawals { until_ms } }, 31),
        (Outcome::Busy { why: Busy::NoTime }, 1),
        (Outcome::Busy { why: Busy::OtherPage }, 5),
        (Outcome::Failed { class: ErrorClass::OriginTimeout, next_attempt_ms: until_ms, nothing_published: false }, 31),
        (Outcome::Failed { class: ErrorClass::Gate, next_attempt_ms: u64::MAX, nothing_published: true }, 12 * 3600),
    ];
    for (outcome, delay_s) in cases {
        assert_eq!(decide(outcome.clone(), Reason::Changed), Disposition::Retry { delay_s }, "{outcome:?}");
    }
}

#[test]
fn delays_double_with_each_delivery_up_to_their_limit() {
    let rows = [
        (Outcome::Superseded, [1, 2, 30]),
        (Outcome::Pinned { wanted_recorded: false }, [1, 2, 30]),
        (Outcome::Busy { why: Busy::LostLease }, [1, 2, 30]),
        (Outcome::Busy { why: Busy::NoTime }, [1, 2, 30]),
        (Outcome::Busy { why: Busy::Unavailable }, [5, 10, 900]),
        (Outcome::Busy { why: Busy::OlderDeploy }, [5, 10, 900]),
        (Outcome::Busy { why: Busy::NotificationPending { published: false } }, [5, 10, 900]),
        (Outcome::Busy { why: Busy::OtherPage }, [5, 10, 900]),
        // A lease that is free already: one second more each time.
        (Outcome::Busy { why: Busy::Lease { until_ms: NOW } }, [1, 2, 20]),
        (Outcome::Busy { why: Busy::Claim { until_ms: NOW } }, [1, 2, 20]),
    ];
    for (outcome, delays) in rows {
        for (receive_count, delay_s) in [1, 2, 40].into_iter().zip(delays) {
            let delivery = Delivery { receive_count, ..first_delivery() };
            let decided = disposition(&outcome, Reason::Changed, &delivery);
            assert_eq!(decided, Disposition::Retry { delay_s }, "{outcome:?} at delivery {receive_count}");
        }
    }
}

#[test]
fn jitter_adds_at_most_a_quarter_or_five_seconds() {
    let delay = |why, jitter| {
        let delivery = Delivery { jitter, ..first_delivery() };
        match disposition(&Outcome::Busy { why }, Reason::Changed, &delivery) {
            Disposition::Retry { delay_s } => delay_s,
            Disposition::Ack | Disposition::Reject { .. } => 0,
        }
    };
    let until_ms = NOW + 30_000;
    assert_eq!(delay(Busy::Unavailable, 1_250), 7);
    assert_eq!(delay(Busy::Unavailable, 1_251), 5);
    assert_eq!(delay(Busy::Cooldown { until_ms }, 5_000), 35);
    assert_eq!(delay(Busy::Cooldown { until_ms }, 5_001), 30);
}

#[test]
fn waiting_message_is_rejected_at_the_receive_limit() {
    let mut delivery = Delivery { receive_count: MAX_RECEIVES - 1, ..first_delivery() };
    let decide = |delivery: &Delivery| disposition(&Outcome::Superseded, Reason::Changed, delivery);
    assert!(matches!(decide(&delivery), Disposition::Retry { .. }));
    delivery.receive_count = MAX_RECEIVES;
    assert_eq!(decide(&delivery), Disposition::Reject { reason: RejectReason::Waited });
}

#[test]
fn waiting_message_is_rejected_an_hour_before_retention_ends() {
    let mut delivery = first_delivery();
    delivery.now_ms = delivery.sent_ms + RETENTION_MS - HOUR;
    delivery.received_ms = delivery.now_ms;
    let outcome = Outcome::Busy { why: Busy::Unavailable };
    let decided = disposition(&outcome, Reason::Changed, &delivery);
    assert_eq!(decided, Disposition::Reject { reason: RejectReason::Waited });
    let acked = disposition(&Outcome::AlreadyCovered, Reason::Changed, &delivery);
    assert_eq!(acked, Disposition::Ack);
}

#[test]
fn delay_is_cut_short_of_the_end_of_retention() {
    let mut delivery = first_delivery();
    delivery.now_ms = delivery.give_up_ms() - 90_500;
    delivery.received_ms = delivery.now_ms;
    let until_ms = delivery.now_ms + 6 * HOUR;
    let decided = disposition(&Outcome::TooClose { until_ms }, Reason::Changed, &delivery);
    assert_eq!(decided, Disposition::Retry { delay_s: 90 });
}

/// Redelivers a message until its disposition is not Retry; counts deliveries and time.
fn wait_out(delivery: &mut Delivery, mut outcome: impl FnMut(u64) -> Outcome) -> Disposition {
    loop {
        delivery.received_ms = delivery.now_ms;
        let decided = disposition(&outcome(delivery.now_ms), Reason::Changed, delivery);
        match decided {
            Disposition::Retry { delay_s } => delivery.now_ms += delay_s * 1000,
            Disposition::Ack | Disposition::Reject { .. } => return decided,
        }
        delivery.receive_count += 1;
    }
}

#[test]
fn requests_waiting_for_a_slow_render_are_not_rejected() {
    for jitter in 0..10_000 {
        let mut delivery = Delivery { jitter, ..first_delivery() };
        // The holder renews every ten seconds; the worst message always meets a lease about to be
        // renewed.
        let decided = wait_out(&mut delivery, |now_ms| match now_ms < NOW + 600_000 {
            true => Outcome::Busy { why: Busy::Lease { until_ms: now_ms + 1 } },
            false => Outcome::AlreadyCovered,
        });
        assert_eq!(decided, Disposition::Ack, "jitter {jitter}");
    }
}

#[test]
fn message_that_waits_for_ever_is_rejected() {
    for outcome in all_outcomes() {
        let mut delivery = first_delivery();
        let decided = wait_out(&mut delivery, |_| outcome.clone());
        assert!(!matches!(decided, Disposition::Retry { .. }), "{outcome:?}");
    }
}

proptest! {
    #[test]
    fn every_delay_is_whole_and_ends_in_time(
        outcome in prop::sample::select(all_outcomes()),
        reason in prop::sample::select(Reason::ALL.to_vec()),
        age_ms in 0..RETENTION_MS,
        handled_ms in 0..900_000u64,
        receive_count in 1..100u32,
        jitter: u32,
    ) {
        let received_ms = NOW + age_ms;
        let now_ms = received_ms + handled_ms;
        let delivery = Delivery { sent_ms: NOW, received_ms, receive_count, now_ms, jitter };
        if let Disposition::Retry { delay_s } = disposition(&outcome, reason, &delivery) {
            prop_assert!(delay_s >= 1);
            let back_ms = now_ms + delay_s * 1000;
            prop_assert!(back_ms <= received_ms + MAX_HIDDEN_MS);
            prop_assert!(back_ms <= delivery.give_up_ms() + 1000);
            prop_assert!(receive_count < MAX_RECEIVES);
        }
    }

    #[test]
    fn too_close_message_returns_when_a_render_is_surely_later(wait_ms in 0..HOUR, jitter: u32) {
        let delivery = Delivery { jitter, ..first_delivery() };
        let until_ms = NOW + wait_ms;
        match disposition(&Outcome::TooClose { until_ms }, Reason::Changed, &delivery) {
            Disposition::Retry { delay_s } => prop_assert!(NOW + delay_s * 1000 >= until_ms),
            Disposition::Ack | Disposition::Reject { .. } => prop_assert!(false),
        }
    }
}

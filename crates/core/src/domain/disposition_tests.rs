use super::*;
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
        Busy::Paused,
        Busy::LostLease,
        Busy::NoTime,
        Busy::OtherPage,
        Busy::OlderDeploy,
        Busy::NotificationPending { published: true },
        Busy::Unavailable,
    ] {
        outcomes.push(Outcome::Busy { why });
    }
    for class in ErrorClass::ALL {
        outcomes.push(Outcome::Failed { class, next_attempt_ms: until_ms });
    }
    outcomes
}

/// What I1 lets a worker ack.
fn may_ack(outcome: &Outcome, reason: Reason) -> bool {
    let granted = matches!(
        outcome,
        Outcome::Committed { .. } | Outcome::Unchanged { .. } | Outcome::AlreadyCovered | Outcome::Replayed
    );
    let excused = matches!(
        (outcome, reason),
        (Outcome::Pinned { wanted_recorded: true }, Reason::Changed)
            | (Outcome::Pinned { .. }, Reason::Expired | Reason::Prewarm)
            | (Outcome::Busy { why: Busy::Cooldown { .. } }, Reason::Expired | Reason::Prewarm)
    );
    granted || excused
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
fn only_rejections_and_hopeless_failures_are_rejected_at_once() {
    for outcome in all_outcomes() {
        for reason in Reason::ALL {
            let rejected = matches!(decide(outcome.clone(), reason), Disposition::Reject { .. });
            let expected = matches!(
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
        (Outcome::Busy { why: Busy::Paused }, 60),
        (Outcome::Busy { why: Busy::NoTime }, 1),
        (Outcome::Busy { why: Busy::OtherPage }, 5),
        (Outcome::Failed { class: ErrorClass::OriginTimeout, next_attempt_ms: until_ms }, 31),
        (Outcome::Failed { class: ErrorClass::Gate, next_attempt_ms: u64::MAX }, 12 * 3600),
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
        (Outcome::Busy { why: Busy::Paused }, [60, 120, 4 * 3600]),
        // A lease that is free already: a second more each time.
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
fn jitter_only_adds_and_not_more_than_a_quarter_or_five_seconds() {
    let delay = |why, jitter| {
        let delivery = Delivery { jitter, ..first_delivery() };
        match disposition(&Outcome::Busy { why }, Reason::Changed, &delivery) {
            Disposition::Retry { delay_s } => delay_s,
            Disposition::Ack | Disposition::Reject { .. } => 0,
        }
    };
    let until_ms = NOW + 30_000;
    assert_eq!(delay(Busy::Paused, 15_000), 75);
    assert_eq!(delay(Busy::Paused, 15_001), 60);
    assert_eq!(delay(Busy::Cooldown { until_ms }, 5_000), 35);
    assert_eq!(delay(Busy::Cooldown { until_ms }, 5_001), 30);
}

#[test]
fn message_that_waits_is_rejected_at_the_receive_limit() {
    let mut delivery = Delivery { receive_count: MAX_RECEIVES - 1, ..first_delivery() };
    let decide = |delivery: &Delivery| disposition(&Outcome::Superseded, Reason::Changed, delivery);
    assert!(matches!(decide(&delivery), Disposition::Retry { .. }));
    delivery.receive_count = MAX_RECEIVES;
    assert_eq!(decide(&delivery), Disposition::Reject { reason: RejectReason::Waited });
}

#[test]
fn message_that_waits_is_rejected_an_hour_before_the_queue_forgets_it() {
    let mut delivery = first_delivery();
    delivery.now_ms = delivery.sent_ms + RETENTION_MS - HOUR;
    delivery.received_ms = delivery.now_ms;
    let outcome = Outcome::Busy { why: Busy::Paused };
    let told = disposition(&outcome, Reason::Changed, &delivery);
    assert_eq!(told, Disposition::Reject { reason: RejectReason::Waited });
    let acked = disposition(&Outcome::AlreadyCovered, Reason::Changed, &delivery);
    assert_eq!(acked, Disposition::Ack);
}

#[test]
fn long_delay_near_the_end_of_retention_is_cut_so_that_the_message_comes_back() {
    let mut delivery = first_delivery();
    delivery.now_ms = delivery.give_up_ms() - 90_500;
    delivery.received_ms = delivery.now_ms;
    let until_ms = delivery.now_ms + 6 * HOUR;
    let told = disposition(&Outcome::TooClose { until_ms }, Reason::Changed, &delivery);
    assert_eq!(told, Disposition::Retry { delay_s: 90 });
}

/// Delivers a message again and again until told something else than Retry; counts deliveries and time.
fn wait_out(delivery: &mut Delivery, mut outcome: impl FnMut(u64) -> Outcome) -> Disposition {
    loop {
        delivery.received_ms = delivery.now_ms;
        let told = disposition(&outcome(delivery.now_ms), Reason::Changed, delivery);
        match told {
            Disposition::Retry { delay_s } => delivery.now_ms += delay_s * 1000,
            Disposition::Ack | Disposition::Reject { .. } => return told,
        }
        delivery.receive_count += 1;
    }
}

#[test]
fn requests_waiting_for_a_slow_render_never_reach_the_dead_letter_queue() {
    for jitter in 0..10_000 {
        let mut delivery = Delivery { jitter, ..first_delivery() };
        // The holder renews every ten seconds; the worst message always meets a lease about to be renewed.
        let told = wait_out(&mut delivery, |now_ms| match now_ms < NOW + 600_000 {
            true => Outcome::Busy { why: Busy::Lease { until_ms: now_ms + 1 } },
            false => Outcome::AlreadyCovered,
        });
        assert_eq!(told, Disposition::Ack, "jitter {jitter}");
    }
}

#[test]
fn pause_of_twelve_days_loses_nothing() {
    for jitter in [0, 1, 1_000_003, u32::MAX] {
        let mut delivery = Delivery { jitter, ..first_delivery() };
        let told = wait_out(&mut delivery, |now_ms| match now_ms < NOW + 12 * 24 * HOUR {
            true => Outcome::Busy { why: Busy::Paused },
            false => Outcome::AlreadyCovered,
        });
        assert_eq!(told, Disposition::Ack);
    }
}

#[test]
fn message_that_waits_for_ever_ends_in_the_dead_letter_queue() {
    for outcome in all_outcomes() {
        let mut delivery = first_delivery();
        let told = wait_out(&mut delivery, |_| outcome.clone());
        assert!(!matches!(told, Disposition::Retry { .. }), "{outcome:?}");
    }
}

proptest! {
    #[test]
    fn every_delay_is_whole_and_ends_in_time(
        at in 0..23usize,
        reason in prop::sample::select(Reason::ALL.to_vec()),
        age_ms in 0..RETENTION_MS,
        handled_ms in 0..900_000u64,
        receive_count in 1..100u32,
        jitter: u32,
    ) {
        let outcomes = all_outcomes();
        let outcome = &outcomes[at % outcomes.len()];
        let received_ms = NOW + age_ms;
        let now_ms = received_ms + handled_ms;
        let delivery = Delivery { sent_ms: NOW, received_ms, receive_count, now_ms, jitter };
        if let Disposition::Retry { delay_s } = disposition(outcome, reason, &delivery) {
            prop_assert!(delay_s >= 1);
            let back_ms = now_ms + delay_s * 1000;
            prop_assert!(back_ms <= received_ms + MAX_HIDDEN_MS);
            prop_assert!(back_ms <= delivery.give_up_ms() + 1000);
            prop_assert!(receive_count < MAX_RECEIVES);
        }
    }

    #[test]
    fn a_message_too_close_comes_back_when_a_render_is_surely_later(wait_ms in 0..HOUR, jitter: u32) {
        let delivery = Delivery { jitter, ..first_delivery() };
        let until_ms = NOW + wait_ms;
        match disposition(&Outcome::TooClose { until_ms }, Reason::Changed, &delivery) {
            Disposition::Retry { delay_s } => prop_assert!(NOW + delay_s * 1000 >= until_ms),
            Disposition::Ack | Disposition::Reject { .. } => prop_assert!(false),
        }
    }
}

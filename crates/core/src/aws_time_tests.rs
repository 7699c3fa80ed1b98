use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// A machine whose two clocks the test moves.
#[derive(Clone)]
struct Machine {
    wall_ms: Arc<AtomicU64>,
    monotonic_ms: Arc<AtomicU64>,
}

impl Machine {
    fn at(wall_ms: u64) -> Self {
        Self { wall_ms: Arc::new(AtomicU64::new(wall_ms)), monotonic_ms: Arc::new(AtomicU64::new(77)) }
    }

    fn time(&self) -> AwsTime {
        let (wall, monotonic) = (self.wall_ms.clone(), self.monotonic_ms.clone());
        AwsTime::new(Clock::with_monotonic(
            move || UNIX_EPOCH + Duration::from_millis(wall.load(Ordering::Relaxed)),
            move || Duration::from_millis(monotonic.load(Ordering::Relaxed)),
        ))
    }

    fn pass(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::Relaxed);
        self.monotonic_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn step(&self, ms: i64) {
        let wall_ms = self.wall_ms.load(Ordering::Relaxed).saturating_add_signed(ms);
        self.wall_ms.store(wall_ms, Ordering::Relaxed);
    }

    fn freeze(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

#[test]
fn error_is_unknown_before_the_first_response() {
    let time = Machine::at(5_000).time();
    assert_eq!((time.now_ms(), time.error_ms()), (5_000, None));
}

#[test]
fn one_response_bounds_the_error() {
    let machine = Machine::at(5_000);
    let time = machine.time();
    let sent = time.clock.read();
    machine.pass(20);
    time.learn(65_000, sent, time.clock.read());
    assert_eq!((time.now_ms(), time.error_ms()), (65_510, Some(510)));
}

#[test]
fn bounds_widen_with_age() {
    let machine = Machine::at(5_000);
    let time = machine.time();
    time.learn(5_000, time.clock.read(), time.clock.read());
    machine.pass(60_000);
    assert_eq!((time.now_ms(), time.error_ms()), (65_500, Some(1_100)));
}

#[test]
fn wall_clock_step_during_a_call_does_not_move_the_estimate() {
    for step_ms in [-600_000, -3_000, 3_000, 600_000] {
        let machine = Machine::at(1_000_000);
        let time = machine.time();
        time.learn(1_000_000, time.clock.read(), time.clock.read());
        let sent = time.clock.read();
        machine.step(step_ms);
        machine.pass(100);
        time.learn(1_000_000, sent, time.clock.read());
        assert_eq!(time.now_ms(), 1_000_600, "{step_ms}");
        assert_eq!(time.error_ms(), None, "{step_ms}: one of the clocks is wrong, and it is not known which");
        // The next response starts afresh.
        time.learn(1_000_000, time.clock.read(), time.clock.read());
        assert_eq!(time.error_ms(), Some(500), "{step_ms}");
    }
}

#[test]
fn error_is_unknown_between_a_freeze_and_the_next_response() {
    let machine = Machine::at(1_000_000);
    let time = machine.time();
    time.learn(1_000_000, time.clock.read(), time.clock.read());
    machine.freeze(600_000);
    assert_eq!(time.error_ms(), None);
    time.learn(1_600_000, time.clock.read(), time.clock.read());
    assert_eq!((time.now_ms(), time.error_ms()), (1_600_500, Some(500)));
}

#[test]
fn response_during_a_freeze_is_ignored() {
    let machine = Machine::at(1_000_000);
    let time = machine.time();
    let sent = time.clock.read();
    machine.freeze(600_000);
    time.learn(1_000_000, sent, time.clock.read());
    assert_eq!(time.error_ms(), None);
}

#[test]
fn newer_of_two_contradicting_responses_wins() {
    let machine = Machine::at(5_000);
    let time = machine.time();
    time.learn(5_000, time.clock.read(), time.clock.read());
    time.learn(65_000, time.clock.read(), time.clock.read());
    assert_eq!((time.now_ms(), time.error_ms()), (65_500, Some(500)));
}

#[test]
fn local_time_never_runs_backwards_and_counts_freezes() {
    let machine = Machine::at(1_000_000);
    let time = machine.time();
    let start_ms = time.local_now_ms();
    machine.step(-600_000);
    machine.pass(100);
    assert_eq!(time.local_now_ms(), start_ms + 100, "a step back");
    machine.freeze(5_000);
    assert_eq!(time.local_now_ms(), start_ms + 5_100, "a freeze");
}

/// An event between two responses, or while one is in flight.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Passes(u64),
    Steps(i64),
    Freezes(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0u64..5_000).prop_map(Happens::Passes),
        1 => (-700_000i64..700_000).prop_map(Happens::Steps),
        // Shorter ones cannot be distinguished from a pause between reading the two clocks.
        1 => (1_000u64..700_000).prop_map(Happens::Freezes),
    ]
}

/// The machine's clock and AWS's: our oscillator runs faster or slower by so many parts in a
/// million.
struct TwoClocks {
    machine: Machine,
    aws_ms: f64,
    drift_ppm: i64,
    /// A freeze and a step back of the same length look like no time at all, so one case has one of
    /// the two.
    freezes: bool,
}

impl TwoClocks {
    fn now(&mut self, event: Happens) {
        match event {
            Happens::Passes(ms) => {
                self.machine.pass(ms);
                self.aws_ms += ms as f64 / (1.0 + self.drift_ppm as f64 / 1e6);
            }
            Happens::Steps(ms) if self.freezes => self.machine.step(ms.abs()),
            Happens::Steps(ms) => self.machine.step(ms),
            Happens::Freezes(_) if !self.freezes => {}
            Happens::Freezes(ms) => {
                self.machine.freeze(ms);
                self.aws_ms += ms as f64;
            }
        }
    }

    fn check(&self, time: &AwsTime) -> Result<(), TestCaseError> {
        if let Some(error_ms) = time.error_ms() {
            let off_ms = (time.now_ms() as f64 - self.aws_ms).abs();
            // One for whole milliseconds, and the pause that is not distinguished from a step.
            let allowed_ms = (error_ms + 1) as f64 + STEP_MS as f64;
            prop_assert!(off_ms <= allowed_ms, "off by {off_ms}, says {error_ms}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn estimate_stays_within_its_error_bound(
        skew_ms in -100_000i64..100_000,
        drift_ppm in -9_000i64..9_000,
        freezes in any::<bool>(),
        rounds in prop::collection::vec((
            prop::collection::vec(happens(), 0..3),
            prop::collection::vec(happens(), 0..2),
            prop::collection::vec(happens(), 0..2),
        ), 1..20),
    ) {
        let machine = Machine::at(10_000_000);
        let time = machine.time();
        let mut clocks = TwoClocks { machine, aws_ms: (10_000_000 + skew_ms) as f64, drift_ppm, freezes };
        let mut last_ms = 0;
        for (pause, there, back) in rounds {
            for event in pause {
                clocks.now(event);
                clocks.check(&time)?;
            }
            let sent = time.clock.read();
            for event in there {
                clocks.now(event);
            }
            let date_ms = (clocks.aws_ms as i64).div_euclid(1000) * 1000;
            for event in back {
                clocks.now(event);
                clocks.check(&time)?;
            }
            time.learn(date_ms, sent, time.clock.read());
            clocks.check(&time)?;
            let local_ms = time.local_now_ms();
            prop_assert!(local_ms >= last_ms);
            last_ms = local_ms;
        }
    }
}

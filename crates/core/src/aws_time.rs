//! AWS's time, as far as it can be known from here.
//!
//! Coverage compares a moment that a worker takes with a moment that the queue took. A sandbox's clock may be off by anything, so
//! the worker does not trust it: each answer of AWS carries a `Date`, whole seconds cut off, and so says that at some moment
//! between sending and receiving, AWS's clock stood within that second. A few answers intersect to far less than a second.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};

use crate::clock::Clock;

/// A clock that is corrected by every answer of AWS. Clones share what they learnt.
#[derive(Clone)]
pub struct AwsTime {
    local: Clock,
    offset: Arc<Mutex<Option<Offset>>>,
}

/// AWS's clock minus ours lies within these bounds, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offset {
    least_ms: i64,
    most_ms: i64,
}

impl Offset {
    /// What one answer tells: `date_ms` was shown at some moment between `sent_ms` and `received_ms` of our clock.
    fn of(date_ms: i64, sent_ms: i64, received_ms: i64) -> Self {
        // The date's second had begun and not ended; and we only know that it was read between sending and receiving.
        Self { least_ms: date_ms - received_ms, most_ms: date_ms + 1000 - sent_ms }
    }

    /// Both at once; the newer one alone if they contradict each other, for then our clock has jumped in between.
    fn narrowed_by(self, newer: Self) -> Self {
        let both = Self { least_ms: self.least_ms.max(newer.least_ms), most_ms: self.most_ms.min(newer.most_ms) };
        if both.least_ms < both.most_ms { both } else { newer }
    }
}

impl AwsTime {
    /// Nothing learnt yet: the time of `local`.
    pub fn new(local: Clock) -> Self {
        Self { local, offset: Arc::default() }
    }

    /// The best guess at AWS's present, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        let offset_ms = self.offset().map_or(0, |offset| offset.least_ms.midpoint(offset.most_ms));
        self.local.now_ms().saturating_add_signed(offset_ms)
    }

    /// The sandbox's own time. For how long something may still take: it does not move when AWS's time becomes known.
    pub fn local_now_ms(&self) -> u64 {
        self.local.now_ms()
    }

    /// How far the guess may be off; none while no answer has come.
    pub fn error_ms(&self) -> Option<u64> {
        let offset = (*self.offset())?;
        Some(offset.most_ms.abs_diff(offset.least_ms).div_ceil(2))
    }

    /// Learns from one answer. All times in milliseconds, the last two by our own clock.
    fn learn(&self, date_ms: i64, sent_ms: i64, received_ms: i64) {
        let newer = Offset::of(date_ms, sent_ms, received_ms);
        let mut offset = self.offset();
        *offset = Some(offset.map_or(newer, |known| known.narrowed_by(newer)));
    }

    /// Two plain numbers: a panic cannot leave them half written.
    fn offset(&self) -> MutexGuard<'_, Option<Offset>> {
        self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn local_ms(&self) -> i64 {
        i64::try_from(self.local.now_ms()).unwrap_or(i64::MAX)
    }
}

impl fmt::Debug for AwsTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsTime").field("now_ms", &self.now_ms()).field("error_ms", &self.error_ms()).finish()
    }
}

/// When the attempt under way was sent, by our clock.
#[derive(Debug)]
struct SentAt(i64);

impl Storable for SentAt {
    type Storer = StoreReplace<Self>;
}

/// Watches every attempt of every SDK client it is added to.
impl Intercept for AwsTime {
    fn name(&self) -> &'static str {
        "AwsTime"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        bag.interceptor_state().store_put(SentAt(self.local_ms()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").and_then(|text| httpdate::parse_http_date(text).ok());
        let date = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        let date_ms = date.and_then(|date| i64::try_from(date.as_millis()).ok());
        if let (Some(date_ms), Some(SentAt(sent_ms))) = (date_ms, bag.load::<SentAt>()) {
            self.learn(date_ms, *sent_ms, self.local_ms());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    fn at(ms: u64) -> (AwsTime, Arc<AtomicU64>) {
        let local = Arc::new(AtomicU64::new(ms));
        let read = local.clone();
        (AwsTime::new(Clock::new(move || UNIX_EPOCH + Duration::from_millis(read.load(Ordering::Relaxed)))), local)
    }

    #[test]
    fn before_any_answer_the_error_is_unknown() {
        let (time, _) = at(5_000);
        assert_eq!((time.now_ms(), time.error_ms()), (5_000, None));
    }

    #[test]
    fn one_answer_bounds_the_error_by_half_a_second_and_half_the_way() {
        let (time, _) = at(5_000);
        time.learn(65_000, 4_980, 5_000);
        assert_eq!(time.error_ms(), Some(510));
        assert_eq!(time.now_ms(), 65_510);
    }

    #[test]
    fn a_jump_of_our_clock_is_noticed_at_the_next_answer() {
        let (time, local) = at(5_000);
        time.learn(5_000, 5_000, 5_000);
        local.store(2_000, Ordering::Relaxed);
        time.learn(6_000, 2_000, 2_000);
        assert!(time.now_ms().abs_diff(6_500) <= 500, "{time:?}");
    }

    proptest! {
        #[test]
        fn the_guess_is_never_further_off_than_it_says(
            skew_ms in -100_000i64..100_000,
            answers in prop::collection::vec((1u64..5_000, 0u64..400, 0u64..400), 1..30),
        ) {
            let (time, local) = at(1_000_000);
            let mut aws_ms = 1_000_000i64 + skew_ms;
            for (pause_ms, there_ms, back_ms) in answers {
                let (pause_ms, there_ms, back_ms) = (pause_ms as i64, there_ms as i64, back_ms as i64);
                let sent_ms = local.load(Ordering::Relaxed) as i64 + pause_ms;
                aws_ms += pause_ms + there_ms;
                let date_ms = aws_ms.div_euclid(1000) * 1000;
                aws_ms += back_ms;
                let received_ms = sent_ms + there_ms + back_ms;
                local.store(received_ms as u64, Ordering::Relaxed);
                time.learn(date_ms, sent_ms, received_ms);
                prop_assert!(time.now_ms().abs_diff(aws_ms as u64) <= time.error_ms().unwrap());
            }
        }
    }
}

//! An estimate of AWS's time, with a bound of its error.
//!
//! Coverage compares a moment that a worker takes with a moment that the queue took. A sandbox's
//! wall clock may be off by anything and may be stepped at any moment, so the worker does not trust
//! it. Each response of AWS has a `Date`, in whole seconds rounded down: at some moment between
//! sending and receiving, AWS's clock was within that second. A few responses intersect to far less
//! than a second. Between responses the monotonic clock counts on.
//!
//! What can be wrong with that, and what is done about it:
//!
//! | Fault | Remedy |
//! |---|---|
//! | the wall clock is stepped, also while a call is in flight | nothing here is measured by it |
//! | the monotonic clock drifts | bounds widen with their age, by `DRIFT` |
//! | the monotonic clock stood still while the sandbox was frozen | it now disagrees with the wall clock: the error is unknown until the next response |
//! | both stood still | not noticed before the next response; the estimate is behind AWS, so that a version claims too little, never too much |

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

use crate::clock::{Clock, Reading};

/// The monotonic clock's drift: at most one part in so many. Linux slews a clock by at most one in
/// 2,000; a wider bound costs nothing, for every invocation begins with a response.
const DRIFT: i64 = 100;

/// Wall and monotonic clock are read one after the other, and a starved sandbox may pause in
/// between. More than this is a step.
const STEP_MS: i64 = 250;

/// A clock that is corrected by every response of AWS. Clones share the estimate.
#[derive(Clone)]
pub struct AwsTime {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    offset: Option<Offset>,
    elapsed: Elapsed,
}

/// AWS's clock minus our monotonic clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offset {
    least_ms: i64,
    most_ms: i64,
    /// The bounds hold at this moment of the monotonic clock and widen from then on.
    at_ms: i64,
    /// The wall clock minus the monotonic one when the request of the first response was sent.
    difference_ms: i64,
}

impl Offset {
    /// The bounds from one response: AWS's clock was at `date_ms` at some moment between `sent` and
    /// `received`. None if one of our clocks was stepped or stopped in between.
    fn of(date_ms: i64, sent: Reading, received: Reading) -> Option<Self> {
        let offset = Self {
            // The date's second had begun and not ended; and it was read between sending and
            // receiving.
            least_ms: date_ms.saturating_sub(received.monotonic_ms),
            most_ms: date_ms.saturating_add(1000).saturating_sub(sent.monotonic_ms),
            at_ms: sent.monotonic_ms,
            difference_ms: sent.difference_ms(),
        };
        offset.agrees_with(received).then_some(offset)
    }

    /// Whether wall and monotonic clock have counted the same time since the first response.
    fn agrees_with(&self, now: Reading) -> bool {
        now.difference_ms().abs_diff(self.difference_ms) <= STEP_MS.unsigned_abs()
    }

    fn widened_to(self, at_ms: i64) -> Self {
        let by_ms = at_ms.saturating_sub(self.at_ms).max(0) / DRIFT;
        Self {
            least_ms: self.least_ms.saturating_sub(by_ms),
            most_ms: self.most_ms.saturating_add(by_ms),
            at_ms: at_ms.max(self.at_ms),
            ..self
        }
    }

    /// The intersection; the newer bounds alone if there is none: then our clocks stopped in
    /// between.
    fn narrowed_by(self, newer: Self) -> Self {
        let (older, newer) = (self.widened_to(newer.at_ms), newer.widened_to(self.at_ms));
        let both =
            Self { least_ms: older.least_ms.max(newer.least_ms), most_ms: older.most_ms.min(newer.most_ms), ..older };
        if both.least_ms < both.most_ms { both } else { newer }
    }

    fn middle_ms(&self) -> i64 {
        self.least_ms.midpoint(self.most_ms)
    }
}

/// The longest time that can have passed, whichever clock stopped or was stepped back. Never
/// decreases.
#[derive(Debug, Default)]
struct Elapsed {
    last: Option<Reading>,
    ms: i64,
}

impl Elapsed {
    fn at(&mut self, now: Reading) -> i64 {
        let passed_ms = match self.last.replace(now) {
            None => now.wall_ms,
            Some(last) => (now.wall_ms - last.wall_ms).max(now.monotonic_ms - last.monotonic_ms),
        };
        self.ms = self.ms.saturating_add(passed_ms.max(0));
        self.ms
    }
}

impl AwsTime {
    /// Until the first response, the wall clock's time.
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// The estimate of AWS's current time, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        let state = self.state();
        let now = self.clock.read();
        let now_ms = match &state.offset {
            None => now.wall_ms,
            Some(offset) => now.monotonic_ms.saturating_add(offset.middle_ms()),
        };
        u64::try_from(now_ms).unwrap_or_default()
    }

    /// The sandbox's own time, which never decreases. For deadlines: it does not jump when AWS's
    /// time becomes known, and after a freeze it includes the time that has passed.
    pub fn local_now_ms(&self) -> u64 {
        let mut state = self.state();
        let now = self.clock.read();
        u64::try_from(state.elapsed.at(now)).unwrap_or_default()
    }

    /// The bound of the estimate's error; none while it is not known.
    pub fn error_ms(&self) -> Option<u64> {
        let state = self.state();
        let now = self.clock.read();
        let offset = state.offset.filter(|offset| offset.agrees_with(now))?.widened_to(now.monotonic_ms);
        Some(offset.most_ms.abs_diff(offset.least_ms).div_ceil(2))
    }

    fn learn(&self, date_ms: i64, sent: Reading, received: Reading) {
        let Some(newer) = Offset::of(date_ms, sent, received) else { return };
        let mut state = self.state();
        let known = state.offset.filter(|known| known.agrees_with(received));
        state.offset = Some(known.map_or(newer, |known| known.narrowed_by(newer)));
    }

    /// Plain numbers: a panic cannot leave them half written.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AwsTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsTime").field("now_ms", &self.now_ms()).field("error_ms", &self.error_ms()).finish()
    }
}

/// When the attempt under way was sent, by our clocks.
#[derive(Debug)]
struct SentAt(Reading);

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
        bag.interceptor_state().store_put(SentAt(self.clock.read()));
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
        if let (Some(date_ms), Some(SentAt(sent))) = (date_ms, bag.load::<SentAt>()) {
            self.learn(date_ms, *sent, self.clock.read());
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "aws_time_tests.rs"]
mod tests;

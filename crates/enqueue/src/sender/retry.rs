//! When a send is repeated, how often, and for how long.

use std::time::Duration;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use tokio::time::{Instant, sleep, timeout};

use crate::explain::explain;

/// How patient a sender is, with one message or one batch of up to ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all, the first one included.
    pub attempts: u32,
    /// What one attempt may take. After that its answer is unknown.
    pub attempt_time: Duration,
    /// What all attempts and the pauses between them may take.
    pub total_time: Duration,
    /// The longest first pause. The limit doubles from pause to pause, and each pause is drawn from nothing up to it: senders that
    /// were refused together do not come back together.
    pub first_pause: Duration,
    /// Where doubling ends.
    pub longest_pause: Duration,
}

impl Default for Retry {
    /// Four attempts of at most three seconds each, ten seconds in all.
    fn default() -> Self {
        Self {
            attempts: 4,
            attempt_time: Duration::from_secs(3),
            total_time: Duration::from_secs(10),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(2),
        }
    }
}

/// The attempts at one thing.
pub(super) struct Attempts {
    retry: Option<Retry>,
    made: u32,
    began: Instant,
}

impl Attempts {
    /// Without a [`Retry`] there is one, as long as the client lets it be.
    pub(super) fn new(retry: Option<Retry>) -> Self {
        Self { retry, made: 0, began: Instant::now() }
    }

    /// Makes the next one.
    pub(super) async fn make<T>(&mut self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        self.made += 1;
        let Some(retry) = self.retry else { return call.await };
        match timeout(retry.attempt_time.min(self.left(&retry)), call).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::passing("no answer in time")),
        }
    }

    /// Waits until it is time for another attempt. False if there is none.
    pub(super) async fn pause(&self) -> bool {
        let Some(retry) = self.retry else { return false };
        if self.made >= retry.attempts {
            return false;
        }
        let doubled = retry.first_pause.saturating_mul(2_u32.saturating_pow(self.made - 1));
        let pause = doubled.min(retry.longest_pause).mul_f64(fastrand::f64());
        if pause >= self.left(&retry) {
            return false;
        }
        sleep(pause).await;
        true
    }

    fn left(&self, retry: &Retry) -> Duration {
        retry.total_time.saturating_sub(self.began.elapsed())
    }
}

/// An attempt that failed, or of which that is not known.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// Whether another attempt may end otherwise.
    pub(super) passing: bool,
    pub(super) why: String,
}

/// Refusals for which the request is not to blame although their status says so.
const PASSING_CODES: [&str; 9] = [
    "KMS.ThrottlingException",
    "KmsThrottled",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeout",
    "RequestTimeoutException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];

impl Failure {
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self { passing: true, why: why.into() }
    }

    pub(super) fn lasting(why: impl Into<String>) -> Self {
        Self { passing: false, why: why.into() }
    }

    /// What a failed call means.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the SDK's enum is open")]
    pub(super) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let passing = match error {
            SdkError::ConstructionFailure(_) => false,
            SdkError::DispatchFailure(failure) => !failure.is_user(),
            SdkError::ServiceError(refusal) => {
                let status = refusal.raw().status().as_u16();
                status >= 500 || status == 429 || is_passing(refusal.err().code())
            }
            SdkError::TimeoutError(_) | SdkError::ResponseError(_) => true,
            // Whatever it is, the message may have arrived or not, which is what the key is for.
            _ => true,
        };
        Self { passing, why: explain(error) }
    }

    /// What a refused entry of a batch means.
    pub(super) fn of_entry(code: &str, why: Option<&str>, sender_fault: bool) -> Self {
        let why = why.map_or(code.to_owned(), |why| format!("{code}: {why}"));
        Self { passing: !sender_fault || is_passing(Some(code)), why }
    }
}

fn is_passing(code: Option<&str>) -> bool {
    code.is_some_and(|code| PASSING_CODES.contains(&code))
}

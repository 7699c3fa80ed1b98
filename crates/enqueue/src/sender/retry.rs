//! Retries with exponential backoff and full jitter.

use std::time::Duration;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use tokio::time::{Instant, sleep, timeout};

use crate::explain::explain;

/// Limits of retries, for one message or one batch of up to ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Number of attempts, the first one included.
    pub max_attempts: u32,
    /// Timeout of one attempt. After it the attempt's outcome is unknown.
    pub attempt_timeout: Duration,
    /// Timeout of all attempts together with the backoff between them.
    pub total_timeout: Duration,
    /// Upper limit of the first backoff. It doubles with every attempt, and each backoff is drawn
    /// at random between zero and the limit, so that producers throttled together do not retry
    /// together.
    pub initial_backoff: Duration,
    /// Where the doubling ends.
    pub max_backoff: Duration,
}

impl Default for Retry {
    /// Four attempts of at most three seconds each, within ten seconds.
    fn default() -> Self {
        Self {
            max_attempts: 4,
            attempt_timeout: Duration::from_secs(3),
            total_timeout: Duration::from_secs(10),
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
        }
    }
}

/// The attempts of one call.
pub(super) struct Attempts {
    retry: Option<Retry>,
    made: u32,
    began: Instant,
}

impl Attempts {
    /// Without a [`Retry`] there is one attempt, limited by the SQS client's own timeouts.
    pub(super) fn new(retry: Option<Retry>) -> Self {
        Self { retry, made: 0, began: Instant::now() }
    }

    /// Runs the next attempt.
    pub(super) async fn run<T>(&mut self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        self.made += 1;
        let Some(retry) = self.retry else { return call.await };
        match timeout(retry.attempt_timeout.min(self.remaining(&retry)), call).await {
            Ok(result) => result,
            Err(_) => Err(Failure::transient("no answer in time")),
        }
    }

    /// Waits before another attempt. Returns false if attempts or time are used up.
    pub(super) async fn backoff(&self) -> bool {
        let Some(retry) = self.retry else { return false };
        if self.made >= retry.max_attempts {
            return false;
        }
        let doubled = retry.initial_backoff.saturating_mul(2_u32.saturating_pow(self.made - 1));
        let backoff = doubled.min(retry.max_backoff).mul_f64(fastrand::f64());
        if backoff >= self.remaining(&retry) {
            return false;
        }
        sleep(backoff).await;
        true
    }

    fn remaining(&self, retry: &Retry) -> Duration {
        retry.total_timeout.saturating_sub(self.began.elapsed())
    }
}

/// An attempt that failed, or whose outcome is unknown.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// Whether another attempt may succeed.
    pub(super) transient: bool,
    pub(super) why: String,
}

/// Transient errors that SQS returns with a 4xx status.
const TRANSIENT_CODES: [&str; 9] = [
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
    pub(super) fn transient(why: impl Into<String>) -> Self {
        Self { transient: true, why: why.into() }
    }

    pub(super) fn permanent(why: impl Into<String>) -> Self {
        Self { transient: false, why: why.into() }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the SDK's enum is open")]
    pub(super) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let transient = match error {
            SdkError::ConstructionFailure(_) => false,
            SdkError::DispatchFailure(failure) => !failure.is_user(),
            SdkError::ServiceError(refusal) => {
                let status = refusal.raw().status().as_u16();
                status >= 500 || status == 429 || is_transient(refusal.err().code())
            }
            SdkError::TimeoutError(_) | SdkError::ResponseError(_) => true,
            // The message may have arrived. Retrying is safe under its key.
            _ => true,
        };
        Self { transient, why: explain(error) }
    }

    /// For one refused entry of a batch.
    pub(super) fn of_entry(code: &str, why: Option<&str>, sender_fault: bool) -> Self {
        let why = why.map_or(code.to_owned(), |why| format!("{code}: {why}"));
        Self { transient: !sender_fault || is_transient(Some(code)), why }
    }
}

fn is_transient(code: Option<&str>) -> bool {
    code.is_some_and(|code| TRANSIENT_CODES.contains(&code))
}

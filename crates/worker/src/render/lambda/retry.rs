//! Which failed invocations the SDK repeats.

use aws_sdk_lambda::config::interceptors::InterceptorContext;
use aws_sdk_lambda::config::retry::{ClassifyRetry, RetryAction};
use aws_smithy_runtime_api::client::retries::classifiers::RetryClassifierPriority;

/// Forbids every retry that the SDK's own classifiers allow, except after a failed connection.
#[derive(Debug)]
pub(super) struct OnlyFailedConnections;

impl ClassifyRetry for OnlyFailedConnections {
    fn classify_retry(&self, invocation: &InterceptorContext) -> RetryAction {
        match invocation.output_or_error() {
            Some(Err(error)) if !error.is_connector_error() => RetryAction::RetryForbidden,
            Some(Err(_) | Ok(_)) | None => RetryAction::NoActionIndicated,
        }
    }

    fn name(&self) -> &'static str {
        "only failed connections"
    }

    /// Behind all others: the last one decides.
    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}

//! Why an invocation gave no result.

use aws_sdk_lambda::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_lambda::operation::invoke::InvokeError;
use everfresh_core::render::RenderFailure;
use everfresh_enqueue::explain;
use serde_json::Value;

use super::MAX_PAYLOAD_BYTES;

/// The function was not run, or its result was lost. The message says what to change.
#[derive(Debug, thiserror::Error)]
#[error("Lambda function {function}: {explanation}{remedy}")]
pub(super) struct NotRun {
    function: String,
    explanation: String,
    remedy: &'static str,
}

impl NotRun {
    pub(super) fn new(function: &str, error: SdkError<InvokeError>) -> Self {
        let remedy = error.code().map_or("", remedy);
        Self { function: function.to_owned(), explanation: explain(&error), remedy }
    }
}

/// What to change, for the codes whose message does not say it.
fn remedy(code: &str) -> &'static str {
    match code {
        "ResourceNotFoundException" => "; deploy the function and its alias, or correct render.lambda",
        "AccessDeniedException" => {
            "; the worker's role must allow lambda:InvokeFunction for it: name its ARN in RenderFunctionArns, with the alias if \
             render.lambda has one"
        }
        "TooManyRequestsException" | "EC2ThrottledException" => {
            "; raise the function's concurrency, or lower the worker's (WorkerConcurrency)"
        }
        _ => "",
    }
}

impl From<NotRun> for RenderFailure {
    /// Always retryable: deploying the function, allowing the call or raising a limit changes
    /// nothing in the request.
    fn from(error: NotRun) -> Self {
        Self::Unreachable(Box::new(error))
    }
}

/// Longer messages are cut: a function may put a page into one.
const MAX_MESSAGE_CHARACTERS: usize = 500;

/// The function, or Lambda in its name, reported an error.
#[derive(Debug, thiserror::Error)]
#[error("Lambda function {function}: {error_type}: {message}")]
pub(super) struct FunctionFailed {
    function: String,
    error_type: String,
    message: String,
}

impl FunctionFailed {
    pub(super) fn read(function: &str, payload: &[u8]) -> Self {
        let error: Value = serde_json::from_slice(payload).unwrap_or_default();
        let text = |field: &str, missing: &str| {
            error[field].as_str().unwrap_or(missing).chars().take(MAX_MESSAGE_CHARACTERS).collect()
        };
        Self {
            function: function.to_owned(),
            error_type: text("errorType", "Unhandled"),
            message: text("errorMessage", "no message, see the function's log"),
        }
    }

    pub(super) fn failure(self, max_bytes: u64) -> RenderFailure {
        match self.error_type.as_str() {
            // Not the function's fault: its page does not fit.
            "Function.ResponseSizeTooLarge" => {
                RenderFailure::TooLarge { max_bytes: max_bytes.min(MAX_PAYLOAD_BYTES), head: None }
            }
            _ => RenderFailure::Function(Box::new(self)),
        }
    }
}

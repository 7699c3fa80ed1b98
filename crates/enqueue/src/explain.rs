//! One-line description of a failed AWS call.

use std::error::Error;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};

/// Describes a failed AWS call in one line: the service's error code and message if it answered,
/// else the transport failure. The SDK's debug output is left out.
#[allow(clippy::wildcard_enum_match_arm, reason = "the SDK's enum is open")]
pub fn explain<E, R>(error: &SdkError<E, R>) -> String
where
    E: ProvideErrorMetadata + Error + 'static,
    R: std::fmt::Debug,
{
    match error {
        SdkError::ServiceError(refusal) => {
            let refusal = refusal.err();
            match (refusal.code(), refusal.message()) {
                (Some(code), Some(message)) => format!("{code}: {message}"),
                (Some(code), None) => code.to_owned(),
                (None, Some(message)) => message.to_owned(),
                (None, None) => {
                    format!("the service returned an error without code or message: {}", innermost(refusal))
                }
            }
        }
        SdkError::TimeoutError(_) => "no answer in time".to_owned(),
        SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
            Some(cause) => format!("the endpoint cannot be reached: {}", innermost(cause)),
            None => "the endpoint cannot be reached".to_owned(),
        },
        SdkError::ResponseError(_) => "the response cannot be parsed".to_owned(),
        SdkError::ConstructionFailure(_) => {
            "the request cannot be built: check that credentials and region are set".to_owned()
        }
        _ => "unknown failure".to_owned(),
    }
}

/// The root cause, which is usually the most specific message.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

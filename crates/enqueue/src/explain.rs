//! What an AWS call's failure means, in one line for people.

use std::error::Error;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};

/// The service's own words if it answered, else what went wrong on the way. The SDK's debug output stays where it is.
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
                (None, None) => format!("the service refused without a reason: {}", innermost(refusal)),
            }
        }
        SdkError::TimeoutError(_) => "no answer in time".to_owned(),
        SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
            Some(cause) => format!("the endpoint cannot be reached: {}", innermost(cause)),
            None => "the endpoint cannot be reached".to_owned(),
        },
        SdkError::ResponseError(_) => "the answer cannot be understood".to_owned(),
        SdkError::ConstructionFailure(_) => "the request cannot be built: are credentials and region set?".to_owned(),
        _ => "an unknown failure".to_owned(),
    }
}

/// The last cause, which is usually the one that says something.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

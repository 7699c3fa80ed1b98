//! An AWS SDK's error as the source of one of ours.

use std::error::Error;
use std::fmt;

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::display::DisplayErrorContext;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use everfresh_enqueue::explain;

/// What AWS answered, in one line, with the SDK's own error as its source.
///
/// An `SdkError` displays as "service error" and the like, so a log line that shows only the
/// outermost error would not say what is wrong.
#[derive(Debug)]
pub struct AwsError {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl AwsError {
    /// The service's code and message, or why there was no response.
    pub(crate) fn explained<E, R>(error: SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
        R: fmt::Debug + Send + Sync + 'static,
    {
        Self { text: explain(&error), source: Some(error.into()) }
    }

    /// As [`AwsError::explained`], with every cause in the text.
    pub(crate) fn detailed<E, R>(error: SdkError<E, R>) -> Self
    where
        E: Error + Send + Sync + 'static,
        R: fmt::Debug + Send + Sync + 'static,
    {
        Self { text: DisplayErrorContext(&error).to_string(), source: Some(error.into()) }
    }

    /// An error whose own text says enough.
    pub(crate) fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self { text: error.to_string(), source: Some(error.into()) }
    }

    /// A result that the SDK does not report as an error.
    pub(crate) fn message(text: impl Into<String>) -> Self {
        Self { text: text.into(), source: None }
    }
}

impl fmt::Display for AwsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for AwsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

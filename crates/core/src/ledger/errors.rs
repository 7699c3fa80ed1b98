//! Every error of the SDK and every cancellation reason of a transaction is classified here and
//! nowhere else. [`super::conditional`] adds what a single conditional write may end in.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;

use super::rows::{Item, RowError};
use crate::aws_error::AwsError;

/// The ledger does not know, or cannot go on. `doing` completes "while …" and names the rows.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// DynamoDB could not be reached, or the result stayed unknown. It may work later.
    #[error("DynamoDB unavailable while {doing}: {source}")]
    Unavailable { doing: &'static str, source: AwsError },
    /// DynamoDB refuses by its nature: the table does not exist, permission is missing, or the
    /// request is malformed.
    #[error("DynamoDB refused the request while {doing}: {source}")]
    Refused { doing: &'static str, source: AwsError },
    #[error("unusable row while {doing}: {source}")]
    Row { doing: &'static str, source: RowError },
}

/// What became of one operation of a cancelled transaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reason {
    /// Another operation cancelled the transaction.
    Fine,
    /// Its condition did not hold. The row, if one is there.
    ConditionFailed(Option<Item>),
}

/// Why a transaction was not applied.
#[derive(Debug)]
pub(crate) enum Cancelled {
    /// At least one condition did not hold. One reason per operation, in order.
    Conditions(Vec<Reason>),
    /// Another transaction holds one of the items, or their partition is overloaded: the same
    /// request may succeed in a moment. The SDK does not retry it.
    Passing(AwsError),
    /// Whether it was applied is not known.
    Unknown(AwsError),
    /// It can never be applied like this.
    Refused(AwsError),
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the SDK's enums are open: what a newer SDK adds is not known to be safe"
)]
pub(crate) fn cancelled(error: SdkError<TransactWriteItemsError>) -> Cancelled {
    let classify: fn(AwsError) -> Cancelled = match &error {
        SdkError::ServiceError(refusal) => match refusal.err() {
            TransactWriteItemsError::TransactionCanceledException(refusal) => {
                return by_reasons(refusal.cancellation_reasons.clone().unwrap_or_default(), error);
            }
            // The SDK has retried these with its pauses; an earlier try may have been applied.
            TransactWriteItemsError::TransactionInProgressException(_)
            | TransactWriteItemsError::ProvisionedThroughputExceededException(_)
            | TransactWriteItemsError::RequestLimitExceeded(_)
            | TransactWriteItemsError::ThrottlingException(_)
            // The service failed in the middle of it: it may have been applied.
            | TransactWriteItemsError::InternalServerError(_) => Cancelled::Unknown,
            TransactWriteItemsError::IdempotentParameterMismatchException(_)
            | TransactWriteItemsError::InvalidEndpointException(_)
            | TransactWriteItemsError::ResourceNotFoundException(_) => Cancelled::Refused,
            other => match other.meta().code() {
                Some("ValidationException" | "AccessDeniedException" | "UnrecognizedClientException") => {
                    Cancelled::Refused
                }
                Some(_) | None => Cancelled::Unknown,
            },
        },
        SdkError::ConstructionFailure(_) => Cancelled::Refused,
        // A timeout after the request has left is neither success nor failure.
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => Cancelled::Unknown,
        _ => Cancelled::Unknown,
    };
    classify(AwsError::explained(error))
}

fn by_reasons(
    reasons: Vec<aws_sdk_dynamodb::types::CancellationReason>,
    error: SdkError<TransactWriteItemsError>,
) -> Cancelled {
    let mut classified = Vec::with_capacity(reasons.len());
    let mut passing = false;
    let mut failed = false;
    for reason in reasons {
        match reason.code() {
            None | Some("None") => classified.push(Reason::Fine),
            Some("ConditionalCheckFailed") => {
                failed = true;
                classified.push(Reason::ConditionFailed(reason.item));
            }
            Some("TransactionConflict" | "ProvisionedThroughputExceeded" | "ThrottlingError") => {
                passing = true;
                classified.push(Reason::Fine);
            }
            // ValidationError, ItemCollectionSizeLimitExceeded and any new code: waiting does not
            // help.
            Some(_) => return Cancelled::Refused(AwsError::explained(error)),
        }
    }
    // A failed condition is final, whatever the other reasons are.
    if failed {
        return Cancelled::Conditions(classified);
    }
    let error = AwsError::explained(error);
    if passing { Cancelled::Passing(error) } else { Cancelled::Unknown(error) }
}

/// Classifies the failure of a single read or write that has nothing to do with a condition.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the SDK's enums are open: what a newer SDK adds is not known to be safe"
)]
pub(crate) fn failed<E>(doing: &'static str, error: SdkError<E>) -> LedgerError
where
    E: std::error::Error + aws_sdk_dynamodb::error::ProvideErrorMetadata + Send + Sync + 'static,
{
    let final_refusal = match &error {
        SdkError::ServiceError(refusal) => matches!(
            refusal.err().code(),
            Some(
                "ResourceNotFoundException"
                    | "ValidationException"
                    | "AccessDeniedException"
                    | "UnrecognizedClientException"
                    | "SerializationException"
            )
        ),
        SdkError::ConstructionFailure(_) => true,
        _ => false,
    };
    let source = AwsError::explained(error);
    if final_refusal { LedgerError::Refused { doing, source } } else { LedgerError::Unavailable { doing, source } }
}

/// A transaction that was not applied, as its caller's error.
pub(crate) fn unfinished(doing: &'static str, refusal: Cancelled) -> LedgerError {
    match refusal {
        Cancelled::Refused(source) => LedgerError::Refused { doing, source },
        Cancelled::Passing(source) | Cancelled::Unknown(source) => LedgerError::Unavailable { doing, source },
        Cancelled::Conditions(_) => unavailable(doing, "a condition failed again after a retry"),
    }
}

/// For a result that stayed unknown although no single call failed.
pub(crate) fn unavailable(doing: &'static str, text: &'static str) -> LedgerError {
    LedgerError::Unavailable { doing, source: AwsError::message(text) }
}

pub(crate) fn in_row(doing: &'static str) -> impl Fn(RowError) -> LedgerError {
    move |source| LedgerError::Row { doing, source }
}

#[cfg(test)]
#[path = "errors_tests.rs"]
mod tests;

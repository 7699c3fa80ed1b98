//! What DynamoDB's refusals mean. Every error of the SDK and every cancellation reason is classified here and nowhere else.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;

use everfresh_enqueue::explain;

use super::rows::{Item, RowError};

/// The ledger does not know, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The table could not be asked, or its answer stayed unknown. It may work later.
    #[error("{doing}: the table did not answer: {why}")]
    Unavailable {
        /// What was being done.
        doing: &'static str,
        /// What the SDK says.
        why: String,
    },
    /// The table refuses by its nature: it does not exist, permission is missing, or the request is malformed.
    #[error("{doing}: the table refuses: {why}")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// What DynamoDB says.
        why: String,
    },
    /// A row is not what it must be.
    #[error("{doing}: {source}")]
    Row {
        /// What was being done.
        doing: &'static str,
        /// Which and why.
        #[source]
        source: RowError,
    },
}

/// One operation of a transaction: what became of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reason {
    /// Nothing against it; another one broke the transaction.
    Fine,
    /// Its condition did not hold. The row, if one is there.
    ConditionFailed(Option<Item>),
}

/// Why a transaction did not happen.
#[derive(Debug)]
pub(crate) enum Cancelled {
    /// At least one condition did not hold. One reason per operation, in order.
    Conditions(Vec<Reason>),
    /// Another transaction is at one of the items, or their partition is overloaded: the same request may work in a moment, and the
    /// SDK has not tried.
    Passing(String),
    /// Whether it happened is not known.
    Unknown(String),
    /// It can never happen like this.
    Refused(String),
}

/// Classifies the failure of a transaction.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the SDK's enums are open: what a newer SDK adds is not known to be safe"
)]
pub(crate) fn cancelled(error: SdkError<TransactWriteItemsError>) -> Cancelled {
    let text = explain(&error);
    match error {
        SdkError::ServiceError(refusal) => match refusal.into_err() {
            TransactWriteItemsError::TransactionCanceledException(refusal) => {
                by_reasons(refusal.cancellation_reasons.unwrap_or_default(), text)
            }
            // The SDK has sent these again, with its pauses, as often as is good for the table; an earlier try may have happened.
            TransactWriteItemsError::TransactionInProgressException(_)
            | TransactWriteItemsError::ProvisionedThroughputExceededException(_)
            | TransactWriteItemsError::RequestLimitExceeded(_)
            | TransactWriteItemsError::ThrottlingException(_)
            // The service broke while at it: it may have happened.
            | TransactWriteItemsError::InternalServerError(_) => Cancelled::Unknown(text),
            TransactWriteItemsError::IdempotentParameterMismatchException(_)
            | TransactWriteItemsError::InvalidEndpointException(_)
            | TransactWriteItemsError::ResourceNotFoundException(_) => Cancelled::Refused(text),
            other => match other.meta().code() {
                Some("ValidationException" | "AccessDeniedException" | "UnrecognizedClientException") => {
                    Cancelled::Refused(text)
                }
                Some(_) | None => Cancelled::Unknown(text),
            },
        },
        SdkError::ConstructionFailure(_) => Cancelled::Refused(text),
        // A time-out after the request has left is neither success nor failure.
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
            Cancelled::Unknown(text)
        }
        _ => Cancelled::Unknown(text),
    }
}

fn by_reasons(reasons: Vec<aws_sdk_dynamodb::types::CancellationReason>, text: String) -> Cancelled {
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
            // ValidationError, ItemCollectionSizeLimitExceeded and whatever may come: not by waiting.
            Some(_) => return Cancelled::Refused(text),
        }
    }
    // A condition that failed is final whatever else was in the way.
    if failed {
        return Cancelled::Conditions(classified);
    }
    if passing { Cancelled::Passing(text) } else { Cancelled::Unknown(text) }
}

/// Classifies the failure of a single read or write whose conditions, if any, are not the issue.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the SDK's enums are open: what a newer SDK adds is not known to be safe"
)]
pub(crate) fn failed<E>(doing: &'static str, error: SdkError<E>) -> LedgerError
where
    E: std::error::Error + aws_sdk_dynamodb::error::ProvideErrorMetadata + 'static,
{
    let why = explain(&error);
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
    if final_refusal { LedgerError::Refused { doing, why } } else { LedgerError::Unavailable { doing, why } }
}

/// What a transaction that was not finished means to its caller.
pub(crate) fn unfinished(doing: &'static str, refusal: Cancelled) -> LedgerError {
    match refusal {
        Cancelled::Refused(why) => LedgerError::Refused { doing, why },
        Cancelled::Passing(why) | Cancelled::Unknown(why) => LedgerError::Unavailable { doing, why },
        Cancelled::Conditions(_) => LedgerError::Unavailable { doing, why: "a condition failed twice".to_owned() },
    }
}

#[cfg(test)]
#[path = "errors_tests.rs"]
mod tests;
